r"""Planning before any data is touched: what posterior to expect, and which clip radius to agree on.

Nothing here reads data, so it costs no privacy. Both functions imagine holders of n rows each, under assumptions that
are easy to state and easy to doubt:

- features are independent, numbers uniform over their bounds, booleans and levels with equal odds (real columns are
  narrower, so real posteriors are wider);
- the target's standard deviation is a third of its half-width, and half of its variance is residual, so the residual
  standard deviation is sqrt(1/2)/3 = 0.24 of the half-width (say another with ``residual_sd``);
- the prior is the default one, the residual variance v is known.

Given S and v, fixed-s has a closed form (MATH 4), with C the prior covariance and s the noise's sd on z:

    posterior precision  C^-1 + sum_j S_j (v S_j + s^2 I)^-1 S_j,      S_j (v S_j + s^2 I)^-1 z_j summed for the mean.

``expected_widths`` puts S = n E[bb'] into it, b = (1, x). That is the width that fixed-s *reports*, which takes S as
known. Where the noise on S is not small beside S the real error is larger; ``strength`` says how far away that is.
``suggest_radius`` simulates that real error, noise on S included.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple, cast

import numpy as np

from noisewise.analyst.model import nearest_psd
from noisewise.analyst.prior import Prior, ScaledPrior
from noisewise.analyst.units import Units
from noisewise.errors import StudyError
from noisewise.evaluation.simulate import draw_features, feature_moments
from noisewise.gram import Floats, Layout
from noisewise.privacy.calibration import NoisePlan, plan_noise
from noisewise.study import Study

# the target's assumed standard deviation in half-widths, and the residual's share of its variance
TARGET_SD = 1.0 / 3.0
RESIDUAL_SHARE = 0.5
# rows simulated a holder and replication; sums over more rows are scaled up (see _simulate_holder)
POOL_ROWS = 4000


@dataclass(frozen=True)
class ExpectedWidth:
    """The width of one parameter's central interval, in the user's units."""

    name: str
    width: float
    width_without_noise: float


@dataclass(frozen=True)
class Expectation:
    """What ``holders`` tables of ``n`` rows each should give; see the module's text for the assumptions.

    ``strength`` is the smallest eigenvalue of one holder's expected S over the typical spectral norm of the noise on
    it: well above 1, fixed-s can be trusted; near 1 or below, a release is mostly noise.
    """

    n: int
    holders: int
    interval: float
    residual_sd: float
    strength: float
    widths: tuple[ExpectedWidth, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def expected_widths(
    study: Study,
    n: int,
    *,
    holders: int = 1,
    residual_sd: float | None = None,
    interval: float = 0.9,
    prior: Prior | None = None,
    plan: NoisePlan | None = None,
) -> Expectation:
    """The posterior widths to expect from n rows at each holder, with the study's noise and without any.

    ``residual_sd`` is in the target's units. ``plan`` may hand in ``plan_noise(study)`` if it is known already.
    """
    _check_counts(study, n, holders)
    if not 0.0 < interval < 1.0:
        raise StudyError(f"interval {interval!r} is out of range; it lies between 0 and 1, such as 0.9.")
    units = Units.of_study(study)
    variance = _residual_variance(study, residual_sd)
    scaled = (prior or Prior()).in_scaled_units(units)
    noise = _noise_sds(study, plan or plan_noise(study))
    k = study.average_rows
    variance, S = variance / k, (n // k) * _mean_outer_product(study)
    both = []
    with_noise = S @ np.linalg.solve(variance * S + np.diag(noise.sd_z**2), S)
    for information in (with_noise, S / variance):
        covariance = np.linalg.inv(scaled.precision + holders * information)  # of order d + 1, once a plan
        in_user = units.linear[units.prior_part]
        both.append(np.sqrt(np.einsum("ij,jk,ik->i", in_user, covariance, in_user)))
    width = 2.0 * NormalDist().inv_cdf(0.5 + interval / 2.0)
    names = (("intercept",) if study.intercept else ()) + units.names
    return Expectation(
        n=n,
        holders=holders,
        interval=interval,
        residual_sd=float(np.sqrt(variance * k)) * study.target.half_width,
        strength=float(np.linalg.eigvalsh(S)[0] / noise.norm_S),
        widths=tuple(
            ExpectedWidth(name, float(width * noisy), float(width * clear))
            for name, noisy, clear in zip(names, *both, strict=True)
        ),
    )


class RadiusError(NamedTuple):
    """One radius of the grid: the error of the coefficients and its Monte Carlo standard error, in target units."""

    radius: float
    error: float
    standard_error: float


@dataclass(frozen=True)
class RadiusChoice:
    """What ``suggest_radius`` found. ``study`` is the study with the best radius; ``str`` gives the table.

    An error is the root mean square, over coefficients and replications, of posterior mean minus truth, each
    coefficient times its feature's half-width: the error in what moving one feature from the centre of its bounds to
    their edge does to the target, in the target's units. ``coefficient_errors`` has the root mean square of each
    coefficient in its own units, a row for each radius.
    """

    best: float
    table: tuple[RadiusError, ...]
    coefficient_errors: tuple[tuple[float, ...], ...]
    study: Study
    n: int
    holders: int
    replications: int

    @property
    def full(self) -> RadiusError:
        """The largest radius, which shrinks no row."""
        return self.table[-1]

    def __str__(self) -> str:
        lines = [f"{'radius':>8}  {'error':>10}  {'+- (MC)':>9}   error of the coefficients, in units of the target"]
        for row in self.table:
            notes = [" <- best"] if row.radius == self.best else []
            notes += [" (shrinks no row)"] if row is self.full else []
            lines.append(f"{row.radius:8.4g}  {row.error:10.4g}  {row.standard_error:9.2g}{''.join(notes)}")
        holders = f"{self.holders} holders of " if self.holders > 1 else ""
        lines.append(f"simulated: {holders}{self.n:,} rows, {self.replications} replications, no data read")
        return "\n".join(lines)


def suggest_radius(
    study: Study,
    n: int,
    *,
    holders: int = 1,
    residual_sd: float | None = None,
    radii: Sequence[float] | None = None,
    replications: int = 200,
    seed: int = 0,
) -> RadiusChoice:
    """Simulate which clip radius gives the smallest error for n rows a holder; it reads no data and costs nothing.

    A smaller radius shrinks rows, which bends the regression, and needs less noise. For every radius of the grid (by
    default 16 from a quarter of the largest to the largest) the same simulated rows, residuals and standard noise are
    used, so that differences between radii are due to the radius. The assumptions are in the module's text; besides,
    coefficients are drawn in a random direction, and target values are not clipped.
    """
    _check_counts(study, n, holders)
    if study.average_rows > 1:
        raise StudyError("suggest_radius does not simulate averaged rows; use average_rows = 1.")
    if replications < 2:
        raise StudyError(f"replications {replications!r} is too few; at least 2, better 100 or more.")
    full = study.full_radius
    grid = np.unique(np.append(np.geomspace(full / 4.0, full, 16) if radii is None else np.asarray(radii, float), full))
    studies = [replace(study, radius=float(radius)) for radius in grid]
    entries = len(Layout.of(study).pairs)
    scales = np.array([plan_noise(variant).scales[:entries] for variant in studies])
    variance = _residual_variance(study, residual_sd)
    scaled = Prior().in_scaled_units(Units.of_study(study))
    rng = np.random.default_rng(seed)
    errors = np.empty((replications, grid.size, study.d))
    for replication in range(replications):
        theta = _draw_theta(study, rng)
        releases = [_simulate_holder(study, n, theta, variance, grid, scales, rng) for _ in range(holders)]
        for g in range(grid.size):
            mean = _posterior_mean(study, [release[g] for release in releases], scales[g], variance, scaled)
            errors[replication, g] = (mean - theta)[-study.d :]
    return _choice(study, n, holders, grid, errors)


def _choice(study: Study, n: int, holders: int, grid: Floats, errors: Floats) -> RadiusChoice:
    replications = errors.shape[0]
    half_width = study.target.half_width
    squares = (errors**2).mean(axis=2)
    rms = np.sqrt(squares.mean(axis=0))
    spread = squares.std(axis=0, ddof=1) / np.sqrt(replications) / (2.0 * rms)  # delta method for the square root
    columns = zip(grid, half_width * rms, half_width * spread, strict=True)
    table = tuple(RadiusError(*map(float, row)) for row in columns)
    best = float(grid[rms.argmin()])
    units = half_width / np.array([feature.half_width for feature in study.encoded])
    each = np.sqrt((errors**2).mean(axis=0)) * units
    return RadiusChoice(
        best=best,
        table=table,
        coefficient_errors=tuple(tuple(float(value) for value in row) for row in each),
        study=replace(study, radius=best),
        n=n,
        holders=holders,
        replications=replications,
    )


def _simulate_holder(
    study: Study, n: int, theta: Floats, variance: float, grid: Floats, scales: Floats, rng: np.random.Generator
) -> Floats:
    """Noisy released entries of one holder at every radius, (radii, entries).

    At most POOL_ROWS rows are drawn; with k = n / rows, S and the mean of z are k times theirs and the residual part of
    z sqrt k times theirs, which is the exact law of z given such an S (u, which the posterior mean does not use, is
    not right then). Shrunk rows are x min(1, R / |x|), so with rows sorted by norm every sum over shrunk rows is a sum
    up to R plus R or R^2 times one beyond it.
    """
    rows = min(n, POOL_ROWS)
    k = n / rows
    x = draw_features(study, rows, rng)
    residual = np.sqrt(variance / k) * rng.standard_normal((rows, 1))
    norm = np.linalg.norm(x, axis=1)
    order = np.argsort(norm)
    x, residual, norm = x[order], residual[order], np.maximum(norm[order], 1e-300)[:, None]
    y = residual + x @ theta[-study.d :, None] + (theta[0] if study.intercept else 0.0)
    cuts = np.searchsorted(norm[:, 0], grid, side="right")
    with_constant = np.hstack([np.ones_like(y), x, y])
    by_power = [_cumulative(x / norm**power, part, cuts) for power, part in ((0, with_constant), (1, with_constant))]
    squares = [_cumulative(x / norm**power, x / norm**power, cuts) for power in (0, 1)]
    radius = grid[:, None, None]
    crossed = by_power[0][0] + radius * by_power[1][1]
    matrix = np.zeros((grid.size, study.d + 2, study.d + 2))
    whole = with_constant[:, [0, -1]]
    matrix[:, [[0], [-1]], [0, -1]] = whole.T @ whole
    matrix[:, 1:-1, :] = crossed
    matrix[:, :, 1:-1] = np.swapaxes(crossed, 1, 2)
    matrix[:, 1:-1, 1:-1] = squares[0][0] + radius**2 * squares[1][1]
    i, j = np.array(Layout.of(study).pairs).T
    entries = i.size
    unit = rng.standard_normal(entries) if study.mechanism == "gaussian" else rng.laplace(size=entries)
    return np.asarray(k * matrix[:, i, j] + scales * unit)


def _cumulative(left: Floats, right: Floats, cuts: Sequence[int] | Any) -> tuple[Floats, Floats]:
    """left' right summed over the rows before each cut, and over those from it on."""
    edges = [0, *cuts, len(left)]
    blocks = np.array([left[a:b].T @ right[a:b] for a, b in pairwise(edges)])
    before = np.cumsum(blocks, axis=0)
    return before[:-1], before[-1] - before[:-1]


