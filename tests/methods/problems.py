"""Small problems with known parts, for the tests of the methods, and what the tests compare."""

import ctypes
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray

from noisewise.analyst.diagnostics import import_arviz
from noisewise.analyst.methods.base import Draws
from noisewise.analyst.methods.exact.entry import Entry
from noisewise.analyst.methods.exact.layout import Model, pack
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior, ScaledPrior
from noisewise.analyst.units import Units
from noisewise.gram import Floats

Law = Literal["gaussian", "laplace", "none"]


def units(d: int, constant: bool) -> Units:
    return Units(tuple(f"x{i + 1}" for i in range(d)), (0.0,) * d, (1.0,) * d, "y", 0.0, 1.0, constant)


def make(
    d: int = 2,
    n: tuple[int, ...] = (300, 300),
    noise: float = 10.0,
    law: Law = "gaussian",
    constant: bool = True,
    u: bool = True,
    noise_n: float = 0.0,
    seed: int = 0,
) -> Problem:
    """Noisy statistics of normal rows."""
    rng = np.random.default_rng(seed)
    A = 0.3 * rng.standard_normal((d, d))
    Sigma, mu, theta = A @ A.T + 0.05 * np.eye(d), rng.uniform(-0.3, 0.3, d), 0.5 * rng.standard_normal(d + constant)
    grams = []
    for rows in n:
        x = rng.multivariate_normal(mu * constant, Sigma, rows)
        b = np.column_stack([np.ones(rows), x]) if constant else x
        w = np.column_stack([b, b @ theta + 0.3 * rng.standard_normal(rows)])
        e = (
            rng.standard_normal((2, d + constant + 1, d + constant + 1))
            if law != "laplace"
            else rng.laplace(0, np.sqrt(0.5), (2, d + constant + 1, d + constant + 1))
        )
        noisy = w.T @ w + noise * (np.tril(e[0]) + np.tril(e[0], -1).T)
        count = rows + noise_n * e[1, 0, 0]
        if constant:
            noisy[0, 0] = count
        grams.append((count, noisy))
    return problem_of(grams, noise, law, constant, u, noise_n)


def problem_of(grams: list[Any], noise: float, law: Law, constant: bool, u: bool, noise_n: float) -> Problem:
    p, J = grams[0][1].shape[0] - 1, len(grams)
    sd_S = np.full((J, p, p), noise)
    if constant:
        sd_S[:, 0, 0] = noise_n
    matrices = np.stack([matrix for _, matrix in grams])
    return Problem(
        units=units(p - constant, constant),
        study=None,
        holders=tuple(f"h{j}" for j in range(J)),
        law="none" if noise == 0 else law,
        n=np.array([float(count) for count, _ in grams]),
        S=matrices[:, :p, :p],
        z=matrices[:, :p, p],
        u=matrices[:, p, p] if u else None,
        sd_n=np.full(J, noise_n),
        sd_S=sd_S,
        sd_z=np.full((J, p), noise),
        sd_u=np.full(J, noise if u else 0.0),
    )


def scaled(problem: Problem, prior: Prior | None = None) -> ScaledPrior:
    return (prior or Prior()).in_scaled_units(problem.units)


def unknowns(result: Draws) -> Floats:
    """(chains, draws, p + 1): theta and log v."""
    return np.concatenate([result.theta, np.log(result.variance)[..., None]], axis=2)


class Moments(NamedTuple):
    """Means with their Monte Carlo standard errors."""

    mean: Floats
    error: Floats


def moments(values: Floats) -> Moments:
    """Of (chains, draws, quantities): means of each quantity and its square, with Monte Carlo standard errors."""
    both = np.concatenate([values, values**2], axis=2)
    data = xarray.Dataset({"values": (("chain", "draw", "moment"), both)})
    return Moments(both.mean(axis=(0, 1)), import_arviz().mcse(data)["values"].to_numpy())


FAR = 5.5  # standard errors; a sound method passes them with probability 4e-8


class Density:
    """A compiled density as the sampler calls it, its shared unknowns seen through some map."""

    def __init__(self, code: Entry, model: Model, size: int) -> None:
        shared = model.p + 1 + model.blocks * model.block_size
        rng = np.random.default_rng(5)
        rotation = np.eye(shared) + 0.1 * np.tril(rng.standard_normal((shared, shared)))
        model = model._replace(rotated=shared, centre=0.1 * rng.standard_normal(shared), rotation=rotation)
        self.code, self.data, self.size = code, pack(model), size

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        numbers = ctypes.POINTER(ctypes.c_double)
        grad, log_p = np.empty_like(x), np.empty(1)
        code = self.code.density.ctypes(
            x.size,
            x.ctypes.data_as(numbers),
            grad.ctypes.data_as(numbers),
            log_p.ctypes.data_as(numbers),
            self.data.ctypes.data,
        )
        assert code == 0
        return float(log_p[0]), grad

    def check_gradient(self) -> None:
        x = 0.4 * np.random.default_rng(1).standard_normal(self.size)
        _, grad = self(x)
        step = 1e-5 * np.eye(self.size)
        numerical = np.array([(self(x + h)[0] - self(x - h)[0]) / 2e-5 for h in step])
        np.testing.assert_allclose(grad, numerical, rtol=1e-5, atol=1e-5 * (1 + np.abs(grad).max()))
