r"""One budget for two releases of one table: a share for the first, and for the second all that is left.

**Gaussian.** Two Gaussian releases are together one shift of a normal law by the root of mu_1^2 + mu_2^2, mu = 1 /
multiplier (accounting.py, bound 2). So the budget is mu^2, and a share f of it is mu_1^2 = f mu^2. Each release
states the epsilon that its own shift has at the *whole* delta. These epsilons add up to more than the budget's, and the
two deltas to twice its delta; what is proved of both together is one shift of mu, so exactly (epsilon, delta),
and that is what a ledger counts. Splitting epsilon and delta in proportion throws budget away: with f = 0.3 the
second release has 0.84 of the whole shift, where 0.7 of epsilon and of delta have less than 0.7 of it.

**Laplace.** epsilon_1 = f epsilon, epsilon_2 = (1 - f) epsilon, rounded so that their decimals don't exceed epsilon.

The accountant has the last word: it sets a part of delta aside for noise that is drawn on a grid, so mu is that of
delta less as much, and what is returned has been composed and found to be within the budget.
"""

import math
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal

from noisewise.column import is_finite_number
from noisewise.errors import StudyError
from noisewise.privacy.accounting import Event, composed_epsilon
from noisewise.privacy.calibration import gaussian_multiplier, plan_noise
from noisewise.study import Study

SMALLEST_SHARE, LARGEST_SHARE = 0.01, 0.9
# Parts of delta held back for the grid, in turn; the first is enough for all but the finest noise.
HELD_BACK = (1e-6, 2e-3)


def split_budget(first: Study, second: Study, share: float) -> tuple[Study, Study]:
    """Both studies with such epsilons that releases of them cost the budget of ``second`` together.

    ``share`` is the first release's share. Its epsilon is rounded down to four digits, for people; the second study
    gets all that this leaves.
    """
    if not is_finite_number(share) or not SMALLEST_SHARE <= share <= LARGEST_SHARE:
        raise StudyError(
            f"share {share!r} is out of range; it is the first release's share of the budget, {SMALLEST_SHARE} to "
            f"{LARGEST_SHARE}."
        )
    held_back = HELD_BACK if second.mechanism == "gaussian" else (0.0,)
    for held in held_back:
        epsilons = _laplace(second, share) if second.mechanism == "laplace" else _gaussian(second, share, held)
        if min(epsilons) <= 0:
            raise StudyError(
                f"A share of {share:g} of epsilon {second.epsilon:g} at delta {second.delta:g} leaves one of two "
                "releases no epsilon above 0; lower delta, raise epsilon, or choose a share nearer to one half."
            )
        both = replace(first, epsilon=epsilons[0]), replace(second, epsilon=epsilons[1])
        events = [Event.of(study, plan_noise(study)) for study in both]
        if composed_epsilon(events, second.delta or 0.0) <= second.epsilon:
            return both
    raise StudyError(
        f"At {second.bits} bits the noise of two releases is too fine to be drawn as integers within delta "
        f"{second.delta:g}; raise 'bits', raise delta or lower epsilon."
    )


def _gaussian(study: Study, share: float, held: float) -> tuple[float, float]:
    from dp_accounting import get_epsilon_gaussian

    delta = study.delta or 0.0
    budget = gaussian_multiplier(study.epsilon, delta * (1 - held)) ** -2
    first = _four_digits(float(get_epsilon_gaussian((share * budget) ** -0.5, delta)))
    if first <= 0:
        return first, study.epsilon
    rest = budget - gaussian_multiplier(first, delta) ** -2
    return first, float(get_epsilon_gaussian(rest**-0.5, delta))


def _laplace(study: Study, share: float) -> tuple[float, float]:
    first = _four_digits(study.epsilon * share)
    exact = Decimal(repr(study.epsilon)) - Decimal(repr(first))
    second = float(exact)
    return first, second if Decimal(repr(second)) <= exact else math.nextafter(second, 0.0)


def _four_digits(value: float) -> float:
    exact = Decimal(repr(value))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), rounding=ROUND_DOWN)) if value > 0 else 0.0