def _posterior_mean(
    study: Study, releases: Sequence[Floats], scales: Floats, variance: float, prior: ScaledPrior
) -> Floats:
    """The closed form of fixed-s in the module's text."""
    layout = Layout.of(study)
    precision, weighted = prior.precision.copy(), prior.precision @ prior.mean
    sds = scales * (np.sqrt(2.0) if study.mechanism == "laplace" else 1.0)
    for values in releases:
        part = layout.sufficient(values, sds)
        S = nearest_psd(part.S, keep_first=study.intercept and part.sd_n == 0.0)
        gain = np.linalg.solve(variance * S + np.diag(part.sd_z**2), np.column_stack([S, part.z]))
        precision += S @ gain[:, :-1]
        weighted += S @ gain[:, -1]
    return np.asarray(np.linalg.solve(precision, weighted))


def _draw_theta(study: Study, rng: np.random.Generator) -> Floats:
    """Coefficients in a random direction that explain their share of the target's variance; the target is centred."""
    moments = feature_moments(study)
    mean = moments[0, 1:]
    slopes = rng.standard_normal(study.d)
    explained = slopes @ (moments[1:, 1:] - np.outer(mean, mean)) @ slopes
    slopes *= np.sqrt((1.0 - RESIDUAL_SHARE) * TARGET_SD**2 / explained)
    return np.concatenate([[-mean @ slopes], slopes]) if study.intercept else slopes


