"""The constants of one fit of ``exact`` as one array of numbers, so that machine code compiled once serves every shape.

The vector of unknowns x is laid out as: theta (p), log v (1); for each covariate distribution R row by row and mu
(where there is a constant); for each holder n (where noisy), its factor K, w, log rss (where u is released). Those that
all holders share (the first ``rotated``) may be seen through an affine map, learned from a pilot run.
"""

from typing import NamedTuple

import numpy as np

from noisewise.analyst.methods.exact.compile import compiled
from noisewise.gram import Floats


class Model(NamedTuple):
    """``first`` is 1 with a constant, ``d = p - first``; sds carry the noise law in their sign (``noise``)."""

    p: int
    first: int
    J: int
    blocks: int  # distributions of covariates that are learned: 1 shared, J apart, 0 where nothing is
    block_size: int
    weak: int
    has_u: int
    log_v0: float
    scale_v: float
    shape: float
    scale: float
    kappa: float
    largest_moment: float
    largest_trace: float
    d: int
    centred: float  # how far theta_0 is that of centred features (``regression``): 0 not, 1 wholly
    softness: float  # over how many of its scales Laplace noise has its kink rounded; 0: it is kept
    rotated: int  # how many unknowns at the front of x the metric below mixes; 0: none
    theta0: Floats  # (p,)
    factor_theta: Floats  # (p, p) lower triangular: theta = theta0 + factor x
    prior_mean: Floats  # (p,)
    prior_precision: Floats  # (p, p)
    factor_Lambda: Floats  # (d, d) lower triangular
    mean_mu: Floats  # (d,)
    precision_mu: Floats  # (d,)
    K0: Floats  # (blocks, d, d): where the covariance is; with weak covariates their log variances and directions
    scale_R: Floats  # (blocks, d, d)
    mu0: Floats  # (blocks, d)
    factor_mu: Floats  # (blocks, d, d)
    n: Floats  # (J,) and so on
    noisy_n: Floats
    sd_n: Floats
    low_n: Floats
    centre_n: Floats
    rank: Floats
    u: Floats
    sd_u: Floats
    has_rss: Floats
    log_rss: Floats
    pull_rss: Floats
    scale_rss: Floats
    z: Floats  # (J, p) and so on
    sd_z: Floats
    w: Floats
    pull_w: Floats
    scale_w: Floats
    S: Floats  # (J, p, p) and so on
    sd_S: Floats
    K: Floats  # where the data put K (its diagonal, normal covariates: log T there, given its pull and L = 1)
    pull_K: Floats
    scale_K: Floats
    start: Floats  # (J,): where holder j's unknowns start in x, and their parts
    at_factor: Floats
    at_w: Floats
    at_rss: Floats
    centre: Floats  # (rotated,)
    rotation: Floats  # (rotated, rotated) lower triangular


# Where each field is, for compiled code: the names of Model in its order.
(
    P,
    FIRST,
    J,
    BLOCKS,
    BLOCK_SIZE,
    WEAK,
    HAS_U,
    LOG_V0,
    SCALE_V,
    SHAPE,
    SCALE,
    KAPPA,
    LARGEST_MOMENT,
    LARGEST_TRACE,
    D,
    CENTRED,
    SOFTNESS,
    ROTATED,
    THETA0,
    FACTOR_THETA,
    PRIOR_MEAN,
    PRIOR_PRECISION,
    FACTOR_LAMBDA,
    MEAN_MU,
    PRECISION_MU,
    K0,
    SCALE_R,
    MU0,
    FACTOR_MU,
    N,
    NOISY_N,
    SD_N,
    LOW_N,
    CENTRE_N,
    RANK,
    U,
    SD_U,
    HAS_RSS,
    LOG_RSS,
    PULL_RSS,
    SCALE_RSS,
    Z,
    SD_Z,
    W,
    PULL_W,
    SCALE_W,
    S,
    SD_S,
    K,
    PULL_K,
    SCALE_K,
    START,
    AT_FACTOR,
    AT_W,
    AT_RSS,
    CENTRE,
    ROTATION,
) = range(len(Model._fields))
SCALARS = 18


def pack(model: Model) -> Floats:
    """Its length; each number, or where each array starts; the arrays."""
    arrays = [np.asarray(value, dtype=float).ravel() for value in model[SCALARS:]]
    starts = 1 + len(model) + np.concatenate([[0], np.cumsum([array.size for array in arrays])])
    head = [float(starts[-1]), *(float(value) for value in model[:SCALARS])]
    return np.concatenate([head, starts[:-1], *arrays])


@compiled
def number(data: Floats, field: int) -> float:
    """One of the model's numbers."""
    return float(data[1 + field])


@compiled
def whole(data: Floats, field: int) -> int:
    """One of the model's whole numbers."""
    return int(data[1 + field])


@compiled
def item(data: Floats, field: int, j: int) -> float:
    """Number j of a vector."""
    return float(data[int(data[1 + field]) + j])


@compiled
def place(data: Floats, field: int, j: int, size: int) -> int:
    """Where part j of an array of parts of this size starts: an inner loop's view would cost more than its sums."""
    return int(data[1 + field]) + j * size


@compiled
def vector(data: Floats, field: int, j: int, size: int) -> Floats:
    """Row j of a stack of vectors: a view."""
    at = place(data, field, j, size)
    return data[at : at + size]


@compiled
def matrix(data: Floats, field: int, j: int, size: int) -> Floats:
    """Matrix j of a stack of square ones: a view."""
    at = place(data, field, j, size * size)
    return data[at : at + size * size].reshape((size, size))
