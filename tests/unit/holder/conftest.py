"""What the tests of the holder share: a study, a table that fits it, a ledger, and a watch over what is spent."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

import noisewise as nw


class Watch(Protocol):
    """Fails unless the ledger and the folder are the same after the block as before it."""

    def __call__(self) -> AbstractContextManager[None]: ...


@pytest.fixture
def study() -> nw.Study:
    """One column of each kind; levels are numbers, so that a NumPy array can hold the table too."""
    return nw.Study(
        features=(
            nw.Column("age", 18, 90),
            nw.Column.boolean("smoker"),
            nw.Column.categorical("ward", ("1", "2", "3"), baseline="2"),
        ),
        target=nw.Column("pressure", 80.5, 200.25),
        epsilon=1.0,
        delta=1e-6,
        name="wards",
    )


@pytest.fixture
def table() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {
        "age": rng.uniform(18, 90, 200),
        "smoker": rng.integers(0, 2, 200).astype(bool),
        "ward": rng.choice(["1", "2", "3"], 200),
        "pressure": rng.uniform(90, 190, 200),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test's ledger and releases go; input files are kept elsewhere."""
    path = tmp_path / "holder"
    path.mkdir()
    return path


@pytest.fixture
def ledger(folder: Path) -> nw.Ledger:
    return nw.Ledger.create(folder / "ledger", dataset="ward rounds", epsilon=10.0, delta=1e-6)


@pytest.fixture
def nothing_spent(ledger: nw.Ledger, folder: Path) -> Watch:
    def state() -> tuple[str, float, list[str]]:
        summary = ledger.summary()
        return summary.head, summary.spent_epsilon, sorted(path.name for path in folder.iterdir())

    @contextmanager
    def watch() -> Iterator[None]:
        before = state()
        yield
        assert state() == before

    return watch
