"""What a method is: options in, draws of theta and v in scaled units out."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.gram import Floats


@dataclass(frozen=True)
class Run:
    """How many draws, in how many chains, from which seed (of sampling, never of privacy noise)."""

    draws: int
    chains: int
    seed: np.random.SeedSequence


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws in scaled units.

    ``noise_free`` is E[Var(theta | S, z, v)] under the posterior, the covariance that the same data would leave with
    the noise switched off; ``independent`` draws need no convergence diagnostics.
    """

    theta: Floats  # (chains, draws, order)
    variance: Floats  # (chains, draws)
    noise_free: Floats  # (order, order)
    independent: bool
    counts_noise: bool
    notes: tuple[str, ...] = ()
    statistics: dict[str, Floats] = field(default_factory=dict)


class Method(Protocol):
    """A frozen dataclass whose fields are the method's options."""

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws: ...
