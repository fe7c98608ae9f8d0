r"""From a study's epsilon and delta to the scale of the noise on each released entry.

Gaussian: the smallest sigma of Balle & Wang's analytic mechanism (ICML 2018, Alg. 1) for sensitivity 1, times the
sensitivity. Noise is isotropic in the weighted coordinates (``Layout.weights``), so an entry of weight w gets
standard deviation sigma * sensitivity / w.

What is drawn is a *discrete* Gaussian on the integer grid, and Balle & Wang's theorem is about the continuous one. On
integer statistics, rounding the continuous mechanism's output to integers is post-processing, so the rounded
Gaussian has the same guarantee. Per entry the discrete and the rounded Gaussian of standard deviation s (grid units)
differ little: by the midpoint rule the two kernels at k differ by |phi''(xi_k)| / 24, and with
int |phi''| = 0.97 / s^2 and the variation of phi'' of order s^-3 the total variation distance is below 1 / (10 s^2)
for s >= 8 (normalising the discrete kernel costs another 2 exp(-2 pi^2 s^2)). Two mechanisms at total variation t
exchange an (epsilon, delta) guarantee for (epsilon, delta + (1 + e^epsilon) t), so that much is taken from delta
before calibrating: some 1e-19.

Laplace: scale = L1 sensitivity / epsilon on every entry; the discrete Laplace law on integers has exactly the
continuous one's pure epsilon guarantee.
"""

import math
from dataclasses import dataclass

from noisewise.errors import StudyError
from noisewise.gram import Layout
from noisewise.privacy.sensitivity import Sensitivity, sensitivity
from noisewise.study import Mechanism, Study

# dp-accounting's root finder is exact to 1e-12; this keeps rounding on the private side.
SLACK = 1 + 1e-9
SMALLEST_GRID_SCALE = 2.0**10
LARGEST_GRID_SCALE = 2.0**56


@dataclass(frozen=True)
class NoisePlan:
    """The noise of one release: its law and its scale on every released entry, in scaled units.

    ``scales`` are standard deviations (gaussian) or the Laplace law's scale b; 0 marks what is published exactly.
    ``multiplier`` is noise over sensitivity, which is all that an accountant needs.
    """

    law: Mechanism
    sensitivity: Sensitivity
    multiplier: float
    scales: tuple[float, ...]
    bits: int

    @property
    def grid_scales(self) -> tuple[float, ...]:
        """The scales in integer grid units, 2^-2q each."""
        return tuple(math.ldexp(scale, 2 * self.bits) for scale in self.scales)


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """sigma / sensitivity of the analytic Gaussian mechanism."""
    from dp_accounting import get_sigma_gaussian

    return float(get_sigma_gaussian(epsilon, delta)) * SLACK


def plan_noise(study: Study, distance: float = 0.0) -> NoisePlan:
    """The noise that the study asks of every holder. It depends on nothing but the study.

    ``distance`` is a further total variation distance an entry, of noise that is made of parts (distributed.py).
    """
    bound = sensitivity(study)
    layout = Layout.of(study)
    weights = layout.weights
    delta = study.delta or 0.0
    if study.mechanism == "laplace":
        multiplier = SLACK / study.epsilon
        scales = [multiplier * bound.value] * len(weights)
    else:
        smallest = math.ldexp(bound.value, 2 * study.bits) * gaussian_multiplier(study.epsilon, delta) / math.sqrt(2)
        discrete = (1 + math.exp(study.epsilon)) * len(weights) * (1 / (10 * smallest**2) + distance)
        if smallest < SMALLEST_GRID_SCALE or discrete > 1e-3 * delta:
            raise StudyError(
                f"At {study.bits} bits the noise (standard deviation {smallest:.3g} grid units) is too fine to be "
                "drawn as integers within delta; raise 'bits', raise delta or lower epsilon."
            )
        multiplier = gaussian_multiplier(study.epsilon, delta - discrete)
        scales = [multiplier * bound.value / float(weight) for weight in weights]
    if study.public_n:
        scales[0] = 0.0
    plan = NoisePlan(study.mechanism, bound, multiplier, tuple(scales), study.bits)
    if max(plan.grid_scales) > LARGEST_GRID_SCALE:
        raise StudyError(
            f"Noise of scale {max(scales):.3g} overflows 64-bit integers at {study.bits} bits a value; lower 'bits', "
            "raise epsilon, or use fewer features."
        )
    return plan
