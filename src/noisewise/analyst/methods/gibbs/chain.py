"""One chain of gibbs-update or gibbs-prior (002, Alg. 1), compiled.

A sweep: the covariates' (mu, Sigma) given the sums, theta and v given the sums, each holder's sums given all of that,
and the mixing variances of Laplace noise. Sums that no table can have (B not positive definite) are drawn again, up to
``tries`` times, and then the old ones stay: both leave the truncated normal law as it is.
"""

import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from noisewise.analyst.methods.gibbs.linear import draw_mixing_variance, inner
from noisewise.analyst.methods.gibbs.model import EXACT, SPECTRAL, Model, State, Work, workspace
from noisewise.analyst.methods.gibbs.moments import joint_normal
from noisewise.analyst.methods.gibbs.spectral import find_basis
from noisewise.analyst.methods.gibbs.steps import (
    draw_covariates,
    draw_regression,
    draw_sums,
    log_excess,
    mend,
    scatter_factor,
)
from noisewise.gram import Floats


class GibbsChain:
    """One chain for the shared runner; keeps (theta, v, lower triangle of sum_j S_j)."""

    def __init__(self, model: Model, state: State, rng: np.random.Generator):
        self._arguments = (model, state, workspace(model), rng)
        self._state = state

    def warm_up(self, sweeps: int) -> None:
        _compile()(*self._arguments, sweeps, 1, np.empty((0, 0)))

    def draw(self, thin: int, kept: Floats) -> None:
        _compile()(*self._arguments, thin, 0, kept)

    def statistics(self) -> dict[str, Floats]:
        sweeps = max(self._state.sweeps[1], 1.0)
        return {"possible_sums": self._state.possible / sweeps, "taken_sums": self._state.taken / sweeps}


@inner
def _parameters(model: Model, state: State, work: Work, rng: np.random.Generator) -> None:
    """(mu, Sigma) and (theta, v), which do not depend on one another given the sums."""
    if model.update:
        for block in range(state.mu.shape[0]):
            draw_covariates(rng, model, block, state.B, state.mu[block], state.factor[block], work)
    total = work.total
    total[:] = 0.0
    for j in range(state.B.shape[0]):
        total += state.B[j]
    state.v[0] = draw_regression(rng, model, total, state.theta, state.v[0], work.P, work.pull)


@inner
def _row_law(model: Model, state: State, work: Work, block: int, spectral: bool) -> None:
    row = work.row
    joint_normal(state.theta, state.v[0], state.mu[block], state.factor[block], model.constant, row.m, row.L, row.Omega)
    if spectral:
        find_basis(row.m, row.Omega, model.constant, row.basis)


@inner
def _sums(model: Model, state: State, work: Work, rng: np.random.Generator, j: int, warm: int) -> None:
    """Holder j's sums, then the mixing variances behind its Laplace noise."""
    n, first = model.n[j], model.constant
    ok = draw_sums(rng, model, j, state.theta, state.v[0], state.variances[j], work)
    if ok and warm == 0:
        state.possible[j] += 1.0
    if ok and model.wishart and state.begun[j] == 1.0:
        scatter_factor(state.B[j], n, first, work.old)
        gain = log_excess(work.proposal, n, first, work.row, work.new, work.C)
        gain -= log_excess(state.B[j], n, first, work.row, work.old, work.C)
        ok = np.log(rng.random()) < gain
    if ok:
        state.begun[j] = 1.0
        state.B[j] = work.proposal
        if warm == 0:
            state.taken[j] += 1.0
    elif warm == 1 and state.begun[j] == 0.0:
        # a start far from the data: the parameters have to come closer before possible sums turn up
        mend(work.proposal, n, first, work.new)
        state.B[j] = work.proposal
    if model.laplace:
        for e in range(model.entries.shape[0]):
            a, b = model.entries[e]
            if model.scales[j, e] > 0.0:
                off = model.B[j, a, b] - state.B[j, a, b]
                state.variances[j, e] = draw_mixing_variance(rng, model.scales[j, e], off)


@inner
def sweep(model: Model, state: State, work: Work, rng: np.random.Generator, warm: int) -> None:
    _parameters(model, state, work, rng)
    spectral, ready = (model.way == SPECTRAL).any(), -1
    for j in range(model.n.size):
        if model.way[j] == EXACT:
            continue
        if model.block[j] != ready and not model.general:
            ready = model.block[j]
            _row_law(model, state, work, ready, spectral)
        _sums(model, state, work, rng, j, warm)


@cache
def _compile() -> Any:
    """The one function kept on disk; the compiler's key knows one file, so a digest of all of them goes into it."""
    version = zlib.crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))

    @njit(cache=True, nogil=True, error_model="numpy")
    def advance(model, state, work, rng, sweeps, warm, kept):
        """In warm-up make ``sweeps`` of them; after it that many for each row of ``kept``."""
        p = state.theta.size
        for row in range(1 if warm == 1 else kept.shape[0]):
            for _ in range(sweeps):
                state.sweeps[1 - warm] += 1.0
                sweep(model, state, work, rng, warm)
            if warm == 1:
                continue
            # theta and v were drawn before these sums, which is as good: the chain has forgotten where a sweep begins
            kept[row, :p] = state.theta
            kept[row, p] = state.v[0]
            at = p + 1
            for a in range(p):
                for b in range(a + 1):
                    kept[row, at] = state.B[:, a, b].sum()
                    at += 1
        return version

    return advance
