"""What a holder alone may see is not printed, logged, pickled or carried along by an error."""

import copy
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisewise as nw
from noisewise.holder.encode import Encoder
from noisewise.holder.statistics import gram_of
from noisewise.holder.tables import open_table

SECRET = "7654321.125"


def secrets_of(study: nw.Study, table: dict[str, Any]) -> dict[str, object]:
    return {
        "gram": gram_of(study, table)[0],
        "encoder": Encoder(study),
        "table": open_table(table, study),
    }


@pytest.mark.parametrize("name", ["gram", "encoder", "table"])
def test_secrets_are_neither_shown_nor_pickled(name: str, study: nw.Study, table: dict[str, Any]) -> None:
    thing = secrets_of(study, table)[name]
    for text in (repr(thing), str(thing), f"{thing}", repr([thing])):
        assert not any(character.isdigit() for character in text)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="secret"):
            pickle.dumps(thing, protocol)
    with pytest.raises(TypeError, match="secret"):
        copy.copy(thing)


def test_a_holder_shows_no_rows(study: nw.Study, table: dict[str, Any], ledger: nw.Ledger) -> None:
    holder = nw.Holder(study, ledger=ledger)
    holder.release(table)
    assert not any(f"{value:.4f}" in repr(holder) for value in table["age"])


def test_the_traceback_that_a_user_sees_shows_no_value(study: nw.Study, tmp_path: Path) -> None:
    """A program that fails on a bad file: its standard error, as the shell shows it."""
    study.save(tmp_path / "study.toml")
    good = "\n".join(["age,smoker,ward,pressure", *["50,1,2,120.5"] * 50])
    spoilt = {
        "text.csv": good.replace("50,1,2,120.5", f"{SECRET}x,1,2,120.5", 1),
        "level.csv": good.replace("50,1,2,120.5", f"50,1,{SECRET},120.5", 1),
        "ragged.csv": good + f"\n{SECRET},{SECRET}\n",
        "truth.csv": good.replace("50,1,2,120.5", f"50,{SECRET},2,120.5", 1),
        "headless.csv": good.split("\n", 1)[1].replace("50", SECRET),
    }
    program = (
        "import sys, noisewise as nw\n"
        "nw.Holder(nw.Study.load(sys.argv[1]), ledger=sys.argv[2]).release(sys.argv[3], sys.argv[4])"
    )
    for name, text in spoilt.items():
        (tmp_path / name).write_text(text + "\n")
        paths = [tmp_path / "study.toml", tmp_path / "ledger", tmp_path / name, tmp_path / "release.json"]
        done = subprocess.run([sys.executable, "-c", program, *map(str, paths)], capture_output=True, text=True)
        assert "Traceback" in done.stderr
        assert "noisewise.errors.DataError" in done.stderr
        assert SECRET not in done.stderr + done.stdout
        assert "During handling" not in done.stderr
    assert not (tmp_path / "ledger").exists()
    assert not (tmp_path / "release.json").exists()


def test_logs_and_release_hold_no_value(
    study: nw.Study, table: dict[str, Any], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One person stands out. Chance of a false alarm (noisy integers that hold these ten digits): below 1e-7."""
    table["age"] = np.append(table["age"][:-1], float(SECRET))
    with caplog.at_level(logging.DEBUG):
        release = nw.Holder(study, ledger=folder / "ledger").release(table, folder / "r.json")
    for text in (caplog.text, (folder / "r.json").read_text(), repr(release)):
        assert SECRET not in text
        assert SECRET.replace(".", "") not in text
