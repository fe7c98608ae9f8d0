"""A cell: one method at one size, under one law of noise and of covariates. Trials of a cell depend on it alone."""

import re
from functools import cache
from typing import NamedTuple

import numpy as np

import noisewise as nw
from experiments.sbc.fits import effort_of, fit, in_words
from experiments.sbc.rows import COVARIATES
from experiments.sbc.simulate import Simulated, simulate
from noisewise.evaluation.calibration import covered, rank_of

RANKED = 99  # draws that a true value is ranked among, so ranks are 0 ... 99
LEVEL = 0.95
DELTA = 1e-5
FOURTH = 0.3  # the share of the budget that gibbs-noisy spends on fourth moments
LAWS = ("gaussian", "laplace")


class Cell(NamedTuple):
    """J holders of n rows each."""

    method: str
    n: int
    epsilon: float
    d: int
    intercept: bool
    J: int = 1
    law: str = "gaussian"
    covariates: str = "normal"

    @property
    def shape(self) -> str:
        return f"{self.d}{' + intercept' if self.intercept else ''}"

    @property
    def name(self) -> str:
        shape = f"{self.d}{'c' if self.intercept else ''}"
        return f"{self.method}/n{self.n}_e{self.epsilon:g}_d{shape}_J{self.J}_{self.law}_{self.covariates}"

    @classmethod
    def named(cls, name: str) -> "Cell":
        found = re.fullmatch(r"([\w-]+)/n(\d+)_e([\d.e+-]+)_d(\d+)(c?)_J(\d+)_(\w+)_(\w+)", name)
        if not found:
            raise ValueError(f"{name!r} is not the name of a cell.")
        method, n, epsilon, d, constant, J, law, covariates = found.groups()
        return cls(method, int(n), float(epsilon), int(d), bool(constant), int(J), law, covariates)

    @property
    def settings(self) -> str:
        effort = effort_of(self.method, self.n, self.epsilon)
        return f"{in_words(effort)}; ranks among {RANKED}, held: {LEVEL:.0%} intervals"

    @property
    def quantities(self) -> tuple[str, ...]:
        return (*(("intercept",) if self.intercept else ()), *(f"slope {i + 1}" for i in range(self.d)), "v")

    def data(self, number: int) -> tuple[Simulated, np.random.SeedSequence]:
        """What every method of the same size is given (gibbs-noisy more, with more noise), and a seed for sampling."""
        kinds = [LAWS.index(self.law), COVARIATES.index(self.covariates)]
        size = [self.n, round(1000 * self.epsilon), self.d, int(self.intercept), self.J]
        rows, sampling = np.random.SeedSequence([number, *size, *kinds]).spawn(2)
        study = study_of(self.d, self.intercept, self.epsilon, self.law, self.method == "gibbs-noisy")
        return simulate(study, self.n, self.J, self.covariates, np.random.default_rng(rows)), sampling

    def trial(self, number: int) -> dict[str, object]:
        """Ranks of the truth, whether intervals hold it (a digit each), and how the sampler fared."""
        simulated, seed = self.data(number)
        fitted = fit(effort_of(self.method, self.n, self.epsilon), simulated, seed)
        draws = fitted.draws.reshape(-1, fitted.draws.shape[2])
        thinned = draws[np.linspace(0, len(draws) - 1, RANKED).round().astype(int)]
        held = covered(simulated.truth, draws, LEVEL)
        return {
            **dict(zip(self.quantities, rank_of(simulated.truth, thinned).tolist(), strict=True)),
            "held": "".join("1" if one else "0" for one in held),
            "sd": f"{draws.std(axis=0)[int(self.intercept) : -1].mean():.3g}",
            "effective": round(fitted.effective),
            "divergences": fitted.divergences,
            "seconds": f"{fitted.seconds:.2g}",
        }


@cache
def study_of(d: int, intercept: bool, epsilon: float, law: str, fourth: bool) -> nw.Study:
    columns = [nw.Column(f"x{i + 1}", -1, 1) for i in range(d)]
    delta = DELTA if law == "gaussian" else None
    return nw.Study(
        columns,
        nw.Column("y", -1, 1),
        epsilon=epsilon,
        delta=delta,
        mechanism=law,
        intercept=intercept,
        fourth_moments=FOURTH if fourth else 0.0,
    )
