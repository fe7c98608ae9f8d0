"""The thin adapter to nutpie, a NUTS in Rust: a compiled density in, chains and what went wrong in words out.

nutpie calls the density through a C pointer (the door that it keeps for compiled PyMC models), so its threads run with
no Python between them and four chains use all cores. Step sizes by dual averaging, metric from draws and gradients.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from noisewise.analyst.methods.base import Run
from noisewise.errors import FitError
from noisewise.gram import Floats


class Target(NamedTuple):
    """A density as nutpie wants it: C functions (of numba), their data, and where to start."""

    density: Any
    expand: Any
    data: Floats
    size: int
    kept: int
    start: Callable[[int], Floats]


@dataclass(frozen=True)
class Settings:
    """``store`` keeps the unknowns themselves too, for a pilot run."""

    warmup: int
    target_accept: float
    max_depth: int
    cores: int | None
    store: bool = False


@dataclass(frozen=True, eq=False)
class Chains:
    """``kept`` is (chains, draws, kept): what ``expand`` wrote; the rest is one number per draw, (chains, draws)."""

    kept: Floats
    divergences: Floats
    steps: Floats
    depth: Floats
    step_size: Floats  # (chains,)
    warmup_steps: Floats  # (chains,)
    deepest: bool
    unknowns: Floats | None  # (chains, draws, size)


def sample(target: Target, run: Run, settings: Settings) -> Chains:
    """Run the chains."""
    try:
        import nutpie
        from nutpie.compile_pymc import CompiledPyMCModel
    except ImportError:
        raise FitError("This method needs nutpie; install it with: pip install 'noisewise[analyst]'") from None
    model = CompiledPyMCModel(
        dims={},
        compiled_logp_func=target.density,
        compiled_expand_func=target.expand,
        initial_point_func=target.start,
        shared_data={},
        user_data=target.data,
        n_expanded=target.kept,
        shape_info=(["kept"], None, [(target.kept,)]),
        logp_func=None,
        expand_func=None,
        _n_dim=target.size,
        _shapes={"kept": (target.kept,)},
        _coords={},
    )
    try:
        trace = nutpie.sample(
            model,
            draws=run.draws,
            tune=settings.warmup,
            chains=run.chains,
            cores=settings.cores or min(run.chains, os.cpu_count() or 1),
            seed=int(run.seed.generate_state(1, np.uint64)[0] >> np.uint64(1)),
            progress_bar=False,
            return_raw_trace=True,
            store_unconstrained=settings.store,
            target_accept=settings.target_accept,
            maxdepth=settings.max_depth,
        )
    except RuntimeError as error:
        raise FitError(
            f"The sampler could not start ({error}). Are the releases on the scale of their study?"
        ) from None
    return _read(trace, run, settings)


def _read(trace: Any, run: Run, settings: Settings) -> Chains:
    draws, stats = trace.get_arrow_trace()
    warmup = settings.warmup

    def numbers(name: str) -> Floats:
        return np.stack([np.asarray(batch.column(name), dtype=float) for batch in stats])

    def vectors(batches: Any, name: str) -> Floats:
        return np.stack([_flat(batch.column(name)).reshape(warmup + run.draws, -1)[warmup:] for batch in batches])

    depth, steps = numbers("depth"), numbers("n_steps")
    return Chains(
        kept=vectors(draws, "kept"),
        divergences=numbers("diverging")[:, warmup:],
        steps=steps[:, warmup:],
        depth=depth[:, warmup:],
        step_size=numbers("step_size_bar")[:, -1],
        warmup_steps=steps[:, :warmup].sum(axis=1),
        deepest=bool(numbers("maxdepth_reached")[:, warmup:].any()),
        unknowns=vectors(stats, "unconstrained_draw") if settings.store else None,
    )


def _flat(column: Any) -> Floats:
    import pyarrow

    return np.asarray(pyarrow.array(column).flatten(), dtype=float)


def rhat_and_ess(draws: Floats) -> tuple[float, float, float]:
    """The largest R-hat, the smallest bulk and the smallest tail effective sample of (chains, draws, quantities)."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces its next version at import
        import arviz
        import xarray
    data = xarray.Dataset({"draws": (("chain", "draw", "quantity"), draws)})
    ess = [float(arviz.ess(data, method=method)["draws"].min()) for method in ("bulk", "tail")]
    return float(arviz.rhat(data)["draws"].max()), ess[0], ess[1]


def in_words(chains: Chains, draws: Floats, settings: Settings) -> tuple[str, ...]:
    """What a reader of the posterior has to know: nothing where all is well."""
    notes = []
    diverged, total = int(chains.divergences.sum()), chains.divergences.size
    if diverged:
        notes.append(
            f"{diverged} of {total:,} draws diverged: a corner of the posterior may be missing. Raise "
            f"target_accept (now {settings.target_accept:g}) towards 0.99; if some are left, tighten the prior."
        )
    if chains.kept.shape[0] < 2 or chains.kept.shape[1] < 4:
        notes.append("One chain, or almost no draws: nothing tells whether it converged. Use chains=4, draws=1000.")
        return tuple(notes)
    rhat, bulk, tail = rhat_and_ess(draws)
    if not rhat < 1.01:
        notes.append(
            f"The chains do not agree (R-hat {rhat:.3f}, wanted below 1.01): they need more time. "
            f"Raise warmup (now {settings.warmup}) and draws, both at least twofold."
        )
    if not min(bulk, tail) > 400.0:
        notes.append(
            f"Effective draws: {bulk:,.0f} in the bulk, {tail:,.0f} in the tails (wanted above 400). Raise draws "
            f"{int(np.ceil(400.0 / max(min(bulk, tail), 1.0)))}-fold before you rely on interval ends."
        )
    if chains.deepest:
        notes.append(
            f"Some trajectories were cut at {2**settings.max_depth - 1} steps; raise max_depth if R-hat is poor."
        )
    return tuple(notes)
