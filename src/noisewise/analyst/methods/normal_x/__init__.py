"""normal-x (000, Alg. 1): normal features, every S_j unknown with the rest, by Gibbs and Metropolis within it.

    Sigma_x ~ IW(Lambda, kappa),  S_j ~ W(Sigma_x, n_j),  zhat_j ~ N(S_j theta, v S_j + D_j),  Shat_j = S_j + noise.

With a constant in the model (b = (1, x), App. B.2) the features have a mean: mu ~ N, xbar_j ~ N(mu, Sigma_x / n_j),
centred scatter C_j ~ W(Sigma_x, n_j - 1), independent, and S_j = [[n, n xbar'], [n xbar, C + n xbar xbar']].

A sweep: Sigma_x and mu by their full conditionals; the moves below; theta by its full conditional; v by a random walk
on its logarithm; each holder's scatter by the paper's Wishart random walk with its own alpha, each mean by a normal
one. Scales adapt in warm-up and are frozen after it.

Alg. 1 alone creeps where noise outweighs sampling error, for three reasons, each with its remedy (``joint``):
- Sigma_x can only follow the S_j, and they it, by steps of relative size 1 / sqrt n. So write C_j = L A_j L' with
  L L' = Sigma_x; A_j does not depend on Sigma_x a priori. A random walk on Sigma_x with every A_j held moves all
  scatters at once (interweaving, Yu & Meng 2011), and one on mu moves all means.
- theta can only follow the S_j, and they it. These moves have theta integrated out of their acceptance ratios.
- A Wishart step is of one relative size in all directions, and where features are correlated the noise is not: it is
  large against the small eigenvalues of S. So half the steps of Sigma_x, and one more walk for each S_j, are shaped as
  the noise is: a normal step of every entry.

y'y is not used, as in the paper: v is learned from z alone. The posterior is right given what is used, and wider in v
than that of a method that reads it.
"""

from dataclasses import dataclass, field

import numpy as np

from noisewise.analyst.chains import Progress, Schedule, run_chains, verdict
from noisewise.analyst.methods.base import Draws, Run, learned
from noisewise.analyst.methods.believed import Scatter, believed_covariates, taken_scatter
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.column import is_finite_number
from noisewise.errors import FitError


@dataclass(frozen=True)
class NormalX:
    """Gibbs and Wishart random walks on (theta, v, Sigma_x, mu, S_1..J).

    The features' distribution has weak priors in scaled units: Sigma_x ~ inverse-Wishart(covariate_scatter,
    covariate_freedom), by default 0.2 I and d + 2, whose mean is 0.2 I (uniform over the bounds is 0.33 I); a number
    stands for that multiple of I, else it is a matrix. mu is normal around the middle of the bounds, its standard
    deviation ``mean_spread`` times half their width. ``steps`` is the
    number of proposals for each S_j in a sweep; ``joint=False`` leaves the paper's moves alone; ``thin`` sweeps make a
    draw. ``progress`` is called with (sweeps done, sweeps in all).
    """

    covariate_scatter: Scatter = 0.2
    covariate_freedom: float | None = None
    mean_spread: float = 1.0
    steps: int = 2
    joint: bool = True
    warmup: int = 3000
    thin: int = 5
    cores: int | None = None
    progress: Progress | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        Schedule(self.warmup, self.thin, self.cores)
        if not isinstance(self.steps, int) or isinstance(self.steps, bool) or self.steps < 1:
            raise FitError(f"steps {self.steps!r} is not a whole number of at least 1.")
        if not isinstance(self.joint, bool):
            raise FitError(f"joint is {self.joint!r}; it is True or False.")
        object.__setattr__(self, "covariate_scatter", taken_scatter(self.covariate_scatter))
        if not is_finite_number(self.mean_spread) or not self.mean_spread > 0:
            raise FitError(f"mean_spread is {self.mean_spread!r}; it is a positive number.")

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        check(problem)
        from noisewise.analyst.methods.normal_x.chain import NormalXChain
        from noisewise.analyst.methods.normal_x.start import constants, start

        order = problem.order
        schedule = Schedule(self.warmup, self.thin, self.cores)
        believed = believed_covariates(problem, self.covariate_scatter, self.covariate_freedom, self.mean_spread)
        data = constants(problem, prior, believed, self.joint)

        def begin(rng: np.random.Generator) -> NormalXChain:
            return NormalXChain(data, start(problem, data, rng), rng, self.steps)

        chains = run_chains(begin, order + 1 + order * (order + 1) // 2, run, schedule, self.progress)
        return Draws.of_chains(
            chains.kept,
            prior,
            notes=verdict(learned(chains.kept, order), schedule) + _assumptions(problem),
            statistics=chains.statistics,
        )


def check(problem: Problem) -> None:
    """What can't be sampled, said before anything is compiled."""
    if problem.law == "laplace":
        raise FitError(
            "normal-x integrates z out under Gaussian noise, and these releases have Laplace noise. Use a study with "
            "mechanism = 'gaussian', or method 'exact', which takes either."
        )
    first = int(problem.units.constant)
    unknown = problem.sd_S[:, first:, :] if first else problem.sd_S
    if not (unknown > 0).all():
        raise FitError(
            "normal-x is for noisy statistics, and some entries of S here have no noise. Use 'non-private' if all are "
            "exact, 'fixed-s' if S is."
        )
    d = len(problem.units.names)
    for j in np.flatnonzero(problem.public_n < d + first):
        name = f"Holder {problem.holders[j]!r}" if problem.holders[j] else f"Release {j + 1}"
        raise FitError(
            f"{name} has {problem.public_n[j]:g} rows; normal-x with {d} features needs at least {d + first} from each "
            "holder, or its scatter has no density. Leave it out, or use method 'exact'."
        )


def _assumptions(problem: Problem) -> tuple[str, ...]:
    notes = ["Features were taken as normally distributed."]
    if problem.u is not None:
        notes.append(
            "The released y'y was not used: normal-x reads S and z alone. 'exact' uses it and knows sigma better."
        )
    if problem.sd_n.any():
        notes.append("The number of rows is noisy: normal-x rounds it and takes it for the truth.")
    return tuple(notes)
