r"""gibbs-noisy (002, section 3.4.4): the features' fourth moments come from the releases, noise and all.

The second moments are the released S over n, the third and fourth those of the block that ``fourth_moments`` adds,
all holders together. Noise makes them moments that no law has: variances of products would be negative. So they are
replaced by the nearest that one can have. Let T_ijkl = E[b_i b_j b_k b_l], b = (1, x), as a matrix over pairs (ij),
(kl). It is

  - symmetric under every order of the four indices, 1 at 0000, and within [-1, 1] as the bounds are;
  - positive semi-definite, for it is E[vv'] with v = bb' written as a vector.

Both sets are convex, and Dykstra's alternating projections converge to the nearest point of both in the norm of
tensors, in which the noise of the block is isotropic; what little they leave is mended by a step towards uniform
columns. Without an intercept moments of odd degree are neither needed nor released and are 0 in T. As in 002, what is
left of the noise in the moments is not counted in the posterior.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import ClassVar

import numpy as np

from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.methods.gibbs import GibbsSS, check
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.errors import FitError
from noisewise.gram import Floats

SWEEPS = 1000
TOLERANCE = 1e-7
# A variance that noise or a constant column has made 0 still needs a factor.
LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class GibbsNoisy(GibbsSS):
    """Fourth moments of the features from the releases; the study must have ``fourth_moments``."""

    _normal: ClassVar[str] = (
        "The sums were taken as normal with the moments that the releases give; noise in those moments is not counted."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sums != "normal":
            raise FitError("gibbs-noisy takes the sums as normal; sums='exact' is for gibbs-update and gibbs-prior.")

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        from noisewise.analyst.methods.gibbs.model import Covariates

        if problem.fourth is None:
            raise FitError(
                "gibbs-noisy needs third and fourth moments, and these releases do not have them. Use a study with "
                "fourth_moments = 0.3 (their share of the budget), or gibbs-update, which does without."
            )
        check(problem, "gibbs-noisy", self.sums)
        first = 0 if problem.units.constant else 1
        T = possible_moments(released_moments(problem), odd=problem.units.constant)
        mean = T[0, 0, 0, 1:]
        covariance = T[0, 0, 1:, 1:] - np.outer(mean, mean)
        values, vectors = np.linalg.eigh(covariance)
        d = mean.size
        fixed = Covariates(
            update=False,
            shared=True,
            mu=mean,
            covariance=(vectors * np.maximum(values, LEAST_VARIANCE)) @ vectors.T,
            scatter=np.eye(d),
            freedom=float(d),
            mean=mean,
            mean_precision=np.ones(d),
            strength=0.0,
            fourth=np.ascontiguousarray(T[first:, first:, first:, first:]),
        )
        return self._run(problem, prior, run, fixed)


def released_moments(problem: Problem) -> Floats:
    """T as released, by all holders together: (d + 1,) * 4, with 0 where a degree is odd and nothing was released."""
    if problem.fourth is None:
        raise AssertionError("checked before")
    d, n = len(problem.units.names), max(float(problem.n.sum()), 1.0)
    T = np.zeros((d + 1,) * 4)
    known = dict(zip(problem.fourth.entries, problem.fourth.values.sum(axis=0) / n, strict=True))
    S, first = problem.S.sum(axis=0) / n, 0 if problem.units.constant else 1
    for i, j in combinations_with_replacement(range(first, d + 1), 2):
        known[(0, 0, i, j)] = S[i - first, j - first]
    known[(0, 0, 0, 0)] = 1.0
    for index in np.ndindex(T.shape):
        T[index] = known.get(tuple(sorted(index)), 0.0)
    return T


def possible_moments(T: Floats, *, odd: bool) -> Floats:
    """The nearest moments to T that a law on [-1, 1]^d can have, as far as the matrix of T tells.

    ``odd=False``: moments of odd degree are taken for 0.
    """
    order, shape = T.shape[0] ** 2, T.shape
    orbit = np.unique(np.sort(np.indices(shape).reshape(4, -1), axis=0), axis=1, return_inverse=True)[1].ravel()
    size = np.bincount(orbit)
    absent = (np.indices(shape) > 0).sum(axis=0).ravel() % 2 == 1 if not odd else []

    def symmetric(M: Floats) -> Floats:
        means = np.clip(np.bincount(orbit, M.ravel()) / size, -1.0, 1.0)[orbit]
        means[absent] = 0.0
        means[0] = 1.0
        return np.asarray(means.reshape(order, order))

    def semidefinite(M: Floats) -> Floats:
        values, vectors = np.linalg.eigh(M)
        return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)

    now, left, right = T.reshape(order, order), np.zeros((order, order)), np.zeros((order, order))
    for _ in range(SWEEPS):
        near = symmetric(now + left)
        left += now - near
        now = semidefinite(near + right)
        right += near - now
        if np.abs(now - near).max() < TOLERANCE:
            break
    return _inwards(near.reshape(shape))


def _inwards(T: Floats) -> Floats:
    """What alternation has left of negative eigenvalues is mended by a short step towards uniform columns.

    If T has smallest eigenvalue -a and the uniform law's moments U have c > 0, (1 - t) T + t U has none below 0 for
    t = a / (a + c), by Weyl.
    """
    i, j = np.triu_indices(T.shape[0])
    uniform = np.empty_like(T)
    for index in np.ndindex(T.shape):
        powers = np.bincount(index, minlength=T.shape[0])[1:]
        uniform[index] = 0.0 if (powers % 2).any() else np.prod(1.0 / (powers + 1.0))
    least, inner = (np.linalg.eigvalsh(M[i[:, None], j[:, None], i, j])[0] for M in (T, uniform))
    step = max(-least, 0.0) / (max(-least, 0.0) + inner)
    return np.asarray((1.0 - step) * T + step * uniform)
