r"""The posterior of (theta, v) when every S_j is held fixed, with no chain: theta | v is Gaussian, v is one number.

Per holder, with noise covariance D = diag(sd_z^2), write S = T M T' and D = T (I - M) T' with 0 <= M <= 1 diagonal
(one eigendecomposition of the pencil S, D in the metric S + D; it exists whatever D is, none included). So
v S + D = T (v M + 1 - M) T', and with t = T^{-1} zhat the observation splits into scalars

    t_k | theta, v ~ N(M_k tau_k, v M_k + 1 - M_k),   tau = T' theta,

so that theta | v ~ N with precision C^{-1} + sum_k T_k T_k' M_k^2 / (v M_k + 1 - M_k)  (000, eq. 12), and no
factorisation of v S + D is ever needed again.

Where u is released it tells v:  u = z'S^{-1}z + r,  r ~ v chi^2_k,  k = n - rank S, exactly. Given zhat and v, z
is Gaussian, hence z'S^{-1}z has known mean and variance; together with the noise of u it is taken as normal, and the
chi-square law of r is integrated against it numerically. The term is a function of v alone, and exact as
noise vanishes, when z is known. So the target is  p(theta) p(v) N(zhat | theta, v) p(uhat | zhat, v)  for the
quadrature and for the chain alike.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from noisewise.analyst.prior import ScaledPrior
from noisewise.gram import Floats

FINE_NODES = 257
COARSE_NODES = 65
NEGLIGIBLE = 40.0  # nats below the mode: 4e-18 of it


class Statistics(NamedTuple):
    """What is conditioned on: S_j held fixed, the rest with its noise."""

    n: Floats
    S: Floats
    z: Floats
    u: Floats | None
    sd_z: Floats
    sd_u: Floats


class Components(NamedTuple):
    """All holders' scalar observations side by side; the first index of ``T`` is theta's."""

    T: Floats
    M: Floats
    t: Floats
    holder: Floats


class Conditional(NamedTuple):
    """theta | v on a grid of v: its mean, a factor K with covariance K K', and log p(zhat | v)."""

    mean: Floats
    factor: Floats
    log_evidence: Floats


def split_into_components(stats: Statistics) -> Components:
    """Diagonalise each holder's pencil (S, D) once."""
    Ts, Ms, ts, holders = [], [], [], []
    for j in range(stats.z.shape[0]):
        S, D = stats.S[j], np.diag(stats.sd_z[j] ** 2)
        values, vectors = np.linalg.eigh(S + D)
        keep = values > values[-1] * 1e-12
        root = vectors[:, keep] * np.sqrt(values[keep])
        inverse = (vectors[:, keep] / np.sqrt(values[keep])).T
        M, rotation = np.linalg.eigh(inverse @ S @ inverse.T)
        Ts.append(root @ rotation)
        Ms.append(np.clip(M, 0.0, 1.0) if stats.sd_z[j].any() else np.ones_like(M))
        ts.append(rotation.T @ inverse @ stats.z[j])
        holders.append(np.full(M.size, j))
    return Components(np.hstack(Ts), np.concatenate(Ms), np.concatenate(ts), np.concatenate(holders))


def theta_given_variance(components: Components, prior: ScaledPrior, v: Floats) -> Conditional:
    """theta | v, zhat for every v of a grid at once."""
    T, M, t, _ = components
    spread = v[:, None] * M + 1.0 - M
    precision = prior.precision + (T * (M**2 / spread)[:, None, :]) @ T.T
    pull = prior.precision @ prior.mean + (M * t / spread) @ T.T
    diagonal = np.arange(precision.shape[1])
    precision[:, diagonal, diagonal] *= 1.0 + 1e-14  # a singular S at a tiny v stays factorisable
    lower = np.linalg.cholesky(precision)
    factor = np.linalg.inv(lower).transpose(0, 2, 1)  # K = L^{-T}, so K K' is the covariance
    white = np.einsum("gij,gi->gj", factor, pull)
    mean = np.einsum("gij,gj->gi", factor, white)
    log_det = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    fit = 0.5 * (white**2).sum(axis=1) - log_det
    return Conditional(mean, factor, fit - 0.5 * (np.log(spread) + t**2 / spread).sum(axis=1))


