"""The chain of fixed-s (000, Alg. 2): theta | v by its Gaussian full conditional, v | theta by random walk on log v."""

import numpy as np
from numba import njit

from noisewise.analyst.fixed_scatter import Components, Grid
from noisewise.analyst.prior import ScaledPrior
from noisewise.gram import Floats

TARGET_ACCEPTANCE = 0.44  # of a one-dimensional random walk


class FixedSChain:
    """One chain for the shared runner; keeps (theta, v)."""

    def __init__(self, components: Components, prior: ScaledPrior, grid: Grid, rng: np.random.Generator):
        self._target = (
            np.ascontiguousarray(components.T),
            components.M,
            components.t,
            prior.precision,
            prior.precision @ prior.mean,
            prior.shape,
            prior.scale,
            grid.log_v,
            grid.log_u,
        )
        self._rng = rng
        # log v, log step, sweeps in warm-up, sweeps after it, proposals accepted after it
        self._state = np.array([rng.uniform(grid.log_v[0], grid.log_v[-1]), 0.0, 0.0, 0.0, 0.0])

    def warm_up(self, sweeps: int) -> None:
        _advance(*self._target, self._state, self._rng, sweeps, True, np.empty((0, 0)))

    def draw(self, thin: int, kept: Floats) -> None:
        _advance(*self._target, self._state, self._rng, thin, False, kept)

    def statistics(self) -> dict[str, Floats]:
        return {"acceptance_rate": np.array(self._state[4] / max(self._state[3], 1.0))}


@njit(cache=True, nogil=True)
def _advance(T, M, t, precision, pull, shape, scale, table_x, table_y, state, rng, sweeps, adapt, kept):
    """In warm-up make ``sweeps`` of them; after it that many for each row of ``kept``."""
    order = T.shape[0]
    for row in range(1 if adapt else kept.shape[0]):
        for _ in range(sweeps):
            v = np.exp(state[0])
            spread = v * M + 1.0 - M
            P = precision + (T * (M * M / spread)) @ T.T
            L = np.linalg.cholesky(P)
            b = pull + T @ (M * t / spread)
            theta = np.linalg.solve(L.T, np.linalg.solve(L, b) + rng.standard_normal(order))
            residual = t - M * (T.T @ theta)
            here = _log_target(state[0], M, residual, shape, scale, table_x, table_y)
            proposal = state[0] + np.exp(state[1]) * rng.standard_normal()
            there = _log_target(proposal, M, residual, shape, scale, table_x, table_y)
            ratio = np.exp(min(there - here, 0.0))
            accept = rng.random() < ratio
            if accept:
                state[0] = proposal
            if adapt:
                state[2] += 1.0
                state[1] += (ratio - TARGET_ACCEPTANCE) / np.sqrt(state[2])
            else:
                state[3] += 1.0
                state[4] += accept
        if not adapt:
            kept[row, :order] = theta
            kept[row, order] = np.exp(state[0])


@njit(cache=True, nogil=True)
def _log_target(log_v, M, residual, shape, scale, table_x, table_y):
    if log_v <= table_x[0] or log_v >= table_x[-1]:
        return -np.inf  # beyond the tabulated range, which holds all but 1e-17 of the posterior
    spread = np.exp(log_v) * M + 1.0 - M
    log_likelihood = -0.5 * np.sum(np.log(spread) + residual * residual / spread)
    return log_likelihood - shape * log_v - scale / np.exp(log_v) + np.interp(log_v, table_x, table_y)
