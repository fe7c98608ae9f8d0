"""The full conditionals of a sweep of gibbs-update and gibbs-prior (002, Alg. 1), compiled."""

import numpy as np

from noisewise.analyst.methods.gibbs.dense import correct, moments_start, normal_start, prepare
from noisewise.analyst.methods.gibbs.linear import (
    compiled,
    draw_inverse_wishart,
    draw_normal,
    factorise,
    forward,
    inner,
    whiten,
)
from noisewise.analyst.methods.gibbs.model import SPECTRAL, Model, Row, Work
from noisewise.analyst.methods.gibbs.moments import normal_covariance, regression_covariance
from noisewise.analyst.methods.gibbs.spectral import draw_turned, turn
from noisewise.gram import Floats


@inner
def draw_covariates(
    rng: np.random.Generator, model: Model, block: int, B: Floats, mu: Floats, factor: Floats, work: Work
) -> None:
    """Sigma | mu, sums ~ inverse-Wishart, then mu | Sigma, sums ~ normal; ``factor`` becomes that of Sigma."""
    d, first, n = mu.size, model.constant, 0.0
    factor[:] = model.scatter
    pull, freedom = work.pull[:d], model.freedom
    pull[:] = 0.0
    for j in range(B.shape[0]):
        if model.block[j] != block:
            continue
        n += model.n[j]
        for a in range(d):
            t_a = B[j, 0, a + 1] if first == 1 else 0.0
            pull[a] += t_a
            for b in range(a + 1):
                t_b = B[j, 0, b + 1] if first == 1 else 0.0
                factor[a, b] += B[j, a + first, b + first] - t_a * mu[b] - t_b * mu[a] + model.n[j] * mu[a] * mu[b]
    if model.strength > 0.0:
        freedom += 1.0
        for a in range(d):
            for b in range(a + 1):
                factor[a, b] += model.strength * (mu[a] - model.mean[a]) * (mu[b] - model.mean[b])
    factorise(factor)
    draw_inverse_wishart(rng, factor, freedom + n, work.F, work.T)
    factor[:] = work.F
    factorise(factor)
    if first == 1:
        _draw_mean(rng, model, n, pull, factor, mu, work.T)


@inner
def _draw_mean(
    rng: np.random.Generator, model: Model, n: float, pull: Floats, factor: Floats, mu: Floats, T: Floats
) -> None:
    """mu = factor nu: nu has precision (n + strength) I + factor' diag(mean_precision) factor."""
    d = mu.size
    for a in range(d):
        pull[a] += model.strength * model.mean[a]
    forward(factor, pull)
    for a in range(d):
        for b in range(a + 1):
            T[a, b] = n + model.strength if a == b else 0.0
            if model.strength == 0.0:
                for c in range(a, d):
                    T[a, b] += factor[c, a] * model.mean_precision[c] * factor[c, b]
        if model.strength == 0.0:
            for c in range(a, d):
                pull[a] += factor[c, a] * model.mean_precision[c] * model.mean[c]
    factorise(T)
    draw_normal(rng, T, pull)
    for a in range(d):
        mu[a] = 0.0
        for c in range(a + 1):
            mu[a] += factor[a, c] * pull[c]


@inner
def draw_regression(
    rng: np.random.Generator, model: Model, total: Floats, theta: Floats, v: float, L: Floats, pull: Floats
) -> float:
    """theta | v, sums, then v | theta, sums, which is returned: the exact conjugate laws."""
    p = theta.size
    for i in range(p):
        pull[i] = total[i, p] / v
        for j in range(p):
            pull[i] += model.prior_precision[i, j] * model.prior_mean[j]
            L[i, j] = model.prior_precision[i, j] + total[i, j] / v
    factorise(L)
    draw_normal(rng, L, pull)
    left = total[p, p]
    for i in range(p):
        theta[i] = pull[i]
    for i in range(p):
        line = -2.0 * total[i, p]
        for j in range(p):
            line += total[i, j] * theta[j]
        left += theta[i] * line
    return float((model.scale + 0.5 * max(left, 0.0)) / rng.standard_gamma(model.shape + 0.5 * model.n.sum()))


