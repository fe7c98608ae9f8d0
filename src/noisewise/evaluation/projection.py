r"""Projection (001, Algorithm 2): two ordinary studies in place of one, the second with narrower bounds.

Public bounds are wide, since nobody may look at the data to choose them, and the noise grows with the bounds. So a
share of the budget buys the columns' means and standard deviations (the *spread study*), and what is left buys the
statistics of rows whose numbers are cut at mean +- t sd (the *projected study*). Both studies are public functions of
public things: a holder alone, several holders, one holder of all rows (the trusted aggregator) and a secure sum all
release them as they release any study, and a ledger counts both.

- Numeric columns get the bounds  mean +- t sd,  t_x for features and t_y for the target, never beyond the original
  ones. Booleans and levels stay as they are. A radius stays what it is, in the new scaled units.
- Without an intercept the line goes through the centre of the bounds, so that stays where it is, and the root mean
  square about it takes the place of the standard deviation (the paper's case: all columns centred).
- Noise can make a variance negative, or so small that nobody knows it. A variance counts as at least the standard
  deviation of its own noise and the square of the noise on the mean: bounds that are too wide cost noise, bounds that
  are far too narrow cut the column to nothing. (The paper puts 0.5 of its units there.)
- The multiples are chosen on simulated rows (thresholds.py), on nothing private, with a seed: anyone who has the
  same releases gets the same study, and its digest shows it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noisewise.column import Column
from noisewise.errors import MismatchError, OutputError, ReleaseError, StudyError
from noisewise.evaluation.thresholds import Located, Thresholds, choose_thresholds
from noisewise.layout import Spread
from noisewise.privacy.calibration import plan_noise
from noisewise.privacy.split import split_budget
from noisewise.release import Release, check_same_study
from noisewise.study import Study

SMALLEST_SPREAD = 2.0**-10


@dataclass(frozen=True)
class Projection:
    """A plan of two releases in place of one, of which the first is used to narrow the bounds of the second.

    ``share`` is the first one's share of the study's budget. Holders release ``spread_study``; ``project(releases)``
    then gives the study of the second release. Together they cost the budget of ``study``, no more and no less.
    """

    study: Study
    share: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.study, Study):
            raise StudyError(f"A projection needs a Study; got {type(self.study).__name__}. Read one with Study.load.")
        if self.study.statistics != "gram" or self.study.average_rows > 1:
            raise StudyError(
                "A projection narrows the bounds of a plain regression; use statistics = 'gram' and average_rows = 1."
            )
        if all(column.kind != "numeric" for column in (*self.study.features, self.study.target)):
            raise StudyError("No column is numeric, so there are no bounds to narrow.")
        self._studies  # noqa: B018  (a share that can't be had is refused now, not after a release)

    @cached_property
    def _studies(self) -> tuple[Study, Study]:
        spread = replace(
            self.study,
            name=f"{self.study.name}: spread",
            statistics="spread",
            fourth_moments=0.0,
            smallest_eigenvalue=0.0,
        )
        return split_budget(spread, self.study, self.share)

    @property
    def spread_study(self) -> Study:
        """The study of the first release: sums and sums of squares of every column."""
        return self._studies[0]

    @property
    def remaining_epsilon(self) -> float:
        """The epsilon of the second release, at the study's delta."""
        return self._studies[1].epsilon

    def project(self, releases: Release | Sequence[Release], *, seed: int = 0, repeats: int = 40) -> "Projected":
        """The study of the second release, from all releases of the first.

        It is assumed that the second release is made as the first was: by as many holders, alone or in a secure sum.
        ``repeats`` tables are simulated for the choice of thresholds; ``seed`` is the simulation's.
        """
        releases = [releases] if isinstance(releases, Release) else list(releases)
        self._check(releases, seed, repeats)
        second = self._studies[1]
        pooled = Spread.of([release.spread for release in releases])
        n = max(pooled.n, float(self.study.min_rows))
        located, unsure = _locate(pooled, n, self.study.intercept)
        factor = _noise_factor(releases, self.spread_study)
        thresholds = choose_thresholds(second, located, n, factor=factor, repeats=repeats, seed=seed)
        names = [*(feature.name for feature in self.study.encoded), self.study.target.name]
        return Projected(
            study=narrowed(second, located, thresholds),
            thresholds=thresholds,
            plan=self,
            releases=tuple(sorted(release.digest for release in releases)),
            seed=seed,
            repeats=repeats,
            unsure=tuple(name for name, doubt in zip(names, unsure, strict=True) if doubt),
        )

    def _check(self, releases: Sequence[Release], seed: int, repeats: int) -> None:
        if not releases:
            raise ReleaseError("No release was given; the bounds come from releases of the spread study.")
        check_same_study(releases)
        found = releases[0].study
        if found is None or found.digest != self.spread_study.digest:
            differ = "; ".join(self.spread_study.difference(found)) if found else "it carries no study"
            raise MismatchError(
                f"The releases are not of this projection's spread study. They differ in {differ}. Give the study and "
                "the share with which the spread study was made."
            )
        for name, value, least in (("seed", seed, 0), ("repeats", repeats, 1)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise StudyError(f"{name} is {value!r}; it is a whole number of at least {least}.")


@dataclass(frozen=True)
class Projected:
    """The study of the second release, and what it came from. ``unsure`` names columns whose spread noise drowned."""

    study: Study
    thresholds: Thresholds
    plan: Projection
    releases: tuple[str, ...]
    seed: int
    repeats: int
    unsure: tuple[str, ...]

    @property
    def provenance(self) -> tuple[str, ...]:
        """What it takes to make this study again, in words."""
        return (
            f"Projected from study {self.plan.study.digest}, of whose budget {self.plan.share:g} bought the spread.",
            f"Bounds are mean +- {_times(self.thresholds.features)} (features) and "
            f"{_times(self.thresholds.target)} (target), chosen on {self.repeats} simulated tables, seed {self.seed}.",
            f"Spread releases: {', '.join(self.releases)}.",
            "The same study, share, seed and releases give this study again, with this digest.",
        )

    def save(self, path: str | Path) -> None:
        """Write the study as TOML, its provenance as a comment above."""
        header = "".join(f"# {line}\n" for line in self.provenance)
        try:
            Path(path).write_text(f"{header}\n{self.study.to_toml()}", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{path}: can't be written ({error.strerror}); choose another place.") from None

    def __str__(self) -> str:
        before = {column.name: column for column in (*self.plan.study.features, self.plan.study.target)}
        lines = [
            f"{column.name}: {column.lower:g} to {column.upper:g} (was {old.lower:g} to {old.upper:g})"
            for column in (*self.study.features, self.study.target)
            if column.kind == "numeric" and column != (old := before[column.name])
        ]
        return "\n".join((*self.provenance[:2], *(lines or ["All bounds stay as they are."])))


def _times(threshold: float) -> str:
    return f"{threshold:g} sd" if math.isfinite(threshold) else "any number of sd (uncut)"


def _noise_factor(releases: Sequence[Release], study: Study) -> float:
    """The variance of the noise in the sum of all releases, over that of one release by one holder."""
    alone = plan_noise(study).scales[-1]
    return math.fsum((release.scales[-1] / alone) ** 2 if release.law != "none" else 1.0 for release in releases)


def _locate(pooled: Spread, n: float, intercept: bool) -> tuple[Located, NDArray[np.bool_]]:
    """Centre and spread of every column in scaled units, and where the noise drowned the spread."""
    mean = np.clip(pooled.sums / n, -1.0, 1.0) if intercept else np.zeros_like(pooled.sums)
    noise_mean = pooled.noise_sums / n if intercept else np.zeros_like(pooled.sums)
    variance = pooled.squares / n - mean**2
    noise = np.hypot(pooled.noise_squares / n, 2 * mean * noise_mean)
    floor = np.maximum(np.maximum(noise, noise_mean**2), SMALLEST_SPREAD**2)
    spread = np.sqrt(np.clip(np.maximum(variance, floor), 0.0, 1.0))
    return Located(mean, spread, noise_mean), variance < floor


def narrowed(study: Study, located: Located, thresholds: Thresholds) -> Study:
    """The study with its numeric columns cut; it is named after what it came from."""
    first = {feature.column: i for i, feature in reversed(list(enumerate(study.encoded)))}
    features = tuple(_cut(column, located, first[column.name], thresholds.features) for column in study.features)
    target = _cut(study.target, located, study.d, thresholds.target)
    return replace(study, name=f"{study.name}: projected", features=features, target=target)


def _cut(column: Column, located: Located, i: int, threshold: float) -> Column:
    if column.kind != "numeric" or not math.isfinite(threshold):
        return column
    lower, upper = (column.centre + column.half_width * float(side[i]) for side in located.cut(threshold))
    # outwards to a thousandth of the width, for people who read the file
    digits = 3 - math.floor(math.log10(upper - lower))
    step = 10.0**-digits
    lower = max(column.lower, round(math.floor(lower / step) * step, digits))
    upper = min(column.upper, round(math.ceil(upper / step) * step, digits))
    return replace(column, lower=lower, upper=upper)
