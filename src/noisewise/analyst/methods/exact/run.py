"""How ``exact`` is run: a pilot that learns how the shared unknowns correlate, the run, and a finer one if it diverged.

The holders' latents are nearly independent with unit variance by construction. What is shared by all (theta, v, the
covariates' distribution) correlates as the data say. The pilot's covariance of these makes a fixed affine map, so
that the sampler's own diagonal metric is enough. The map is frozen before the run, so the run is an ordinary NUTS.

Laplace noise is sampled with its kink rounded a little, and the draws are resampled by what that changed: importance
sampling, exact as draws grow, with weights that are even by construction (``anchor._softness``).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from noisewise.analyst.methods.base import Run
from noisewise.analyst.methods.exact.entry import Entry
from noisewise.analyst.methods.exact.layout import Model, pack
from noisewise.analyst.nuts import Chains, Settings, Target
from noisewise.analyst.nuts import sample as run_chains
from noisewise.gram import Floats

MOST_ROTATED = 100  # beyond, a short pilot can no longer learn the map
FINER = (0.95, 0.99, 0.998, 0.9995)


class Sampled(NamedTuple):
    """Chains, and the settings that they ended with."""

    chains: Chains
    settings: Settings
    gradients: float  # all that were spent
    evenness: Floats  # (chains,): of the weights that draws had


def sample(
    code: Entry, model: Model, size: int, run: Run, settings: Settings, *, learn_metric: bool, retry: bool
) -> Sampled:
    """Chains of the density that ``code`` is."""
    seeds = run.seed.spawn(3 + len(FINER))
    gradients = 0.0
    starts = None
    shared = model.p + 1 + model.blocks * model.block_size
    if learn_metric and shared <= MOST_ROTATED:
        third = max(settings.warmup // 3, 50)
        pilot = run_chains(
            _target(code, model, size, None),
            Run(third, 2, seeds[0]),
            replace(settings, warmup=third, store=True),
        )
        gradients += float(pilot.steps.sum() + pilot.warmup_steps.sum())
        assert pilot.unknowns is not None
        found = pilot.unknowns.reshape(-1, size)
        model, starts = _rotate(model, found, shared)
        settings = replace(settings, warmup=third)
        if retry and pilot.divergences.any():  # the run would diverge too, and be for nothing
            settings = replace(settings, target_accept=FINER[0])
    targets = [settings.target_accept]
    if retry:
        targets += [target for target in FINER if target > settings.target_accept]
    for target, seed in zip(targets, seeds[1:], strict=False):
        settings = replace(settings, target_accept=target)
        chains = run_chains(_target(code, model, size, starts), Run(run.draws, run.chains, seed), settings)
        gradients += float(chains.steps.sum() + chains.warmup_steps.sum())
        if not chains.divergences.any():
            break
    kept, evenness = chains.kept, np.ones(run.chains)
    if model.softness:
        kept, evenness = _resampled(kept, np.random.default_rng(seeds[-1]))
    return Sampled(replace(chains, kept=kept[..., :-1]), settings, gradients, evenness)


def _resampled(kept: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Each chain's draws as often as their log weights, the last column, ask for: from a rounded kink to the model.

    Systematically and in order, so that a draw comes within one of as often as it should. And how even the weights of
    each chain are: the share of its draws that as many equal weights would be worth.
    """
    count = kept.shape[1]
    weights = np.exp(kept[..., -1] - kept[..., -1].max(axis=1, keepdims=True))
    shares = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    points = (np.arange(count) + rng.random((len(kept), 1))) / count
    chosen = [np.minimum(np.searchsorted(*one), count - 1) for one in zip(shares, points, strict=True)]
    evenness = weights.mean(axis=1) ** 2 / (weights**2).mean(axis=1)
    return np.stack([chain[of] for chain, of in zip(kept, chosen, strict=True)]), evenness


def _target(code: Entry, model: Model, size: int, starts: Floats | None) -> Target:
    def start(seed: int) -> Floats:
        rng = np.random.default_rng(seed)
        if starts is None:
            return np.asarray(0.5 * rng.standard_normal(size))
        return np.array(starts[rng.integers(len(starts))])

    kept = model.p + 1 + model.p * (model.p + 1) // 2 + 1
    return Target(code.density, code.expand, pack(model), size, kept, start)


def _rotate(model: Model, found: Floats, shared: int) -> tuple[Model, Floats]:
    """The model seen through the pilot's covariance of its shared unknowns, and the pilot's draws seen likewise.

    A covariance learned from few draws is drawn towards its diagonal.
    """
    part = found[:, :shared]
    centre, covariance = part.mean(axis=0), np.cov(part, rowvar=False).reshape(shared, shared)
    trust = len(found) / (len(found) + 5.0 * shared)
    covariance = trust * covariance + (1.0 - trust) * np.diag(np.diag(covariance))
    rotation = np.asarray(np.linalg.cholesky(covariance + 1e-10 * np.eye(shared)), dtype=np.float64)
    starts = found.copy()
    starts[:, :shared] = np.linalg.solve(rotation, (part - centre).T).T
    return model._replace(rotated=shared, centre=centre, rotation=rotation), starts
