"""Tables drawn from the full model: parameters from a prior, features over their bounds, the target given both.

Everything is in scaled units until ``to_table`` maps it back to a study's columns. Features are independent: numbers
uniform over their bounds, booleans and levels with equal odds. The target is normal given the features, so a few of its
values may lie beyond the study's bounds; a holder clips them, as it would clip real ones.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.prior import Prior
from noisewise.analyst.units import Units
from noisewise.gram import Floats
from noisewise.study import Study

Table = dict[str, NDArray[Any]]


class Parameters(NamedTuple):
    """A regression in the user's units."""

    intercept: float
    coef: Floats
    sigma: float


@dataclass(frozen=True, eq=False)
class Truth:
    """The parameters that a simulation starts from, in scaled units; theta has the constant first if there is one."""

    theta: Floats
    residual_variance: float

    def in_user_units(self, study: Study) -> Parameters:
        """The same regression as a posterior reports it."""
        units = Units.of_study(study)
        mapped = units.to_user(self.theta)
        sigma = float(np.sqrt(self.residual_variance)) * units.target_half_width
        return Parameters(float(mapped[0]), mapped[1:], sigma)

    @classmethod
    def from_user_units(cls, study: Study, parameters: Parameters) -> "Truth":
        """The inverse of ``in_user_units``; without an intercept in the model the intercept given is not used."""
        units = Units.of_study(study)
        slopes = np.asarray(parameters.coef, dtype=float) * np.array(units.half_widths) / units.target_half_width
        centred = parameters.intercept + float(np.dot(parameters.coef, units.centres)) - units.target_centre
        theta = np.concatenate([[centred / units.target_half_width], slopes]) if study.intercept else slopes
        return cls(theta, (parameters.sigma / units.target_half_width) ** 2)


def draw_truth(study: Study, rng: np.random.Generator, prior: Prior | None = None) -> Truth:
    """Parameters from the prior: theta normal, the residual variance inverse-gamma."""
    scaled = (prior or Prior()).in_scaled_units(Units.of_study(study))
    theta = rng.multivariate_normal(scaled.mean, scaled.covariance, method="cholesky")
    return Truth(theta, scaled.scale / rng.gamma(scaled.shape))


def draw_features(study: Study, n: int, rng: np.random.Generator) -> Floats:
    """n rows of encoded features in scaled units, (n, d)."""
    parts: list[Floats] = []
    for column in study.features:
        if column.kind == "numeric":
            parts.append(rng.uniform(-1.0, 1.0, (n, 1)))
        elif column.kind == "boolean":
            parts.append(rng.choice([-1.0, 1.0], (n, 1)))
        else:
            others = [level for level in column.levels if level != column.baseline]
            # one more code than indicators: the last is the baseline, whose indicators are all 0
            parts.append(np.eye(len(others) + 1)[rng.integers(len(others) + 1, size=n), : len(others)])
    return np.hstack(parts)


def feature_moments(study: Study) -> Floats:
    """E[bb'], b = (1, x), of rows that ``draw_features`` draws, exactly."""
    columns = {column.name: column for column in study.features}
    mean, square = [1.0], [1.0]
    for feature in study.encoded:
        column = columns[feature.column]
        share = 1.0 / len(column.levels) if column.kind == "categorical" else 0.0
        mean.append(share)
        square.append(share or (1.0 if column.kind == "boolean" else 1.0 / 3.0))
    moments = np.outer(mean, mean)
    of = np.array([feature.column for feature in study.encoded])
    moments[1:, 1:][of[:, None] == of[None, :]] = 0.0  # two levels of one column are never both 1
    np.fill_diagonal(moments, square)
    return moments


def draw_target(x: Floats, truth: Truth, rng: np.random.Generator) -> Floats:
    """The target given encoded features, in scaled units."""
    constant = truth.theta.size - x.shape[1]
    mean = x @ truth.theta[constant:] + (truth.theta[0] if constant else 0.0)
    return np.asarray(mean + np.sqrt(truth.residual_variance) * rng.standard_normal(len(x)))


def to_table(study: Study, x: Floats, y: Floats) -> Table:
    """Scaled rows as the columns that a holder of this study has."""
    table: Table = {}
    names = [feature.name for feature in study.encoded]
    for column in study.features:
        if column.kind == "categorical":
            others = [level for level in column.levels if level != column.baseline]
            first = names.index(f"{column.name}[{others[0]}]")
            indicators = x[:, first : first + len(others)]
            code = np.where(indicators.any(axis=1), indicators.argmax(axis=1), len(others))
            table[column.name] = np.array([*others, column.baseline])[code]
        else:
            values = x[:, names.index(column.name)]
            table[column.name] = values > 0 if column.kind == "boolean" else column.centre + column.half_width * values
    table[study.target.name] = study.target.centre + study.target.half_width * y
    return table


def draw_table(study: Study, n: int, truth: Truth, rng: np.random.Generator) -> Table:
    """A holder's table of n rows under these parameters."""
    x = draw_features(study, n, rng)
    return to_table(study, x, draw_target(x, truth, rng))
