"""A place to work in: a study, a table and a ledger on disk, and a way to run commands there."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner, Result

from noisewise.cli import app
from noisewise.evaluation.hospitals import HOSPITALS, draw_hospital, hypertension_study
from noisewise.privacy.ledger import Ledger

Run = Callable[..., Result]


class Place(NamedTuple):
    """Files of one holder, all in the working directory."""

    folder: Path
    study: Path
    table: Path
    ledger: Path

    @property
    def release_arguments(self) -> list[str]:
        return ["release", self.table.name, "--study", self.study.name, "--ledger", self.ledger.name]

    def spent(self) -> float:
        return Ledger.open(self.ledger).summary().spent_epsilon

    def contents(self) -> dict[str, str]:
        """A fingerprint of every file, to see that nothing was written."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def run() -> Run:
    """Run a command in this process; an exception that is not an exit fails the test."""
    runner = CliRunner(env={"NO_COLOR": "1", "FORCE_COLOR": None, "TERM": "dumb"})

    def invoke(*arguments: str) -> Result:
        return runner.invoke(app, list(arguments), catch_exceptions=False)

    return invoke


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    study = hypertension_study()
    study.save("study.toml")
    table = draw_hospital(HOSPITALS[0]._replace(rows=400), np.random.default_rng(1))
    csv.write_csv(pa.table(table), "patients.csv")
    Ledger.create("ledger.db", dataset="patients", epsilon=2.0, delta=1e-5)
    return Place(tmp_path, *(tmp_path / name for name in ("study.toml", "patients.csv", "ledger.db")))
