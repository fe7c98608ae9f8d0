"""Where the unknowns of ``exact`` roughly are, and how well the releases tell them: the parametrisation's constants.

Nothing here changes the posterior: a poor anchor costs speed alone. Per holder the noisy statistics are made ``sound``,
what all holders share is a ``guess``, and each latent's ``pull`` is its prior variance over prior plus noise variance.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from noisewise.analyst.methods.believed import NormalCovariates
from noisewise.analyst.methods.exact.guess import (
    CovariateGuess,
    Regression,
    guess_covariates,
    guess_regression,
    share_of_mean,
)
from noisewise.analyst.methods.exact.layout import Model
from noisewise.analyst.methods.exact.sound import (
    centred_noise,
    root,
    sound_factor,
    sound_mean,
    sound_rows,
    sound_scatter,
)
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.gram import Floats

# An entry with less gets noise of this many times the sampling variation that it would have: one part in a million
# of a variance, and the sampler still moves.
NEARLY_EXACT = 1e-3

# The variance of draws' log weights where the kink of Laplace noise is rounded: one effective draw in eight.
UNEVEN = 0.13


@dataclass(frozen=True, eq=False)
class CovariatePrior:
    """What is believed of a distribution of covariates: ``normal``, or the bounds for weak ones; uniform is known."""

    kind: Literal["normal", "weak", "uniform"]
    shared: bool
    normal: NormalCovariates
    largest_moment: float
    largest_trace: float


class _Latents(NamedTuple):
    """For each holder: where its latents are, how far data pull them, how wide they are; and noise that is never 0."""

    K: Floats
    pull_K: Floats
    scale_K: Floats
    sd_S: Floats
    w: Floats
    pull_w: Floats
    scale_w: Floats
    sd_z: Floats
    log_rss: Floats
    pull_rss: Floats
    scale_rss: Floats
    sd_u: Floats


def build(problem: Problem, prior: ScaledPrior, covariates: CovariatePrior) -> tuple[Model, int]:
    """The model with its constants, and how many unknowns it has."""
    p, J, first = problem.order, problem.J, int(problem.units.constant)
    d, weak = p - first, covariates.kind == "weak"
    n, low, centre = sound_rows(problem)
    scatter = np.stack([sound_scatter(problem, j, n[j]) for j in range(J)])
    regression = guess_regression(problem, prior, n, scatter)
    blocks = 0 if covariates.kind == "uniform" else 1 if covariates.shared else J
    groups = [list(range(J))] if blocks == 1 else [[j] for j in range(blocks)]
    anchors = [guess_covariates(problem, covariates.normal, weak, n, group) for group in groups]
    latents = _latents(problem, n, scatter, anchors, regression)

    rank = np.minimum(d, n - first)
    noisy_n, has_rss = problem.sd_n > 0.0, (n > p) & (problem.u is not None)
    block_size = d * (d + 1) // 2 + first * d
    factor_size = first * d + rank * d - rank * (rank - 1) // 2
    sizes = noisy_n + factor_size + first + rank + has_rss
    start = p + 1 + blocks * block_size + np.concatenate([[0], np.cumsum(sizes)])
    at_factor = start[:-1] + noisy_n
    at_w = at_factor + factor_size
    sign = -1.0 if problem.law == "laplace" else 1.0
    model = Model(
        p=p,
        first=first,
        J=J,
        blocks=blocks,
        block_size=block_size,
        weak=int(weak),
        has_u=int(problem.u is not None),
        log_v0=regression.log_v,
        scale_v=regression.sd_log_v,
        shape=prior.shape,
        scale=prior.scale,
        kappa=covariates.normal.kappa,
        largest_moment=covariates.largest_moment,
        largest_trace=covariates.largest_trace,
        d=d,
        centred=share_of_mean(problem, n) if first and blocks == 1 else 0.0,
        softness=_softness(problem),
        rotated=0,
        theta0=regression.mean,
        factor_theta=root(regression.covariance),
        prior_mean=prior.mean,
        prior_precision=prior.precision,
        factor_Lambda=root(covariates.normal.Lambda),
        mean_mu=covariates.normal.mean,
        precision_mu=covariates.normal.precision,
        K0=np.array([anchor.where for anchor in anchors]),
        scale_R=np.array([anchor.scale for anchor in anchors]),
        mu0=np.array([anchor.mu0 for anchor in anchors]),
        factor_mu=np.array([anchor.factor_mu for anchor in anchors]),
        n=n,
        noisy_n=problem.n,
        sd_n=sign * problem.sd_n,
        low_n=low,
        centre_n=centre,
        rank=rank,
        u=np.zeros(J) if problem.u is None else problem.u,
        sd_u=_signed(latents.sd_u, problem.sd_u, sign),
        has_rss=has_rss.astype(float),
        log_rss=latents.log_rss,
        pull_rss=latents.pull_rss,
        scale_rss=latents.scale_rss,
        z=problem.z,
        sd_z=_signed(latents.sd_z, problem.sd_z, sign),
        w=latents.w,
        pull_w=latents.pull_w,
        scale_w=latents.scale_w,
        S=problem.S,
        sd_S=_signed(latents.sd_S, problem.sd_S, sign),
        K=latents.K,
        pull_K=latents.pull_K,
        scale_K=latents.scale_K,
        start=start[:-1],
        at_factor=at_factor,
        at_w=at_w,
        at_rss=at_w + first + rank,
        centre=np.empty(0),
        rotation=np.empty(0),
    )
    return model, int(start[-1])


def _latents(
    problem: Problem,
    n: Floats,
    scatter: Floats,
    anchors: list[CovariateGuess],
    regression: Regression,
) -> _Latents:
    p, J, first, v0 = problem.order, problem.J, int(problem.units.constant), float(np.exp(regression.log_v))
    out = _Latents(
        *(np.zeros((J, p, p)) for _ in range(4)),
        *(np.zeros((J, p)) for _ in range(4)),
        *(np.zeros(J) for _ in range(4)),
    )
    for j in range(J):
        K = sound_factor(problem, j, n[j], scatter[j])
        anchor = anchors[j % len(anchors)] if anchors else None
        prior_factor = anchor.factor if anchor else K[first:, first:] / np.sqrt(n[j])
        sure = np.concatenate([np.ones(first), anchor.sure if anchor else np.ones(p - first)])
        out.sd_S[j], out.sd_z[j] = _usable_sds(problem, j, K, prior_factor, v0)
        sd = out.sd_S[j].copy()
        sd[first:, first:] = np.maximum(sd[first:, first:], centred_noise(problem, j, sound_mean(problem, j, n[j])))
        out.K[j], out.pull_K[j], out.scale_K[j] = _place(n[j], first, K, prior_factor, sure, sd)
        out.w[j] = np.linalg.solve(K, problem.z[j])
        # prior variance over noise variance; what tells w - K'theta is z - S theta, so the noise of S counts, too
        told = v0 * ((K * (sure / np.maximum(out.sd_z[j], regression.sd_z[j]))[:, None]) ** 2).sum(axis=0)
        out.pull_w[j] = told / (1.0 + told)
        out.scale_w[j] = np.sqrt(v0 ** out.pull_w[j] * (1.0 - out.pull_w[j]))
        if problem.u is None:
            continue
        freedom = max(n[j] - p, 1.0)
        out.sd_u[j] = max(problem.sd_u[j], NEARLY_EXACT * v0 * np.sqrt(2.0 * freedom))
        told = 2.0 * freedom * (v0 / max(out.sd_u[j], regression.sd_u[j])) ** 2
        out.pull_rss[j] = told / (1.0 + told)
        out.scale_rss[j] = np.sqrt(2.0 / freedom * (1.0 - out.pull_rss[j]))
        out.log_rss[j] = np.log(max(float(problem.u[j] - out.w[j] @ out.w[j]), 0.1 * v0 * freedom))
    return out


def _softness(problem: Problem) -> float:
    """Over how many scales the kink of Laplace noise is rounded: as far as draws then weigh nearly the same.

    Leapfrog steps lose energy where a slope jumps, and with a kink in every entry would have to be tiny. Rounded over c
    scales, an entry adds (c - |r|)^2 / 2c to a draw's log weight where |r| < c, of variance up to c^3 / 20 for r of
    Laplace's law, so m entries add up to m c^3 / 20 = UNEVEN.
    """
    if problem.law != "laplace":
        return 0.0
    entries = problem.J * (problem.order * (problem.order + 3) // 2 + (problem.u is not None))
    return float(min((20.0 * UNEVEN / entries) ** (1.0 / 3.0), 1.0))


def _signed(usable: Floats, given: Floats, sign: float) -> Floats:
    """A Laplace entry is marked by its sign; a (nearly) exact one stands with normal noise that is next to none."""
    return np.where(given < usable, usable, sign * usable)


def _usable_sds(problem: Problem, j: int, K: Floats, prior_factor: Floats, v0: float) -> tuple[Floats, Floats]:
    """The noise of S and z, with a little of it where an entry is exact or nearly so."""
    first = int(problem.units.constant)
    size = np.diag(K)
    rows = np.concatenate([np.ones(first), np.diag(prior_factor)])
    little = NEARLY_EXACT * np.tril(np.outer(rows, size))
    little[np.diag_indices_from(little)] *= np.sqrt(2.0)
    little += np.tril(little, -1).T
    sd_S = np.maximum(problem.sd_S[j], little)
    sd_z = np.maximum(problem.sd_z[j], NEARLY_EXACT * np.sqrt(v0) * size)
    return sd_S, sd_z


def _place(n: float, first: int, K: Floats, L: Floats, sure: Floats, sd: Floats) -> tuple[Floats, Floats, Floats]:
    """Latents of K given covariates' factor L: T_ab has prior variance 1, log T_bb 1 / (2 freedom)."""
    rows, size = sure * np.concatenate([np.ones(first), np.diag(L)]), sure * np.diag(K)
    told = (np.outer(rows, size) / sd) ** 2
    spread = np.ones_like(K)
    freedom = np.maximum(n - first - np.arange(L.shape[0]), 1.0)
    diagonal = np.arange(first, K.shape[0])
    spread[diagonal, diagonal] = 1.0 / (2.0 * freedom)
    told[diagonal, diagonal] = spread[diagonal, diagonal] * (2.0 * size[first:] ** 2 / np.diag(sd)[first:]) ** 2
    pull = told / (1.0 + told)
    where = K.copy()
    known = pull[diagonal, diagonal]
    where[diagonal, diagonal] = known * np.log(np.diag(K)[first:]) + 0.5 * (1.0 - known) * np.log(freedom)
    return where, pull, np.sqrt(spread * (1.0 - pull))