def log_density_of_u(stats: Statistics, components: Components, v: Floats, conditional: Conditional) -> Floats:
    """log p(uhat | zhat, v), summed over holders, on the grid of v."""
    total = np.zeros(v.size)
    if stats.u is None:
        return total
    for j in range(stats.u.size):
        mine = (components.holder == j) & (components.M > 0.0)
        freedom = stats.n[j] - np.count_nonzero(mine)
        if freedom < 1.0:
            continue
        T, M, t = components.T[:, mine], components.M[mine], components.t[mine]
        spread = v[:, None] * M + 1.0 - M
        # eta = M^{-1/2} T^{-1} z, so that z'S^{-1}z = |eta|^2; its law given zhat and v
        slope = np.sqrt(M) * (1.0 - M) / spread
        centre = slope * (conditional.mean @ T) + v[:, None] * np.sqrt(M) * t / spread
        own = v[:, None] * (1.0 - M) / spread
        half = slope[:, :, None] * (T.T @ conditional.factor)  # covariance of eta: diag(own) + half half'
        half_square = half.transpose(0, 2, 1) @ half
        row_norms = (half**2).sum(axis=2)
        mean = (centre**2).sum(axis=1) + own.sum(axis=1) + row_norms.sum(axis=1)
        along = np.einsum("gki,gk->gi", half, centre)
        variance = 2.0 * (
            (own**2).sum(axis=1) + 2.0 * (own * row_norms).sum(axis=1) + (half_square**2).sum(axis=(1, 2))
        )
        variance += 4.0 * ((own * centre**2).sum(axis=1) + (along**2).sum(axis=1)) + stats.sd_u[j] ** 2
        tiny = (1e-8 * (abs(stats.u[j]) + 1e-3)) ** 2  # stands for "no noise": the integral below needs a width
        total += _log_chi_square_plus_normal(stats.u[j] - mean, v, freedom, np.maximum(variance, tiny))
    return total


def _log_chi_square_plus_normal(x: Floats, v: Floats, freedom: float, variance: Floats) -> Floats:
    """log density at x of r + e, r ~ v chi^2_freedom, e ~ N(0, variance), by quadrature in w = log r.

    The integrand is log-concave in w with its mode in closed form and curvature freedom/2 + r^2/variance there, so a
    trapezoid rule of fixed length around the mode, with the left tail added in closed form, is exact to about 1e-10
    whichever of the two laws is the narrower.
    """
    from scipy.special import gammaln

    shifted = x - variance / (2.0 * v)
    # the positive root of r^2 - shifted r - variance freedom / 2, without cancellation
    root = np.sqrt(shifted**2 + 2.0 * variance * freedom)
    mode = np.where(shifted > 0, (shifted + root) / 2.0, variance * freedom / (root - shifted))
    width = 1.0 / np.sqrt(freedom / 2.0 + mode**2 / variance)
    steps = np.linspace(-30.0, 9.0, 157)
    w = np.log(mode)[:, None] + width[:, None] * steps
    r = np.exp(w)
    log_term = freedom / 2.0 * w - r / (2.0 * v[:, None]) - (x[:, None] - r) ** 2 / (2.0 * variance[:, None])
    top = log_term.max(axis=1)
    term = np.exp(log_term - top[:, None])
    h = width * (steps[1] - steps[0])
    # left of the nodes the integrand is r^(freedom/2) times a constant; the last term is Euler and Maclaurin's
    left = term[:, 0] * (2.0 / freedom + h**2 / 12.0 * freedom / 2.0)
    integral = (term.sum(axis=1) - term[:, 0] / 2.0) * h + left
    constant = freedom / 2.0 * np.log(2.0 * v) + gammaln(freedom / 2.0) + 0.5 * np.log(2.0 * np.pi * variance)
    return np.asarray(top + np.log(integral) - constant)


