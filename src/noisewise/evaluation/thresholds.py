r"""Where to cut columns: projection thresholds chosen on simulated rows alone (001, Algorithm 2, step 3).

Narrow bounds cut values, which bends the regression; wide ones need more noise. Which is worse depends on the number of
rows, the noise and where the columns lie in their bounds: all public. So tables are simulated (001, (4)-(6)):

- the mean of each column as it could be, given what was released of it and its noise;
- numbers x ~ N(mean, sd^2) with the released sd, booleans and levels with their shares;
- coefficients of standardised features ~ N(0, r/d), residual variance 1 - r, y standardised. Half of its variance is
  explained, r = 1/2 (the paper has r = d / (d + 1), which few data sets reach).

For every pair of multiples (t_x, t_y) the rows are cut as a holder would cut them, at the *released* mean +- t sd, and
get the noise that the study has. The posterior mean of fixed-s, residual variance known, then predicts new rows that
nobody cuts, as ``Posterior.predict`` does. The pair with the least error is chosen: the root of the mean squared error,
averaged over simulated tables. Among pairs that are as good, to a ten-thousandth, it is the one that cuts least.

*One pass.* In scaled units the noise is the same for all pairs, and S depends on t_x alone. So rows are gone through
once for every t_x, for all t_y together; the same rows, coefficients and standard noise serve every pair, so that
differences between pairs are due to them.

*Many rows.* At most ``POOL_ROWS`` are drawn and their sums multiplied by k = n / rows. What cutting does to S and z,
and the noise on them, are then as with n rows; only the sampling error of the rows themselves is sqrt(k) times too
large. With 4,000 rows it adds about d / 8000 of itself to the error, for all pairs alike, which does not move the
choice but where all pairs are about as good.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.model import nearest_psd
from noisewise.analyst.prior import Prior, ScaledPrior
from noisewise.analyst.units import Units
from noisewise.evaluation.planning import POOL_ROWS, RESIDUAL_SHARE
from noisewise.gram import Floats, Layout
from noisewise.privacy.calibration import plan_noise
from noisewise.study import Study

NEW_ROWS = 1000
TOLERANCE = 1e-4
# Multiples of the standard deviation: the paper's grid, 0.1 to 2, and on to where the bounds stay as they are.
GRID = (*(round(0.1 * i, 1) for i in range(1, 21)), 2.25, 2.5, 3.0, 3.5, 4.0, float("inf"))


class Thresholds(NamedTuple):
    """The chosen multiples of the standard deviation, and the simulated errors of all pairs, in sds of the target.

    ``errors[i, j]`` belongs to features cut at ``GRID[i]`` and the target at ``GRID[j]``; the last is no cut at all. An
    error of 1 is that of predicting the mean always.
    """

    features: float
    target: float
    errors: Floats

    @property
    def error(self) -> float:
        """Of the chosen pair."""
        return float(self.errors[GRID.index(self.features), GRID.index(self.target)])

    @property
    def error_uncut(self) -> float:
        """With the original bounds and the same noise."""
        return float(self.errors[-1, -1])


class Located(NamedTuple):
    """Where columns lie, in scaled units of the original study: encoded features first, the target last.

    ``noise`` has the standard deviations of the noise on the centres.
    """

    centre: Floats
    spread: Floats
    noise: Floats

    def cut(self, threshold: float) -> tuple[Floats, Floats]:
        """The bounds narrowed to a multiple of the spread, within [-1, 1]."""
        reach = threshold * self.spread
        return np.maximum(self.centre - reach, -1.0), np.minimum(self.centre + reach, 1.0)

    def truth(self, rng: np.random.Generator) -> "Located":
        """Where the columns could really lie."""
        centre = self.centre + self.noise * rng.standard_normal(self.centre.size)
        return self._replace(centre=np.clip(centre, -1.0, 1.0))


def choose_thresholds(
    study: Study, located: Located, n: float, *, factor: float = 1.0, repeats: int = 40, seed: int = 0
) -> Thresholds:
    """The pair for releases of ``study`` (its bounds not yet narrowed) over n rows in all.

    ``factor`` is the variance of the noise of all releases together over that of one.
    """
    rng = np.random.default_rng(seed)
    plan = plan_noise(study)
    entries = len(Layout.of(study).pairs)
    scales = np.sqrt(factor) * np.array(plan.scales[:entries])
    prior = Prior().in_scaled_units(Units.of_study(study))
    total = np.zeros((len(GRID), len(GRID)))
    for _ in range(repeats):
        rows = _Rows.draw(study, located.truth(rng), n, rng)
        unit = rng.standard_normal(entries) if plan.law == "gaussian" else _laplace(entries, round(factor), rng)
        total += _errors(study, rows, located, scales, scales * unit, prior)
    errors = total / repeats
    equal = errors <= (1 + TOLERANCE) * errors.min()
    i, j = max(zip(*np.nonzero(equal), strict=True), key=lambda pair: (min(pair), sum(pair), pair[0]))
    return Thresholds(GRID[int(i)], GRID[int(j)], errors)


def _laplace(entries: int, releases: int, rng: np.random.Generator) -> Floats:
    """The sum of standard Laplace noise of so many releases, over the root of their number."""
    return np.asarray(rng.laplace(size=(max(releases, 1), entries)).sum(axis=0) / np.sqrt(max(releases, 1)))


class _Rows(NamedTuple):
    """Simulated rows in scaled units of the original bounds, uncut; and new features with their true line."""

    x: Floats
    y: Floats
    new_x: Floats
    new_line: Floats
    residual_variance: float
    weight: float
    target_sd: float
    numeric: NDArray[np.bool_]

    @classmethod
    def draw(cls, study: Study, located: Located, n: float, rng: np.random.Generator) -> "_Rows":
        count = int(min(n, POOL_ROWS))
        theta = rng.normal(0.0, np.sqrt((1 - RESIDUAL_SHARE) / study.d), study.d) / located.spread[:-1]
        x, new_x = (_features(study, located, rows, rng) for rows in (count, NEW_ROWS))
        line, new_line = ((rows - located.centre[:-1]) @ theta for rows in (x, new_x))
        size = located.spread[-1] / np.sqrt(np.mean(new_line**2) + RESIDUAL_SHARE)
        y = line + np.sqrt(RESIDUAL_SHARE) * rng.standard_normal(count)
        kinds = {column.name: column.kind for column in study.features}
        return cls(
            x=x,
            y=located.centre[-1] + size * y,
            new_x=new_x,
            new_line=located.centre[-1] + size * new_line,
            residual_variance=float(RESIDUAL_SHARE * size**2),
            weight=n / count,
            target_sd=float(located.spread[-1]),
            numeric=np.array([kinds[feature.column] == "numeric" for feature in study.encoded]),
        )


def _features(study: Study, located: Located, count: int, rng: np.random.Generator) -> Floats:
    parts: list[Floats] = []
    start = 0
    for column in study.features:
        if column.kind == "categorical":
            levels = len(column.levels) - 1
            here = slice(start, start + levels)
            # an indicator's mean; without an intercept the centre is 0 and its mean square is the share
            shares = np.clip(located.centre[here] if study.intercept else located.spread[here] ** 2, 0.0, 1.0)
            odds = np.append(shares, max(1.0 - shares.sum(), 0.0)) + 1e-3  # no level is impossible
            parts.append(np.eye(levels + 1)[rng.choice(levels + 1, count, p=odds / odds.sum()), :levels])
            start += levels
            continue
        if column.kind == "boolean":
            parts.append(np.where(rng.random((count, 1)) < (1 + located.centre[start]) / 2, 1.0, -1.0))
        else:
            parts.append(located.centre[start] + located.spread[start] * rng.standard_normal((count, 1)))
        start += 1
    return np.hstack(parts)


def _errors(study: Study, rows: _Rows, located: Located, scales: Floats, noise: Floats, prior: ScaledPrior) -> Floats:
    """The prediction error of every pair on one simulated table, in sds of the target."""
    layout = Layout.of(study)
    sds = scales * (np.sqrt(2.0) if study.mechanism == "laplace" else 1.0)
    drawn = layout.sufficient(noise, sds)
    low, high = np.array([[side[-1] for side in located.cut(threshold)] for threshold in GRID]).T
    y_centre, y_half = (low + high) / 2, (high - low) / 2
    y = (np.clip(rows.y[:, None], low, high) - y_centre) / y_half
    variances = rows.residual_variance / y_half**2
    out = np.empty((len(GRID), len(GRID)))
    for i, cuts in enumerate(map(located.cut, GRID)):
        x_low, x_high = (np.where(rows.numeric, side[:-1], end) for side, end in zip(cuts, (-1.0, 1.0), strict=True))
        centre, half = (x_low + x_high) / 2, (x_high - x_low) / 2
        b = _design(study, _shrunk(study, (np.clip(rows.x, x_low, x_high) - centre) / half))
        keep = study.intercept and drawn.sd_n == 0.0
        S = nearest_psd(rows.weight * (b.T @ b) + drawn.S, keep_first=keep)
        z = rows.weight * (b.T @ y) + drawn.z[:, None]
        theta = _posterior_means(S, z, variances, drawn.sd_z, prior)
        predicted = y_centre + y_half * (_design(study, (rows.new_x - centre) / half) @ theta)
        missed = np.mean((predicted - rows.new_line[:, None]) ** 2, axis=0)
        out[i] = np.sqrt(rows.residual_variance + missed) / rows.target_sd
    return out


def _design(study: Study, x: Floats) -> Floats:
    return np.column_stack([np.ones(len(x)), x]) if study.intercept else x


def _shrunk(study: Study, x: Floats) -> Floats:
    if not study.shrinks or study.radius is None:
        return x
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x * (study.radius / np.maximum(norm, study.radius)))


def _posterior_means(S: Floats, z: Floats, variances: Floats, sd_z: Floats, prior: ScaledPrior) -> Floats:
    """fixed-s in closed form (planning.py), for every column of z with its residual variance; (order, columns)."""
    covariances = variances[:, None, None] * S + np.diag(sd_z**2)
    right = np.concatenate([np.broadcast_to(S, covariances.shape), z.T[:, :, None]], axis=2)
    gain = S @ np.linalg.solve(covariances, right)
    precision = prior.precision + gain[:, :, :-1]
    weighted = prior.precision @ prior.mean + gain[:, :, -1]
    return np.asarray(np.linalg.solve(precision, weighted[:, :, None])[:, :, 0].T)
