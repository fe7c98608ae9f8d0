r"""Noise that many holders share: each adds a part, and what reaches the public has at least the noise of one release.

N holders take part, of whom at most D drop out and at most C pool what they know (001, Theorem 1, with T = D + C). Who
takes part also knows its own noise. So against any holder together with C others, what hides a row is the noise of at
least  m = N - D - C - 1  honest holders, and each draws discrete Gaussian noise of variance sigma^2 / m, sigma^2
that of one release. With k >= N - D contributions the pooled sum has variance k sigma^2 / m: that is what an
analyst has to count, and the price of trusting nobody is the factor k / m, which tends to 1 as N grows.

*A sum of discrete Gaussians is not a discrete Gaussian.* Let s be the standard deviation of one of them in grid units.
The sum of m of them and the discrete Gaussian of variance m s^2 have probabilities whose logarithms differ by at most
tau = 10 sum_{k=1}^{m-1} exp(-2 pi^2 s^2 k / (k+1)) at every point (Kairouz, Liu & Steinke 2021), so their
total variation distance is at most (exp(tau) - 1) / 2 <= tau for tau <= 1. Per entry this is added to the distance
between the discrete and the rounded continuous Gaussian, and the whole is taken from delta (calibration.py). With
s >= 2 every term is below exp(-39), so a round of 100,000 holders still loses less than 1e-11 of delta an entry; finer
noise than that is refused.

Other holders' honest noise beyond m only adds to it: adding independent noise is post-processing.

Laplace noise does not split over holders: sums of few Laplace laws are no Laplace law, and those of differences of
Polya laws, which would be, have no bound as plain when a holder drops out. It is refused.
"""

import math
from dataclasses import dataclass, replace

from noisewise.errors import RoundError
from noisewise.layout import Layout
from noisewise.privacy.accounting import Event
from noisewise.privacy.calibration import LARGEST_GRID_SCALE, NoisePlan, plan_noise
from noisewise.study import Study

FINEST_GRID_SCALE = 2.0
# No sum of k draws passes this many of its standard deviations but with probability below 2 exp(-800).
TAIL = 40.0


@dataclass(frozen=True)
class Crowd:
    """How many holders take part, how many of them may drop out, and how many may pool what they know."""

    holders: int
    may_drop: int
    may_collude: int

    def __post_init__(self) -> None:
        for name in ("holders", "may_drop", "may_collude"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise RoundError(f"{name} is {value!r}; it is a whole number of at least 0.")
        if self.hidden_by < 1:
            raise RoundError(
                f"{self.holders} holders with may_drop {self.may_drop} and may_collude {self.may_collude} leave nobody "
                f"to hide behind: at least {self.may_drop + self.may_collude + 2} holders are needed."
            )

    @property
    def hidden_by(self) -> int:
        """m: how many honest holders' noise hides a row, in the worst case."""
        return self.holders - self.may_drop - self.may_collude - 1

    @property
    def least(self) -> int:
        """The fewest contributions that may be summed."""
        return self.holders - self.may_drop


def plan_shared_noise(study: Study, crowd: Crowd) -> NoisePlan:
    """The noise that every holder of a round adds; its ``multiplier`` is that of the round's result as a whole."""
    if study.mechanism != "gaussian":
        raise RoundError(
            "A secure sum needs mechanism 'gaussian': Laplace noise does not split over holders. Agree on a study with "
            "mechanism = 'gaussian' and a delta, or let every holder release alone."
        )
    if not Layout.of(study).additive:
        raise RoundError(
            "A secure sum adds up what holders release, and smallest eigenvalues don't add up. Agree on a study "
            "without smallest_eigenvalue, or let every holder release alone."
        )
    finest = _finest(plan_noise(study), crowd)
    if finest < FINEST_GRID_SCALE:
        raise RoundError(
            f"Split over {crowd.hidden_by} holders, the noise has standard deviation {finest:.3g} grid units; below "
            f"{FINEST_GRID_SCALE:g} its sum has no proven law. Raise 'bits' in the study, or lower epsilon."
        )
    whole = plan_noise(study, distance=sum_distance(finest, crowd.hidden_by))
    if max(whole.grid_scales) * math.sqrt(crowd.holders / crowd.hidden_by) > LARGEST_GRID_SCALE / 2:
        raise RoundError("The noise of all holders together overflows 64-bit integers; lower 'bits' in the study.")
    return replace(whole, scales=tuple(scale / math.sqrt(crowd.hidden_by) for scale in whole.scales))


def shared_event(study: Study, crowd: Crowd) -> Event:
    """What taking part costs a holder: what one release of the study costs."""
    part = plan_shared_noise(study, crowd)
    whole = replace(part, scales=tuple(scale * math.sqrt(crowd.hidden_by) for scale in part.scales))
    event = Event.of(study, whole)
    finest = min(scale for scale in part.grid_scales if scale)
    noisy = sum(1 for scale in part.scales if scale)
    return replace(event, distance=event.distance + noisy * sum_distance(finest, crowd.hidden_by))


def sum_distance(scale: float, terms: int) -> float:
    """tau: how far the sum of ``terms`` discrete Gaussians of this grid scale is from one discrete Gaussian."""
    # k/(k+1) >= 1/2 grows with k: after the first hundred terms all others are below the hundredth
    few = min(terms - 1, 100)
    head = math.fsum(math.exp(-2 * math.pi**2 * scale**2 * k / (k + 1)) for k in range(1, few + 1))
    rest = (terms - 1 - few) * math.exp(-2 * math.pi**2 * scale**2 * 100 / 101)
    return 10.0 * (head + rest)


def most_rows(study: Study, crowd: Crowd) -> int:
    """The most rows a holder may bring, so that the sum of all holders can't wrap around modulo 2^64.

    An entry of a row is at most 2^2q in size, and of a group of k averaged rows, whose sum is multiplied, k^2 2^2q: so
    N holders of r rows reach N (r / k) k^2 2^2q <= 2^62. Noise stays below TAIL sqrt(N / m) sigma <= TAIL 2^55 < 2^61.
    Together they stay below 2^63.
    """
    return (1 << 62 - 2 * study.bits) // (crowd.holders * study.average_rows)


def _finest(plan: NoisePlan, crowd: Crowd) -> float:
    return min(scale for scale in plan.grid_scales if scale) / math.sqrt(crowd.hidden_by)