@dataclass(frozen=True, eq=False)
class Grid:
    """The posterior of log v on a grid, with theta | v at its nodes."""

    log_v: Floats
    log_density: Floats
    log_u: Floats
    conditional: Conditional

    @property
    def weights(self) -> Floats:
        """Posterior probabilities of the nodes (trapezoid rule)."""
        density = np.exp(self.log_density - self.log_density.max())
        density[[0, -1]] /= 2.0
        return np.asarray(density / density.sum())


def integrate_variance(stats: Statistics, components: Components, prior: ScaledPrior) -> Grid:
    """Find where the posterior of log v lives, then tabulate it there.

    The density is analytic and vanishes at both ends, so the trapezoid rule on the final grid (about 14 nodes a
    standard deviation) converges geometrically.
    """
    # Below this v the prior's exp(-scale / v) outweighs the most that n rows can gain by a smaller v, v^(-n/2).
    low, high = np.log(prior.scale / (0.5 * stats.n.sum() + prior.shape) / 100.0), np.log(1e8)
    for _ in range(40):
        grid = _tabulate(stats, components, prior, np.linspace(low, high, COARSE_NODES))
        alive = np.flatnonzero(grid.log_density > grid.log_density.max() - NEGLIGIBLE)
        step = grid.log_v[1] - grid.log_v[0]
        new_low, new_high = grid.log_v[alive[0]] - step, grid.log_v[alive[-1]] + step
        settled = (new_high - new_low) > 0.6 * (high - low)
        low, high = float(new_low), float(new_high)
        if settled:
            break
    return _tabulate(stats, components, prior, np.linspace(low, high, FINE_NODES))


def _tabulate(stats: Statistics, components: Components, prior: ScaledPrior, log_v: Floats) -> Grid:
    v = np.exp(log_v)
    conditional = theta_given_variance(components, prior, v)
    log_u = log_density_of_u(stats, components, v, conditional)
    log_prior = -prior.shape * log_v - prior.scale / v  # of log v: the Jacobian is in
    return Grid(log_v, log_prior + conditional.log_evidence + log_u, log_u, conditional)


def draw(grid: Grid, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Independent draws of (theta, v): invert the distribution of log v, then theta | v between two nodes.

    Between neighbouring nodes the density of log v and the mean and factor of theta | v are taken as linear.
    """
    density = np.exp(grid.log_density - grid.log_density.max())
    cells = (density[1:] + density[:-1]) / 2.0
    edges = np.concatenate([[0.0], np.cumsum(cells)])
    level = np.sort(rng.random(count)) * edges[-1]
    cell = np.minimum(np.searchsorted(edges, level, side="right") - 1, cells.size - 1)
    left, right = density[cell], density[cell + 1]
    rest = level - edges[cell]
    # solve left a + (right - left) a^2 / 2 = rest in [0, 1], stable when the density is flat
    root = np.sqrt(np.maximum(left**2 + 2.0 * (right - left) * rest, 0.0))
    a = np.clip(2.0 * rest / np.maximum(left + root, 1e-300), 0.0, 1.0)
    log_v = grid.log_v[cell] + a * (grid.log_v[1] - grid.log_v[0])
    mean, factor = grid.conditional.mean, grid.conditional.factor
    normal = rng.standard_normal((count, mean.shape[1]))
    theta = np.empty_like(normal)
    starts = np.searchsorted(cell, np.arange(cells.size + 1))
    for g in np.unique(cell):  # draws are sorted, so each cell is one small matrix product
        part = slice(starts[g], starts[g + 1])
        share = a[part, None]
        e = normal[part]
        theta[part] = (1 - share) * (mean[g] + e @ factor[g].T) + share * (mean[g + 1] + e @ factor[g + 1].T)
    order = rng.permutation(count)
    return theta[order], np.exp(log_v[order])


def noise_free_covariance(S: Floats, prior: ScaledPrior, v: Floats, weights: Floats) -> Floats:
    """E[Var(theta | S, z, v)]: what would be left of the uncertainty with the noise switched off."""
    total = S.sum(axis=0)
    covariances = np.linalg.inv(prior.precision + total / v[:, None, None])
    return np.asarray(np.einsum("g,gij->ij", weights, covariances))
