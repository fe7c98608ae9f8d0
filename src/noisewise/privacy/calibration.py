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

**Shares.** A release may have several blocks of entries, block i with sensitivity D_i and a share f_i of the budget,
the shares adding up to 1. It stays one vector and one event. Gaussian: block i gets multiplier m / sqrt(f_i), noise m
D_i / sqrt(f_i) in its coordinates. Divide every block by D_i / sqrt(f_i): the noise is then isotropic of standard
deviation m, and one person moves the whole vector by at most sqrt(sum f_i) = 1, so it is the Gaussian mechanism of
sensitivity 1 at multiplier m, with exactly the study's epsilon and delta. Laplace: block i gets scale D_i / (f_i
epsilon), so the privacy loss is at most sum_i f_i epsilon = epsilon. (The sum of shares is 1 up to 1e-15, which
``SLACK`` covers.)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from noisewise.errors import StudyError
from noisewise.layout import BlockName, Layout
from noisewise.privacy.sensitivity import Sensitivity, sensitivity
from noisewise.study import Mechanism, Study

# dp-accounting's root finder is exact to 1e-12; this keeps rounding on the private side.
SLACK = 1 + 1e-9
SMALLEST_GRID_SCALE = 2.0**10
LARGEST_GRID_SCALE = 2.0**56


class BlockNoise(NamedTuple):
    """One block of a release: its share of the budget, its sensitivity, and its noise over sensitivity."""

    name: BlockName
    share: float
    sensitivity: Sensitivity
    multiplier: float

    @property
    def sigma(self) -> float:
        """The noise on an entry of weight 1, in scaled units."""
        return self.multiplier * self.sensitivity.value


@dataclass(frozen=True)
class NoisePlan:
    """The noise of one release: its law and its scale on every released entry, in scaled units.

    ``scales`` are standard deviations (gaussian) or the Laplace law's scale b; 0 marks what is published exactly.
    ``multiplier`` is noise over sensitivity of the whole vector, which is all that an accountant needs.
    """

    law: Mechanism
    blocks: tuple[BlockNoise, ...]
    multiplier: float
    scales: tuple[float, ...]
    bits: int

    @property
    def sensitivity(self) -> Sensitivity:
        """That of the first block."""
        return self.blocks[0].sensitivity

    @property
    def grid_scales(self) -> tuple[float, ...]:
        """The scales in integer grid units, 2^-2q each."""
        return tuple(math.ldexp(scale, 2 * self.bits) for scale in self.scales)


@lru_cache(maxsize=1024)  # every check of a task asks for the same few
def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """sigma / sensitivity of the analytic Gaussian mechanism."""
    from dp_accounting import get_sigma_gaussian

    return float(get_sigma_gaussian(epsilon, delta)) * SLACK


def plan_noise(study: Study, distance: float = 0.0) -> NoisePlan:
    """The noise that the study asks of every holder. It depends on nothing but the study.

    ``distance`` is a further total variation distance an entry, of noise that is made of parts (distributed.py).
    """
    layout = Layout.of(study)
    bounds = [sensitivity(study, block.name) for block in layout.blocks]
    multiplier = (
        SLACK / study.epsilon if study.mechanism == "laplace" else _discrete_multiplier(study, layout, bounds, distance)
    )
    noises = tuple(
        BlockNoise(block.name, block.share, bound, multiplier / _cost(study.mechanism, block.share))
        for block, bound in zip(layout.blocks, bounds, strict=True)
    )
    scales = [
        noise.sigma / (1.0 if study.mechanism == "laplace" else float(weight))
        for block, noise in zip(layout.blocks, noises, strict=True)
        for weight in block.weights
    ]
    if study.public_n:
        scales[0] = 0.0
    plan = NoisePlan(study.mechanism, noises, multiplier, tuple(scales), study.bits)
    if max(plan.grid_scales) > LARGEST_GRID_SCALE:
        raise StudyError(
            f"Noise of scale {max(scales):.3g} overflows 64-bit integers at {study.bits} bits a value; lower 'bits', "
            "raise epsilon, or use fewer features."
        )
    return plan


def _cost(mechanism: Mechanism, share: float) -> float:
    """1 / multiplier of a block over that of the whole: see the module's text."""
    return share if mechanism == "laplace" else math.sqrt(share)


def _discrete_multiplier(study: Study, layout: Layout, bounds: Sequence[Sensitivity], distance: float) -> float:
    """The Gaussian multiplier at delta less what drawing on a grid costs."""
    delta = study.delta or 0.0
    least = min(
        bound.value / math.sqrt(block.share) / float(block.weights.max())
        for block, bound in zip(layout.blocks, bounds, strict=True)
    )
    smallest = math.ldexp(least, 2 * study.bits) * gaussian_multiplier(study.epsilon, delta)
    discrete = (1 + math.exp(study.epsilon)) * len(layout.entries) * (1 / (10 * smallest**2) + distance)
    if smallest < SMALLEST_GRID_SCALE or discrete > 1e-3 * delta:
        raise StudyError(
            f"At {study.bits} bits the noise (standard deviation {smallest:.3g} grid units) is too fine to be "
            "drawn as integers within delta; raise 'bits', raise delta or lower epsilon."
        )
    return gaussian_multiplier(study.epsilon, delta - discrete)
