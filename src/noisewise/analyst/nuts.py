"""The thin adapter to nutpie, a NUTS in Rust: a compiled density in, chains and what went wrong in words out.

nutpie calls the density through a C pointer (the door that it keeps for compiled PyMC models), so its threads run with
no Python between them and four chains use all cores. Step sizes by dual averaging, a diagonal metric from
the draws.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from noisewise.analyst.diagnostics import convergence_notes
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
            # the variance of draws alone: with gradients in it, what many latents pin down together moves too slowly
            use_grad_based_mass_matrix=False,
        )
    except RuntimeError as error:
        raise FitError(
            f"The sampler could not start ({str(error).splitlines()[0]}). Are the releases on the scale of their study?"
        ) from None
    return _read(trace, run, settings)


def _read(trace: Any, run: Run, settings: Settings) -> Chains:
    draws, stats = trace.get_arrow_trace()
    # chains may come in the order in which they ended; a seed has to give the same draws in every run
    order = np.argsort([int(np.asarray(batch.column("chain"))[0]) for batch in stats])
    draws, stats = [draws[chain] for chain in order], [stats[chain] for chain in order]
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


def in_words(chains: Chains, draws: Floats, settings: Settings) -> tuple[str, ...]:
    """What a reader of the posterior has to know: nothing where all is well."""
    notes = []
    diverged, total = int(chains.divergences.sum()), chains.divergences.size
    if diverged:
        notes.append(
            f"{diverged} of {total:,} draws diverged: a corner of the posterior may be missing. Raise "
            f"target_accept (now {settings.target_accept:g}) closer to 1; if some are left, tighten the prior."
        )
    notes += convergence_notes(
        draws,
        to_settle=f"Raise warmup (now {settings.warmup}) and draws, both at least twofold.",
        to_lengthen="draws",
    )
    if chains.deepest:
        notes.append(
            f"Some trajectories were cut at {2**settings.max_depth - 1} steps; raise max_depth if R-hat is poor."
        )
    return tuple(notes)
