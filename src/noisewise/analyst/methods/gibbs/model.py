"""What a chain of gibbs-update or gibbs-prior is given, carries, and scribbles on."""

from typing import NamedTuple

import numpy as np

from noisewise.analyst.methods.gibbs.dense import Dense
from noisewise.analyst.methods.gibbs.moments import Indices
from noisewise.analyst.methods.gibbs.spectral import Basis, Turned
from noisewise.gram import Floats

EXACT, SPECTRAL, DENSE = 0, 1, 2  # how a holder's sums are drawn


class Covariates(NamedTuple):
    """What is believed, or learned, of the rows' features; see ``Model``."""

    update: bool
    shared: bool
    mu: Floats
    covariance: Floats
    scatter: Floats
    freedom: float
    mean: Floats
    mean_precision: Floats
    strength: float
    fourth: Floats | None


class Model(NamedTuple):
    """Everything that a chain does not change; k = order + 1 is the order of B, d the number of features."""

    constant: int
    n: Floats  # (J,)
    B: Floats  # (J, k, k), as published
    scales: Floats  # (J, entries): the noise's standard deviation; for Laplace noise its scale b
    way: Indices  # (J,)
    block: Indices  # (J,): which distribution of covariates
    entries: Indices  # (entries, 2)
    laplace: bool
    wishart: bool  # correct the normal law of the sums to the exact one
    tries: int
    prior_mean: Floats
    prior_precision: Floats
    shape: float
    scale: float
    update: bool  # learn mu and Sigma
    mu: Floats  # (blocks, d): the fixed values, or where to start
    factor: Floats  # (blocks, d, d), lower triangular
    scatter: Floats  # (d, d), of the inverse-Wishart prior
    freedom: float
    mean: Floats  # (d,), of mu
    mean_precision: Floats  # (d,), or
    strength: float  # mu | Sigma ~ N(mean, Sigma / strength) where this is positive
    general: bool  # moments that are not a normal law's
    eta: Floats
    xi: Floats
    root_eta: Floats
    root_xi: Floats


class Row(NamedTuple):
    """The law of a row (x, y) in one block."""

    m: Floats
    L: Floats
    Omega: Floats
    basis: Basis


class State(NamedTuple):
    """What the chain carries."""

    B: Floats  # (J, k, k), the sums
    variances: Floats  # (J, entries): of the noise; the mixing variances where it is Laplace noise
    mu: Floats  # (blocks, d)
    factor: Floats  # (blocks, d, d): of Sigma
    theta: Floats  # (p,)
    v: Floats  # (1,)
    begun: Floats  # (J,): 1 once the sums agree with the entries that are exact
    possible: Floats  # (J,): draws after warm-up that were possible sums, and that were taken
    taken: Floats  # (J,)
    sweeps: Floats  # (2,): made in warm-up, and after it


class Work(NamedTuple):
    """Scratch."""

    row: Row
    turned: Turned
    dense: Dense
    total: Floats  # (k, k)
    proposal: Floats  # (k, k)
    new: Floats  # (q, q)
    old: Floats  # (q, q)
    C: Floats  # (q, q)
    T: Floats  # (d, d)
    F: Floats  # (d, d)
    P: Floats  # (p, p)
    pull: Floats  # (p,)


def workspace(model: Model) -> Work:
    k, first = model.B.shape[1], model.constant
    p, q, d = k - 1, k - first, k - first - 1
    size = len(model.entries) if (model.way == DENSE).any() else 0

    def square(order: int) -> Floats:
        return np.zeros((order, order))

    basis = Basis(np.zeros(q), square(q), np.zeros(q))
    return Work(
        row=Row(np.zeros(k), square(q), square(q), basis),
        turned=Turned(square(q), np.zeros(q), np.zeros(q), square(q), square(q), square(q)),
        dense=Dense(square(size), square(size), np.zeros(size), np.zeros(size), square(q), square(q), np.zeros(q)),
        total=square(k),
        proposal=square(k),
        new=square(q),
        old=square(q),
        C=square(q),
        T=square(d),
        F=square(d),
        P=square(p),
        pull=np.zeros(p),
    )
