"""The table of docs/accuracy.md: mean squared errors of all methods, and exact against the best of the papers'."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from experiments.pages import write_between
from noisewise.evaluation.trials import Archive
from noisewise.evaluation.trials import Case as Trials
from noisewise.gram import Floats

FEWEST = 10
RESAMPLES, TAILS = 10_000, (0.025, 0.975)
OURS = ("exact", "exact-u")
SAME = "normal-x"  # the posterior of exact, by another sampler, with moves of ours
SMALL = 1.0  # epsilon

Errors = Mapping[str, Mapping[str, Floats]]  # of each method, in each column, by replication


class Verdict(NamedTuple):
    """exact beside the best of all others, and beside the best of the methods as their papers have them."""

    epsilon: float
    all: str
    papers: str


class Case(Trials, Protocol):
    """One method at one d."""

    d: int
    method: str


def write_page(archive: Archive, cases: Sequence[Case], page: Path) -> None:
    """What each epsilon says, the summary, and the table with a row for each d, J and epsilon."""
    lines: list[str] = []
    verdicts: list[Verdict] = []
    found = {
        d: _read(archive, [case for case in cases if case.d == d]) for d in dict.fromkeys(case.d for case in cases)
    }
    found = {d: errors for d, errors in found.items() if errors}
    for d, errors in found.items():
        lines = lines or _head(list(errors))
        for column in next(iter(errors.values())):
            row, verdict = _row(d, column, {method: of_method[column] for method, of_method in errors.items()})
            lines.append(row)
            verdicts.append(verdict)
    write_between(page, "epsilons", "\n".join(_by_epsilon(list(found.values()))))
    write_between(page, "accuracy", "\n".join([_summary(verdicts), "", *lines]))


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


def _by_epsilon(found: Sequence[Errors]) -> list[str]:
    """exact beside each method, errors averaged over every d and J: no best is picked."""
    if not found:
        return []
    methods = [method for method in found[0] if method != "exact"]
    columns = list(found[0]["exact"])
    size = min(errors["exact"][columns[0]].size for errors in found)
    lines = [f"| epsilon | {' | '.join(methods)} |", "|---:|" + "---:|" * len(methods)]
    for epsilon in dict.fromkeys(column.split(" e")[1] for column in columns):
        of_epsilon = [column for column in columns if column.split(" e")[1] == epsilon]
        mean = {
            method: np.mean([errors[method][column][:size] for errors in found for column in of_epsilon], axis=0)
            for method in ("exact", *methods)
        }
        ratios = " | ".join(_ratio(mean["exact"], mean[method])[0] for method in methods)
        lines.append(f"| {epsilon} | {ratios} |")
    return lines


def _head(methods: Sequence[str]) -> list[str]:
    ratios = [f"{ours} / best" for ours in OURS if ours in methods]
    titles = ["d", "J", "epsilon", "replications", *methods, "best of all", *ratios, "exact is"]
    titles += ["best of the papers'", "exact / it", "exact is"]
    return ["| " + " | ".join(titles) + " |", "|" + "---:|" * len(titles)]


def _row(d: int, column: str, errors: Mapping[str, Floats]) -> tuple[str, Verdict]:
    """Means, ratios of means with their bands, and the verdict on exact."""
    J, epsilon = column.removeprefix("J").split(" e")
    means = {method: float(values.mean()) for method, values in errors.items()}
    theirs = sorted((method for method in means if method not in OURS), key=lambda method: means[method])
    best, other = theirs[0], next(method for method in theirs if method != SAME)
    ratios = [_ratio(errors[ours], errors[best]) for ours in OURS if ours in errors]
    beside, verdict = _ratio(errors["exact"], errors[other])
    shown = [f"{mean:.2g}" for mean in means.values()]
    entries = [str(d), J, epsilon, str(errors[best].size), *shown, best, *(text for text, _ in ratios), ratios[0][1]]
    entries += [other, beside, verdict]
    return "| " + " | ".join(entries) + " |", Verdict(float(epsilon), ratios[0][1], verdict)


def _ratio(ours: Floats, theirs: Floats) -> tuple[str, str]:
    """The ratio of mean errors with its band, and what that says of ours."""
    low, high = _band(ours, theirs)
    verdict = "better" if high < 1.0 else "worse" if low > 1.0 else "level"
    return f"{ours.mean() / theirs.mean():.2f} ({low:.2f} to {high:.2f})", verdict


def _band(ours: Floats, theirs: Floats) -> tuple[float, float]:
    """95% of resampled ratios of mean errors, replications kept in pairs."""
    picks = np.random.default_rng(0).integers(ours.size, size=(RESAMPLES, ours.size))
    ratios = ours[picks].mean(axis=1) / theirs[picks].mean(axis=1)
    low, high = np.quantile(ratios, TAILS)
    return float(low), float(high)


def _summary(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return f"Fewer than {FEWEST} replications so far."
    small = [one for one in verdicts if one.epsilon <= SMALL]
    return (
        f"By the 95% band of the ratio, beside the best of all others `exact` is "
        f"{_counts([one.all for one in verdicts])} of {len(verdicts)} cells. {SAME} has its posterior, with moves of "
        f"ours; beside the best of the papers' methods, as they have them, `exact` is "
        f"{_counts([one.papers for one in verdicts])}, and for epsilon up to {SMALL:g} "
        f"{_counts([one.papers for one in small])}."
    )


def _counts(words: Sequence[str]) -> str:
    better, level, worse = (words.count(word) for word in ("better", "level", "worse"))
    return f"better in {better}, level in {level} and worse in {worse}"
