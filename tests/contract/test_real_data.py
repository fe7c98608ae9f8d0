"""Real tables with public bounds, read from the folder that NOISEWISE_DATA names."""

import csv
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw
from noisewise.privacy.noise import SimulatedNoise

DATASETS = ("abalone", "air_quality", "bike_sharing", "power_plant", "wine_red", "wine_white")


def study_of(folder: Path, dataset: str, epsilon: float = 1.0) -> nw.Study:
    """The study that the public bounds make; nothing is read off the data."""
    with (folder / "bounds.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["dataset"] == dataset]
    columns = {row["column"]: nw.Column(row["column"], float(row["lower"]), float(row["upper"])) for row in rows}
    (target,) = (row["column"] for row in rows if row["role"] == "target")
    return nw.Study([columns[name] for name in columns if name != target], columns[target], epsilon, delta=1e-6)


def columns_of(folder: Path, dataset: str) -> dict[str, np.ndarray]:
    table = np.genfromtxt(folder / f"{dataset}.csv", delimiter=",", names=True)
    return {name: table[name] for name in table.dtype.names}


@pytest.mark.parametrize("dataset", DATASETS)
def test_exact_statistics_give_least_squares(data_folder: Path, dataset: str) -> None:
    """From file to prediction with no noise: the line is that of least squares on the raw columns."""
    study = study_of(data_folder, dataset)
    release = nw.exact_release(study, data_folder / f"{dataset}.csv")
    posterior = nw.fit(release, prior=nw.Prior(covariance=1e6, scale=1e-4), seed=1)
    table = columns_of(data_folder, dataset)
    names = [column.name for column in study.features]
    clipped = {column.name: np.clip(table[column.name], column.lower, column.upper) for column in study.features}
    y = np.clip(table[study.target.name], study.target.lower, study.target.upper)
    X = np.column_stack([np.ones(len(y)), *(clipped[name] for name in names)])
    line = X @ np.linalg.lstsq(X, y, rcond=None)[0]
    ours = posterior.predict({name: clipped[name] for name in names})
    # 16 bits a value, a prior a million wide and 4,000 draws stand between the two
    assert np.sqrt(np.mean((ours.mean - line) ** 2)) < 2e-3 * np.std(y) + 5 * np.mean(ours.sd) / np.sqrt(4000)


@pytest.mark.parametrize("dataset", ["power_plant", "wine_white"])
def test_private_posteriors_predict_better_than_the_mean(data_folder: Path, dataset: str) -> None:
    """Thousands of rows at epsilon 5 teach something, and exact no less than fixed-s; fixed seeds."""
    study = study_of(data_folder, dataset, epsilon=5.0)
    holder = nw.Holder(study, ledger=None, noise=SimulatedNoise(np.random.default_rng(1)))
    with pytest.warns(nw.UnrecordedSpendWarning):
        release = holder.release(data_folder / f"{dataset}.csv")
    table = columns_of(data_folder, dataset)
    y = table[study.target.name]
    errors = {}
    for method in ("exact", "fixed-s"):
        prediction = nw.fit(release, method=method, seed=1).predict(table)
        errors[method] = np.mean((prediction.mean - y) ** 2) / np.var(y)
    assert errors["exact"] < 1.0
    assert errors["exact"] < 1.05 * errors["fixed-s"]


@pytest.mark.parametrize("dataset", ["abalone", "wine_red"])
def test_projection_narrows_public_bounds(data_folder: Path, dataset: str) -> None:
    """Three holders with a third of the rows each, both releases, one posterior."""
    study = study_of(data_folder, dataset, epsilon=5.0)
    table = columns_of(data_folder, dataset)
    plan = nw.Projection(study)

    def release(part: nw.Study) -> list[nw.Release]:
        holders = [
            nw.Holder(part, ledger=None, name=f"{i}", noise=SimulatedNoise(np.random.default_rng([i, part.d])))
            for i in range(3)
        ]
        with pytest.warns(nw.UnrecordedSpendWarning):
            return [holder.release({name: table[name][i::3] for name in table}) for i, holder in enumerate(holders)]

    projected = plan.project(release(plan.spread_study), repeats=5).study
    narrower = [new.half_width < old.half_width for new, old in zip(projected.features, study.features, strict=True)]
    assert np.mean(narrower) > 0.5
    posterior = nw.fit(release(projected), method="fixed-s", seed=1)
    y = table[study.target.name]
    assert np.mean((posterior.predict(table).mean - y) ** 2) < np.var(y)
