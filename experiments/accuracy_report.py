"""The tables of docs/accuracy.md: mean squared errors of all methods, and exact against the best of the papers'."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from experiments.pages import write_between
from noisewise.evaluation.trials import Archive
from noisewise.evaluation.trials import Case as Trials
from noisewise.gram import Floats

FEWEST = 10
RESAMPLES, TAILS = 10_000, (0.025, 0.975)
OURS = ("exact", "exact-u")

Errors = Mapping[str, Mapping[str, Floats]]  # of each method, in each column, by replication


class Case(Trials, Protocol):
    """One method at one d under one prior."""

    prior: str
    d: int
    method: str


def write_page(archive: Archive, cases: Sequence[Case], page: Path) -> None:
    """A table for each prior."""
    for prior in dict.fromkeys(case.prior for case in cases):
        lines: list[str] = []
        verdicts: list[str] = []
        for d in dict.fromkeys(case.d for case in cases):
            errors = _read(archive, [case for case in cases if (case.prior, case.d) == (prior, d)])
            if not errors:
                continue
            lines = lines or _head(list(errors))
            for column in next(iter(errors.values())):
                row, verdict = _row(d, column, {method: found[column] for method, found in errors.items()})
                lines.append(row)
                verdicts.append(verdict)
        write_between(page, f"accuracy {prior}", "\n".join([_summary(verdicts), "", *lines]))


def _read(archive: Archive, cases: Sequence[Case]) -> Errors:
    """Errors in the replications that every method with any has, so that all are paired; none if they are few."""
    found = {case.method: rows for case in cases if (rows := archive.read(case))}
    common = set.intersection(*({int(row["trial"]) for row in rows} for rows in found.values())) if found else set()
    if len(common) < FEWEST or "exact" not in found:
        return {}
    columns = [name for name in next(iter(found.values()))[0] if name != "trial"]
    return {
        method: {name: np.array([float(row[name]) for row in rows if int(row["trial"]) in common]) for name in columns}
        for method, rows in found.items()
    }


def _head(methods: Sequence[str]) -> list[str]:
    ratios = [f"{ours} / best" for ours in OURS if ours in methods]
    titles = ["d", "J", "epsilon", "replications", *methods, "best of the papers'", *ratios, "exact is"]
    return ["| " + " | ".join(titles) + " |", "|" + "---:|" * len(titles)]


def _row(d: int, column: str, errors: Mapping[str, Floats]) -> tuple[str, str]:
    """Means, ratios of means with their bands, and the verdict on exact."""
    J, epsilon = column.removeprefix("J").split(" e")
    means = {method: float(values.mean()) for method, values in errors.items()}
    best = min((method for method in means if method not in OURS), key=lambda method: means[method])
    bands = {ours: _band(errors[ours], errors[best]) for ours in OURS if ours in errors}
    ratios = [f"{means[ours] / means[best]:.2f} ({low:.2f} to {high:.2f})" for ours, (low, high) in bands.items()]
    low, high = bands["exact"]
    verdict = "better" if high < 1.0 else "worse" if low > 1.0 else "level"
    shown = [f"{mean:.2g}" for mean in means.values()]
    entries = [str(d), J, epsilon, str(errors[best].size), *shown, best, *ratios, verdict]
    return "| " + " | ".join(entries) + " |", verdict


def _band(ours: Floats, theirs: Floats) -> tuple[float, float]:
    """95% of resampled ratios of mean errors, replications kept in pairs."""
    picks = np.random.default_rng(0).integers(ours.size, size=(RESAMPLES, ours.size))
    ratios = ours[picks].mean(axis=1) / theirs[picks].mean(axis=1)
    low, high = np.quantile(ratios, TAILS)
    return float(low), float(high)


def _summary(verdicts: Sequence[str]) -> str:
    if not verdicts:
        return f"Fewer than {FEWEST} replications so far."
    counts = [verdicts.count(word) for word in ("better", "level", "worse")]
    return (
        f"Of {len(verdicts)} cells `exact` is better than the best of the papers' methods in {counts[0]}, level with "
        f"it in {counts[1]} and worse in {counts[2]}, by the 95% band of the ratio."
    )
