"""Laws of features: what the rows of a trial are drawn from, (J, n, d) in scaled units."""

import csv
import os
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import invwishart, norm

import noisewise as nw
from noisewise.gram import Floats

# normal: mu ~ N(0, I), Sigma ~ inverse-Wishart(0.2 I, d + 2), the prior of every method that learns them (mu = 0
# without an intercept); known: N(0, I/3), which gibbs-prior takes for granted; bounds: the prior of weak covariates;
# the others are nobody's. A law's place here is part of its trials' seeds.
COVARIATES = (
    *("normal", "known", "uniform", "bernoulli", "lognormal", "narrow", "correlated", "real"),
    *("bounds", "differing"),
)
SCATTER = 0.2
TABLES = ("abalone", "air_quality", "bike_sharing", "power_plant", "wine_red", "wine_white")
PLAIN = 12  # above so many features, products of a table's columns are taken, too
WIDEST = 1.5  # beyond the walls of weak covariates


def draw_rows(study: nw.Study, J: int, n: int, covariates: str, rng: np.random.Generator) -> Floats:
    shape = (J, n, study.d)
    match covariates:
        case "normal":
            return _normal(study, shape, rng)
        case "known":
            return np.sqrt(1.0 / 3.0) * rng.standard_normal(shape)
        case "uniform":
            return rng.uniform(-1.0, 1.0, shape)
        case "bernoulli":
            return np.where(rng.random(shape) < 0.3, 1.0, -1.0)
        case "lognormal":  # clipped to bounds of 0 and 5
            return np.minimum(rng.lognormal(size=shape), 5.0) / 2.5 - 1.0
        case "narrow":  # bounds that are six standard deviations away
            return 2.0 * rng.beta(20.0, 20.0, shape) - 1.0
        case "correlated":  # uniform columns, each pair's normal scores correlated by 0.9
            common = rng.standard_normal((J, n, 1))
            return np.asarray(2.0 * norm.cdf(np.sqrt(0.9) * common + np.sqrt(0.1) * rng.standard_normal(shape)) - 1.0)
        case "differing":  # uniform on a part of the bounds, another for each holder and column
            middle, half = rng.uniform(-0.5, 0.5, (J, 1, study.d)), rng.uniform(0.1, 0.5, (J, 1, study.d))
            return np.asarray(middle + half * rng.uniform(-1.0, 1.0, shape))
        case "real":
            return _real(shape, rng)
        case "bounds":
            return _weak(study, shape, rng)
        case _:
            raise ValueError(f"{covariates!r} is none of {', '.join(COVARIATES)}.")


def _normal(study: nw.Study, shape: tuple[int, int, int], rng: np.random.Generator) -> Floats:
    d = study.d
    mu = rng.standard_normal(d) if study.intercept else np.zeros(d)
    Sigma = np.atleast_2d(invwishart(d + 2, SCATTER * np.eye(d)).rvs(random_state=rng))
    return np.asarray(mu + rng.standard_normal(shape) @ np.linalg.cholesky(Sigma).T)


def _real(shape: tuple[int, int, int], rng: np.random.Generator) -> Floats:
    """Rows and columns picked at random from a table picked at random, products of columns with them if d is large."""
    tables = [_real_table(os.environ.get("NOISEWISE_DATA", ""), name, shape[2] > PLAIN) for name in TABLES]
    tables = [table for table in tables if table.shape[1] >= shape[2]]
    table = tables[rng.integers(len(tables))]
    columns = rng.choice(table.shape[1], shape[2], replace=False)
    wanted = shape[0] * shape[1]
    return table[rng.choice(len(table), wanted, replace=wanted > len(table))][:, columns].reshape(shape)


@cache
def _real_table(folder: str, name: str, products: bool) -> Floats:
    """Its features, clipped to the public bounds that stand beside it; the products of each two follow."""
    if not folder:
        raise SystemExit("Set NOISEWISE_DATA to the folder of the real tables and of bounds.csv.")
    with (Path(folder) / "bounds.csv").open(newline="") as file:
        bounds = [row for row in csv.DictReader(file) if row["dataset"] == name and row["role"] == "feature"]
    table = np.genfromtxt(Path(folder) / f"{name}.csv", delimiter=",", names=True)
    lower, upper = (np.array([float(row[end]) for row in bounds]) for end in ("lower", "upper"))
    raw = np.column_stack([table[row["column"]] for row in bounds])
    table = np.clip((2.0 * raw - lower - upper) / (upper - lower), -1.0, 1.0)
    first, second = np.triu_indices(table.shape[1] if products else 0)
    return np.hstack([table, table[:, first] * table[:, second]])


def _weak(study: nw.Study, shape: tuple[int, int, int], rng: np.random.Generator) -> Floats:
    """Normal rows with the mean and covariance that the prior of weak covariates gave."""
    d = study.d
    while True:
        mean = rng.uniform(-WIDEST, WIDEST, d) if study.intercept else np.zeros(d)
        sd = rng.uniform(0.0, WIDEST, d)
        moments = mean**2 + sd**2
        if np.log(rng.random()) < -0.5 * ((moments**8).sum() + moments.mean() ** 8):
            break
    # the correlations of inverse-Wishart(I, d + 1) are each uniform (Barnard, McCulloch and Meng 2000)
    scores = rng.standard_normal((d + 1, d))
    factor = np.linalg.cholesky(np.linalg.inv(scores.T @ scores))
    factor *= (sd / np.linalg.norm(factor, axis=1))[:, None]
    return np.asarray(mean + rng.standard_normal(shape) @ factor.T)
