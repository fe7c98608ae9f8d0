r"""Whom people trust decides how much noise their sum has: one release, simulated under three kinds of trust.

With sigma^2 the variance of the noise that one release of the study needs, and n people who own one row each:

    aggregator   one holder sees all rows and adds the noise once                        sigma^2
    secure-sum   everybody adds a part, and compute nodes see shares (001, Theorem 1)    sigma^2 n / (n - 1)
    nobody       everybody's row is released alone (input perturbation, local privacy)   sigma^2 n

*Nobody.* What the owner of a row publishes is the study's statistics of a table of that one row. Replacing the row
changes them by as much as replacing one of n rows changes the sum, so the sensitivity is the study's and each
owner adds noise of variance sigma^2. The sum of n such releases has n times that: the sqrt(n) which all of
paper 001 is there to save. (Noise on the row's values themselves, from which products are then formed, is worse still:
it is squared.) Adding and removing rows, where n is hidden, has no meaning for people who publish each for themselves.

These releases are simulated and say so: they protect nobody.
"""

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from noisewise.errors import StudyError
from noisewise.holder.publish import exact_release
from noisewise.privacy.calibration import plan_noise
from noisewise.privacy.noise import SimulatedNoise
from noisewise.release import Release
from noisewise.study import Study

Trust = Literal["aggregator", "secure-sum", "nobody"]


def noise_factor(trust: Trust, n: int) -> float:
    """The variance of the noise in the sum over n people, over that of one release."""
    if trust not in get_args(Trust):
        raise StudyError(f"trust {trust!r} is not known; it is one of {', '.join(get_args(Trust))}.")
    if n < 2:
        raise StudyError(f"n is {n!r}; it takes at least 2 people.")
    return {"aggregator": 1.0, "secure-sum": n / (n - 1), "nobody": float(n)}[trust]


def release_under(trust: Trust, study: Study, table: object, rng: np.random.Generator) -> Release:
    """The release of all rows together, with simulated noise of the size that this kind of trust costs."""
    if study.mechanism != "gaussian" or study.adjacency != "replace-one":
        raise StudyError(
            "Kinds of trust are compared with mechanism 'gaussian' and adjacency 'replace-one': other noise does not "
            "add up to itself, and a row alone has no row to leave it for."
        )
    exact = exact_release(study, table)
    plan = plan_noise(study)
    size = np.sqrt(noise_factor(trust, round(exact.n)))
    shared = replace(plan, scales=tuple(float(scale * size) for scale in plan.scales))
    source = SimulatedNoise(rng)
    noisy = np.array(exact.values, dtype=np.int64) + source.draw(shared.law, shared.grid_scales)
    return Release.from_plan(study, noisy, shared, holder=trust, insecure=source.insecure)
