"""Parameters from the prior, rows from the model, noise from the study's plan: what a method is given in a trial.

Nothing is clipped or rounded: the model itself, in scaled units.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

import noisewise as nw
from experiments.sbc.rows import draw_rows
from noisewise.analyst.prior import Prior, ScaledPrior
from noisewise.analyst.units import Units
from noisewise.gram import Floats, Layout
from noisewise.privacy.calibration import NoisePlan, plan_noise


class Simulated(NamedTuple):
    """``truth`` is (theta, v)."""

    releases: list[nw.Release]
    prior: ScaledPrior
    truth: Floats


def simulate(study: nw.Study, n: int, J: int, covariates: str, rng: np.random.Generator) -> Simulated:
    """J releases of n rows under one draw of the parameters."""
    prior, _, _ = _public(study)
    theta = rng.multivariate_normal(prior.mean, prior.covariance, method="cholesky")
    v = prior.scale / rng.gamma(prior.shape)
    x = draw_rows(study, J, n, covariates, rng)
    slopes = theta[int(study.intercept) :]
    y = x @ slopes + (theta[0] if study.intercept else 0.0) + np.sqrt(v) * rng.standard_normal((J, n))
    w = np.concatenate([np.ones((J, n, 1)), x, y[..., None]], axis=2)
    _, plan, _ = _public(study)
    standard = rng.standard_normal if study.mechanism == "gaussian" else rng.laplace
    releases = noisy_releases(study, w, standard(size=(J, len(plan.scales))))
    return Simulated(releases, prior, np.append(theta, v))


def noisy_releases(study: nw.Study, w: Floats, standard: Floats) -> list[nw.Release]:
    """A release of each holder's rows w = (1, x, y), (J, n, d + 2), with this noise, (J, entries), times its scales."""
    _, plan, layout = _public(study)
    noise = np.array(plan.scales) * standard
    return [
        nw.Release(
            layout,
            tuple((_entries(layout, rows) + added).tolist()),
            0,
            plan.law,
            plan.scales,
            study,
            holder=f"h{j}",
            identity=f"{j}",
        )
        for j, (rows, added) in enumerate(zip(w, noise, strict=True))
    ]


def _entries(layout: Layout, w: Floats) -> Floats:
    """What a holder of these rows would release, without noise."""
    gram = w.T @ w
    parts = [layout.pick(gram)]
    for block in layout.blocks[1:]:
        if block.name == "eigenvalue":
            first = 0 if layout.intercept else 1
            parts.append(np.linalg.eigvalsh(gram[first:-1, first:-1])[:1])
        else:
            parts.append(np.array([w[:, list(entry)].prod(axis=1).sum() for entry in block.entries]))
    return np.concatenate(parts)


@cache
def _public(study: nw.Study) -> tuple[ScaledPrior, NoisePlan, Layout]:
    """What all trials of a study share."""
    return Prior().in_scaled_units(Units.of_study(study)), plan_noise(study), Layout.of(study)