class _Noise(NamedTuple):
    sd_z: Floats
    norm_S: float


def _noise_sds(study: Study, plan: NoisePlan) -> _Noise:
    layout = Layout.of(study)
    sds = np.array(plan.scales) * (np.sqrt(2.0) if plan.law == "laplace" else 1.0)
    part = layout.sufficient(np.zeros_like(sds), sds)
    # a symmetric matrix of independent entries with sd s off the diagonal has spectral norm about 2 s sqrt(order)
    off_diagonal = part.sd_S[0, 1] if len(part.z) > 1 else part.sd_S[0, 0]
    return _Noise(part.sd_z, float(2.0 * off_diagonal * np.sqrt(len(part.z))))


def _mean_outer_product(study: Study) -> Floats:
    """E[bb'] of the assumed rows, shrunk to the study's radius; by simulation with a fixed seed if that shrinks any.

    Of averages of k rows it is mm' + (E[bb'] - mm') / k, m = E[b].
    """
    if not study.shrinks:
        moments = feature_moments(study)
    else:
        x = draw_features(study, 20_000, np.random.default_rng(0))
        radius = cast(float, study.radius)
        x *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(x, axis=1), radius))[:, None]
        b = np.hstack([np.ones((len(x), 1)), x])
        moments = b.T @ b / len(b)
    if study.average_rows > 1:
        between = np.outer(moments[0], moments[0])
        moments = between + (moments - between) / study.average_rows
    first = 0 if study.intercept else 1
    return np.asarray(moments[first:, first:])


def _residual_variance(study: Study, residual_sd: float | None) -> float:
    if residual_sd is None:
        return RESIDUAL_SHARE * TARGET_SD**2
    if not np.isfinite(residual_sd) or residual_sd <= 0:
        raise StudyError(f"residual_sd {residual_sd!r} is out of range; it is a positive number in the target's units.")
    return float(residual_sd / study.target.half_width) ** 2


def _check_counts(study: Study, n: int, holders: int) -> None:
    if study.statistics != "gram":
        raise StudyError("A study with statistics = 'spread' releases no regression, so there is none to plan for.")
    if n < study.min_rows:
        raise StudyError(f"n {n} is below the study's min_rows {study.min_rows}; no holder could release so few rows.")
    if holders < 1:
        raise StudyError(f"holders {holders!r} is out of range; it is at least 1.")