@compiled
def scatter_factor(B: Floats, n: float, constant: int, out: Floats) -> bool:
    """The factor of the scatter of (x, y) about their mean; False if no table has these sums."""
    q = out.shape[0]
    for a in range(q):
        for b in range(a + 1):
            out[a, b] = B[a + constant, b + constant]
            if constant == 1:
                out[a, b] -= B[0, a + 1] * B[0, b + 1] / n
    return factorise(out)


@compiled
def mend(B: Floats, n: float, constant: int, scatter: Floats) -> None:
    """Impossible sums become possible ones of the same size: negative eigenvalues of the scatter change their sign."""
    q = scatter.shape[0]
    for a in range(q):
        for b in range(q):
            scatter[a, b] = B[a + constant, b + constant]
            if constant == 1:
                scatter[a, b] -= B[0, a + 1] * B[0, b + 1] / n
    values, vectors = np.linalg.eigh(scatter)
    for a in range(q):
        for b in range(q):
            change = 0.0
            for c in range(q):
                change -= 2.0 * min(values[c], 0.0) * vectors[a, c] * vectors[b, c]
            B[a + constant, b + constant] += change


@compiled
def log_excess(B: Floats, n: float, constant: int, row: Row, factor: Floats, C: Floats) -> float:
    """log (exact density / normal density) of the sums of normal rows, but for a constant.

    The sum t is normal in both; the scatter about the mean is Wishart(Omega, n), or n - 1 beside a constant. ``factor``
    is that of the scatter.
    """
    q = factor.shape[0]
    h = np.zeros(q)
    log_det = trace = square = 0.0
    for a in range(q):
        log_det += 2.0 * np.log(factor[a, a])
        if constant == 1:
            h[a] = (B[0, a + 1] - n * row.m[a + 1]) / np.sqrt(n)
        for b in range(a + 1):
            total = 0.0
            for c in range(b + 1):
                total += factor[a, c] * factor[b, c]
            C[a, b] = C[b, a] = total
    whiten(row.L, C)
    forward(row.L, h)
    for a in range(q):
        trace += C[a, a]
        for b in range(q):
            off = C[a, b] + h[a] * h[b] - (n if a == b else 0.0)
            square += off * off
    return float(0.5 * (n - constant - q - 1.0) * log_det - 0.5 * trace + square / (4.0 * n))


@inner
def draw_sums(
    rng: np.random.Generator, model: Model, j: int, theta: Floats, v: float, variances: Floats, work: Work
) -> bool:
    """A draw from the normal law of holder j's sums given the published ones, into ``work.proposal``.

    True if the sums are possible; ``work.new`` then holds the factor of their scatter.
    """
    n, first, published, out = model.n[j], model.constant, model.B[j], work.proposal
    row, dense, turned = work.row, work.dense, work.turned
    half = 0.5 * variances[variances.size - 1]
    if model.way[j] == SPECTRAL:
        turn(row.basis, published, n, half, first, turned)
    else:
        if model.general:
            regression_covariance(theta, v, model.eta, model.xi, first, n, dense.P)
        else:
            normal_covariance(row.m, row.Omega, first, model.entries, n, dense.P)
        if not prepare(dense, variances):
            return False
    if first == 1:
        out[0, 0] = n
    for _ in range(model.tries):
        if model.way[j] == SPECTRAL:
            draw_turned(rng, row.basis, n, half, first, turned, out)
        else:
            if model.general:
                moments_start(rng, theta, v, model.eta, model.root_eta, model.root_xi, n, out)
            else:
                normal_start(rng, row.m, row.L, n, first, dense, out)
            correct(rng, published, variances, model.entries, dense, out)
        if scatter_factor(out, n, first, work.new):
            return True
    return False
