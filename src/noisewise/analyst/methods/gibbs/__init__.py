"""gibbs-update and gibbs-prior (002, Alg. 1; with Gaussian noise 000, App. C.1): the sums S, z, u of each holder are
unknown, normal by the central limit theorem, and drawn by a Gibbs sampler with everything else.

The normal law needs the covariates' second and fourth moments. ``gibbs-update`` takes covariates as normal and learns
their mean and covariance; ``gibbs-prior`` holds the moments at stated values; ``gibbs-noisy`` (noisy.py) takes them
from the releases. docs/gibbs.md has the model and limits.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisewise.analyst.chains import Progress, Schedule, run_chains, verdict
from noisewise.analyst.methods.base import Draws, Run, learned
from noisewise.analyst.methods.believed import Scatter, believed_covariates, taken_scatter
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.errors import FitError
from noisewise.gram import Floats

if TYPE_CHECKING:
    from noisewise.analyst.methods.gibbs.model import Covariates

SELDOM = 0.9  # below this share of possible draws the normal approximation is in doubt


@dataclass(frozen=True, eq=False, kw_only=True)
class GibbsSS:
    """The options that all of them have.

    ``sums="normal"`` is the paper's law of the sums. ``sums="exact"`` uses it as a proposal only and corrects it to the
    exact law for normal covariates by Metropolis and Hastings, so no approximation is left. ``thin`` sweeps are made
    for each draw that is kept. Sums that no table can have are drawn again, up to ``tries`` times, before the old ones
    stay. ``spectral=False`` draws the sums the slow way where the fast one is open.
    """

    sums: Literal["normal", "exact"] = "normal"
    warmup: int = 10_000
    thin: int = 100
    tries: int = 10
    spectral: bool = True
    cores: int | None = None
    progress: Progress | None = field(default=None, compare=False)

    _normal: ClassVar[str] = "The sums were taken as normal, as in the paper; sums='exact' corrects what that distorts."

    def __post_init__(self) -> None:
        if self.sums not in ("normal", "exact"):
            raise FitError(f"sums {self.sums!r} is not known; it is 'normal' (the paper's) or 'exact'.")
        Schedule(self.warmup, self.thin, self.cores)
        if not isinstance(self.tries, int) or isinstance(self.tries, bool) or self.tries < 1:
            raise FitError(f"tries is {self.tries!r}; it is a whole number of at least 1.")
        if not isinstance(self.spectral, bool):
            raise FitError(f"spectral is {self.spectral!r}; it is True or False.")

    def _run(self, problem: Problem, prior: ScaledPrior, run: Run, covariates: "Covariates") -> Draws:
        from noisewise.analyst.methods.gibbs.chain import GibbsChain
        from noisewise.analyst.methods.gibbs.start import constants, start

        order, schedule = problem.order, Schedule(self.warmup, self.thin, self.cores)
        model = constants(
            problem, prior, covariates, wishart=self.sums == "exact", tries=self.tries, spectral=self.spectral
        )
        chains = run_chains(
            lambda rng: GibbsChain(model, start(model, rng), rng),
            order + 1 + order * (order + 1) // 2,
            run,
            schedule,
            self.progress,
        )
        return Draws.of_chains(
            chains.kept,
            prior,
            notes=verdict(learned(chains.kept, order), schedule) + self._notes(problem, chains.statistics),
            statistics=chains.statistics,
        )

    def _notes(self, problem: Problem, statistics: dict[str, Floats]) -> tuple[str, ...]:
        notes, noisy = [], _noisy(problem)
        for j in np.flatnonzero(noisy):
            possible, taken = (float(statistics[name][:, j].mean()) for name in ("possible_sums", "taken_sums"))
            if possible < SELDOM:
                notes.append(
                    f"{_name(problem, j)}: in {1 - possible:.0%} of sweeps no draw of its sums was possible for a "
                    f"table. {problem.public_n[j]:g} rows are too few for the normal approximation with "
                    f"{problem.order} "
                    "coefficients; use method 'exact'."
                )
            elif self.sums == "exact" and taken < 0.2:
                notes.append(
                    f"{_name(problem, j)}: its sums moved in {taken:.0%} of sweeps only. Raise thin, or use method "
                    "'exact'."
                )
        if self.sums == "normal" and noisy.any():
            notes.append(self._normal)
        if problem.sd_n.any():
            notes.append("The number of rows is noisy: it was rounded and taken for the truth.")
        return tuple(notes)


@dataclass(frozen=True, eq=False, kw_only=True)
class GibbsUpdate(GibbsSS):
    """Rows of features are N(mu, Sigma), the same for all holders or (``shared_covariates=False``) one each.

    Sigma ~ inverse-Wishart(covariate_scatter, covariate_freedom), a number being a multiple of I. mu is
    normal with the bounds one standard deviation away (times ``mean_spread``), or with ``mean_strength`` k the paper's
    N(centre of the bounds, Sigma / k). Without an intercept in the study mu = 0. All in scaled units.
    """

    covariate_scatter: Scatter = 0.2
    covariate_freedom: float | None = None
    mean_spread: float = 1.0
    mean_strength: float | None = None
    shared_covariates: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "covariate_scatter", taken_scatter(self.covariate_scatter))
        _check_positive("mean_spread", self.mean_spread)
        if self.mean_strength is not None:
            _check_positive("mean_strength", self.mean_strength)
        if not isinstance(self.shared_covariates, bool):
            raise FitError(f"shared_covariates is {self.shared_covariates!r}; it is True or False.")

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        from noisewise.analyst.methods.gibbs.model import Covariates

        check(problem, "gibbs-update", self.sums)
        normal = believed_covariates(problem, self.covariate_scatter, self.covariate_freedom, self.mean_spread)
        d = normal.mean.size
        centre = normal.mean if problem.units.constant else np.zeros(d)
        believed = Covariates(
            update=True,
            shared=self.shared_covariates,
            mu=centre,
            covariance=np.eye(d) / 3.0,
            scatter=normal.Lambda,
            freedom=normal.kappa,
            mean=centre,
            mean_precision=normal.precision,
            strength=self.mean_strength or 0.0,
            fourth=None,
        )
        return self._run(problem, prior, run, believed)


@dataclass(frozen=True, eq=False, kw_only=True)
class GibbsPrior(GibbsSS):
    """Moments of the features are taken as known, in scaled units.

    ``mean`` and ``covariance`` (a number, the variances, or a matrix) are by default those of independent columns
    uniform over their bounds, levels and booleans with equal odds. Fourth moments are a normal law's, unless ``fourth``
    gives E[b_i b_j b_k b_l] as an array of four axes; b is the row of features, after a constant if there is one.
    """

    mean: ArrayLike | None = None
    covariance: ArrayLike | None = None
    fourth: ArrayLike | None = None

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        from noisewise.analyst.methods.gibbs.model import Covariates

        check(problem, "gibbs-prior", self.sums)
        mean, covariance = self._first_two(problem)
        d = mean.size
        fixed = Covariates(
            update=False,
            shared=True,
            mu=mean,
            covariance=covariance,
            scatter=np.eye(d),
            freedom=float(d),
            mean=mean,
            mean_precision=np.ones(d),
            strength=0.0,
            fourth=self._fourth(problem, mean, covariance),
        )
        if self.sums == "exact" and (fixed.fourth is not None or (mean.any() and not problem.units.constant)):
            raise FitError(
                "sums='exact' needs normal features, with mean 0 where the study has no intercept; leave 'fourth' out "
                "and give mean=0, or use sums='normal'."
            )
        return self._run(problem, prior, run, fixed)

    def _first_two(self, problem: Problem) -> tuple[Floats, Floats]:
        d = len(problem.units.names)
        mean, covariance = moments_from_bounds(problem)
        if self.mean is not None:
            mean = _numbers("mean", self.mean, ((), (d,)), f"one number or {d} of them")
            mean = np.broadcast_to(mean, (d,)).copy()
        if self.covariance is not None:
            words = f"one number, {d} variances or a {d} x {d} matrix"
            given = _numbers("covariance", self.covariance, ((), (d,), (d, d)), words)
            covariance = given if given.ndim == 2 else np.diag(np.broadcast_to(given, (d,)))
        if not np.allclose(covariance, covariance.T) or np.linalg.eigvalsh(covariance)[0] <= 0.0:
            raise FitError(
                "covariance of gibbs-prior is not symmetric and positive definite; every variance is above 0."
            )
        return mean, np.ascontiguousarray(covariance, dtype=float)

    def _fourth(self, problem: Problem, mean: Floats, covariance: Floats) -> Floats | None:
        if self.fourth is None:
            return None
        from noisewise.analyst.methods.gibbs.moments import pairs_of_tensor, second_moments

        p, eta = problem.order, second_moments(mean, covariance, problem.units.constant)
        fourth = _numbers("fourth", self.fourth, ((p,) * 4,), f"an array of shape {(p,) * 4}")
        if not all(np.allclose(fourth, np.moveaxis(fourth, 0, axis)) for axis in (1, 2, 3)):
            raise FitError("fourth of gibbs-prior is not symmetric: E[b_i b_j b_k b_l] does not depend on the order.")
        if problem.units.constant and not np.allclose(fourth[0, 0], eta, rtol=1e-6, atol=1e-9):
            raise FitError(
                "fourth of gibbs-prior does not fit mean and covariance: fourth[0, 0] holds the second moments of "
                "(1, x). Give the mean and covariance of the same law."
            )
        values = np.linalg.eigvalsh(pairs_of_tensor(eta, fourth))
        if values[0] < -1e-6 * abs(values[-1]):
            raise FitError(
                "fourth of gibbs-prior belongs to no law with this mean and covariance: products of features would "
                "have negative variances. Compute all three from the same law or sample."
            )
        return fourth


def moments_from_bounds(problem: Problem) -> tuple[Floats, Floats]:
    """Mean and covariance of columns that are independent and uniform over what the study lets them hold."""
    d = len(problem.units.names)
    if problem.study is None:
        return np.zeros(d), np.eye(d) / 3.0
    mean, covariance, i = np.zeros(d), np.zeros((d, d)), 0
    for column in problem.study.features:
        if column.kind == "categorical":
            levels = len(column.levels)
            here = slice(i, i + levels - 1)
            mean[here] = 1.0 / levels
            covariance[here, here] = np.eye(levels - 1) / levels - 1.0 / levels**2
            i += levels - 1
        else:
            covariance[i, i] = 1.0 if column.kind == "boolean" else 1.0 / 3.0
            i += 1
    return mean, covariance


def check(problem: Problem, method: str, sums: str) -> None:
    """What can't be sampled, said before anything is compiled."""
    if problem.u is None:
        raise FitError(
            f"{method} needs y'y, and these releases do not have it. Use a study with release_yy = true, or a method "
            "that can do without: fixed-s, normal-x, exact."
        )
    noisy = _noisy(problem)
    for j in np.flatnonzero(~noisy):
        joint = np.block([[problem.S[j], problem.z[j][:, None]], [problem.z[j], problem.u[j]]])
        values = np.linalg.eigvalsh(joint)
        if values[0] < -1e-9 * abs(values[-1]):
            raise FitError(
                f"{_name(problem, j)} has statistics without noise that no table can have: S, z and y'y together are "
                "not positive semi-definite. Look for a mistake in how they were made."
            )
    least = problem.order + 1
    for j in np.flatnonzero(problem.public_n < least) if sums == "exact" else ():
        raise FitError(
            f"{_name(problem, j)} has {problem.public_n[j]:g} rows; sums='exact' with {problem.order} coefficients "
            f"needs at least {least} from each holder, or they have no density. Leave it out, or use method 'exact'."
        )


def _noisy(problem: Problem) -> NDArray[np.bool_]:
    """Which holders have noise on any sum but n."""
    first = int(problem.units.constant)
    any_S = problem.sd_S[:, :, first:].any(axis=(1, 2))
    return np.asarray(any_S | problem.sd_z.any(axis=1) | (problem.sd_u > 0.0))


def _name(problem: Problem, j: np.intp) -> str:
    return f"Holder {problem.holders[j]!r}" if problem.holders[j] else f"Release {j + 1}"


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
        raise FitError(f"{name} is {value!r}; it is a positive number.")


def _numbers(name: str, value: ArrayLike, shapes: tuple[tuple[int, ...], ...], words: str) -> Floats:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise FitError(f"{name} of gibbs-prior is {value!r}; it is {words}, all finite.") from None
    if array.shape not in shapes or not np.isfinite(array).all():
        raise FitError(f"{name} of gibbs-prior has shape {array.shape}; it is {words}, all finite.")
    return np.ascontiguousarray(array)
