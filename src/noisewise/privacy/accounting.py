r"""What several releases from one data set cost together.

An ``Event`` is one release as an accountant sees it: the law of its noise and how large the noise is next to the
sensitivity (the *multiplier*). ``composed_epsilon`` gives the smallest epsilon that we can prove for all of them at
one delta. It takes the least of up to three bounds; each holds for the very same output, so their minimum holds too.

1. **Stated.** (e_1, d_1), (e_2, d_2), ... together are (sum e, sum d) (basic composition), usable where sum d <=
   delta. It keeps one release at its stated price: the other bounds pay for rounding, this one does not. Sums are
   taken in decimals, as people write them, so that 0.1 + 0.2 is 0.3.
2. **Gaussian part exactly, Laplace part purely.** Isotropic Gaussian noise at multiplier m is, for the worst pair of
   tables, one shift of a normal law by 1/m (rotate the shift onto an axis). Independent shifts make one shift of
   length sqrt(sum 1/m^2), so all Gaussian releases are one with multiplier 1/sqrt(sum 1/m^2), and the analytic
   formula gives its epsilon exactly. Laplace releases have no delta and add their epsilons at any delta.
3. **Privacy loss distribution.** With Laplace noise in play at delta > 0, the laws of the privacy loss are convolved
   (dp-accounting, pessimistic rounding: it only ever overstates). Its events are named after the multiplier alone,
   which is already relative to the sensitivity of our adjacency; so its "add or remove" means one shift of length
   1/m.

*Laplace noise on a vector is no worse than on one number.* The loss of shifting coordinates by a_1, a_2, ... (in
scales b, sum = 1/m) is largest when one coordinate takes it all. Let F(e) be the hockey-stick divergence for shifts
(a, c), a >= c >= 0. For one coordinate it is 1 - exp((e - a)/2) where |e| < a, and does not move with a elsewhere.
Averaging its derivative over the other coordinate's loss, whose law times exp(-loss/2) is exp(-c/2) times: 1/2 at c,
1/2 at -c, density 1/4 between, gives dF/da = exp((e-a-c)/2)/2 * (1/2 [|e-c| < a] + 1/2 [|e+c| < a] + overlap/4),
where the overlap of (-c, c) and (e-a, e+a) is symmetric in a and c. With a >= c the two brackets are at least those
of dF/dc, so moving shift from c to a raises F(e) at every e; other coordinates only average over e.

*What is drawn is an integer.* Bounds 2 and 3 speak of continuous noise. Rounding it is post-processing, and the
discrete law is within total variation ``distance`` of the rounded one: 1/(10 s^2) an entry for a Gaussian
(calibration.py); for a Laplace law of scale b, tanh(h) - 1 + exp(-h) <= h^2/2 with h = 1/(2b), that is 1/(8 b^2).
Distances add up to T and turn (e, d) into (e, d + (1 + exp(e)) T), so a share of delta is set aside for them. Pure
sums need none of this.

*What must hold.* All events of one ledger have one adjacency: replacing a row is removing one and adding another, two
steps of add-remove, so multipliers of the two kinds measure different things and can't be composed as they are. Every
event may depend on the outcomes of earlier ones. That also its budget does is covered for Gaussian noise and for
stated sums each on their own (privacy filters), and not proved for bound 3: fix studies before you see results.
Releases from disjoint parts of a table could share a budget (parallel composition); that is not used, since nothing
here can check that parts are disjoint: every release counts in full.

*Speed.* Gaussian releases cost one formula however many they are. Equal Laplace releases are raised to a power, not
composed one by one, and beyond 64 different ones their multipliers are rounded down (more cost, still a bound) to two
digits.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from decimal import ROUND_DOWN, Decimal, localcontext
from functools import lru_cache
from typing import Self, get_args

from noisewise.errors import LedgerError
from noisewise.privacy.calibration import SLACK, NoisePlan, gaussian_multiplier
from noisewise.study import Mechanism, Study

MANY = 64
# Shares of delta that are tried, in turn, as what discretisation may cost; one of the first is enough in practice.
SHARES = (0.0, 1e-9, 1e-6, 1e-3, 0.5)


@dataclass(frozen=True)
class Event:
    """One release: its noise's law, ``multiplier`` = scale / sensitivity, and the (epsilon, delta) it states.

    ``distance`` bounds the total variation between the noise that is drawn and the continuous law, rounded.
    """

    law: Mechanism
    multiplier: float
    epsilon: float
    delta: float
    distance: float = 0.0

    def __post_init__(self) -> None:
        if self.law not in get_args(Mechanism):
            raise LedgerError(f"Noise law {self.law!r} is not known; it is one of {', '.join(get_args(Mechanism))}.")
        for name in ("multiplier", "epsilon", "delta", "distance"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise LedgerError(f"The {name} of a release is a finite number; got {value!r}.")
            object.__setattr__(self, name, float(value))
        if self.multiplier <= 0 or self.epsilon <= 0 or not 0 <= self.distance <= 1:
            raise LedgerError(
                f"A release has multiplier and epsilon above 0 and a distance in 0 to 1; got {self.multiplier!r}, "
                f"{self.epsilon!r} and {self.distance!r}."
            )
        if self.delta != 0 if self.law == "laplace" else not 0 < self.delta < 1:
            raise LedgerError(f"delta is 0 for Laplace and between 0 and 1 for Gaussian noise; got {self.delta!r}.")
        least = 1 / self.epsilon if self.law == "laplace" else _least_multiplier(self.epsilon, self.delta)
        if self.multiplier < least * (1 - 1e-12):
            raise LedgerError(
                f"{self.law.capitalize()} noise of {self.multiplier:.6g} times the sensitivity does not give epsilon "
                f"{self.epsilon:g} at delta {self.delta:g}; that takes {least:.6g} times."
            )

    @classmethod
    def of(cls, study: Study, plan: NoisePlan) -> Self:
        """The event that a release under this plan is."""
        factor = 10 if plan.law == "gaussian" else 8
        distance = math.fsum(1 / (factor * scale**2) for scale in plan.grid_scales if scale)
        return cls(plan.law, plan.multiplier, study.epsilon, study.delta or 0.0, distance)


def composed_epsilon(events: Iterable[Event], delta: float) -> float:
    """The smallest epsilon known for all events together at ``delta``; ``math.inf`` if there is none."""
    if not 0 <= delta < 1:
        raise LedgerError(f"delta {delta!r} is out of range; it is at least 0 and below 1.")
    # In one order, so that the answer can't depend on theirs, and is remembered: a ledger asks for it again and again.
    return _composed(tuple(sorted(events, key=astuple)), float(delta))


@lru_cache(maxsize=256)
def _composed(events: tuple[Event, ...], delta: float) -> float:
    if not events:
        return 0.0
    gaussian = [event for event in events if event.law == "gaussian"]
    laplace = [event for event in events if event.law == "laplace"]
    pure = float(_exact_sum(event.epsilon for event in laplace))
    bound = _gaussian(gaussian, delta) + pure
    if laplace and len(events) > 1 and delta > 0:
        bound = min(bound, _by_loss_distribution(gaussian, laplace, delta))
    if _exact_sum(event.delta for event in events) > Decimal(repr(delta)):
        return bound
    stated = float(_exact_sum(event.epsilon for event in events))
    return bound if bound < stated * (1 - 1e-6) else stated  # a gain of a millionth is calibration's own slack


def largest_that_fits(events: Sequence[Event], asked: Event, epsilon: float, delta: float) -> float | None:
    """The largest epsilon below the asked one, to three digits, with which one more release stays within the total."""

    def fits(candidate: float) -> bool:
        multiplier = SLACK / candidate if asked.law == "laplace" else gaussian_multiplier(candidate, asked.delta)
        event = Event(asked.law, multiplier, candidate, asked.delta, asked.distance)
        return composed_epsilon((*events, event), delta) <= epsilon

    low, high = asked.epsilon / 1000, asked.epsilon
    if not fits(low):
        return None
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return _digits_down(low, 3)


def _exact_sum(numbers: Iterable[float]) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return sum((Decimal(repr(number)) for number in numbers), Decimal(0))


def _gaussian(events: Sequence[Event], delta: float) -> float:
    from dp_accounting import get_epsilon_gaussian

    if not events:
        return 0.0
    multiplier = _joint_multiplier(events)
    distance = math.fsum(event.distance for event in events)
    return _set_aside(lambda d: float(get_epsilon_gaussian(multiplier, d)), distance, delta)


def _joint_multiplier(events: Sequence[Event]) -> float:
    return 1 / math.sqrt(math.fsum(event.multiplier**-2 for event in events))


def _set_aside(epsilon_at: Callable[[float], float], distance: float, delta: float) -> float:
    """Epsilon of the discrete mechanism at delta, from that of the continuous one at a little less."""
    for share in SHARES:
        epsilon = epsilon_at(delta * (1 - share))
        if (1 + math.exp(min(epsilon, 700.0))) * distance <= share * delta:
            return epsilon
    return math.inf


def _by_loss_distribution(gaussian: Sequence[Event], laplace: Sequence[Event], delta: float) -> float:
    from dp_accounting import GaussianDpEvent, LaplaceDpEvent, NeighboringRelation, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    counts = Counter(event.multiplier for event in laplace)
    if len(counts) > MANY:
        counts = Counter(_digits_down(event.multiplier, 2) for event in laplace)
    largest_loss = sum(count / multiplier for multiplier, count in counts.items())
    if gaussian:
        shift = 1 / _joint_multiplier(gaussian)
        largest_loss += shift**2 / 2 + 10 * shift
    # Rounding costs about the square of the interval; a million points are quick, more are not.
    interval = max(min(1e-3, 0.01 / max(counts)), largest_loss / 1e6)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval)
    for multiplier, count in counts.items():
        accountant.compose(SelfComposedDpEvent(LaplaceDpEvent(multiplier), count))
    if gaussian:
        accountant.compose(GaussianDpEvent(_joint_multiplier(gaussian)))
    distance = math.fsum(event.distance for event in (*gaussian, *laplace))
    return _set_aside(lambda d: float(accountant.get_epsilon(d)), distance, delta)


def _digits_down(value: float, digits: int) -> float:
    step = Decimal(1).scaleb(Decimal(repr(value)).adjusted() - digits + 1)
    return float(Decimal(repr(value)).quantize(step, rounding=ROUND_DOWN))


@lru_cache(maxsize=4096)
def _least_multiplier(epsilon: float, delta: float) -> float:
    from dp_accounting import get_sigma_gaussian

    return float(get_sigma_gaussian(epsilon, delta))
