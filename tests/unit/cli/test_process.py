"""The command in processes of its own, as people and scripts run it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MAIN = "import sys; sys.argv[0] = 'noisewise'; from noisewise.cli import main; main()"


def noisewise(*arguments: str, prelude: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command with stdout and stderr in pipes."""
    command = [sys.executable, "-c", f"{prelude}\n{MAIN}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_the_story_with_real_files(place: Any) -> None:
    """study, ledger, release, fit, predict: each by its own process, each handing a file to the next."""
    steps = [
        ["study", "new", "fresh.toml"],
        ["study", "check", "fresh.toml", "--n", "400", "--json"],
        ["ledger", "create", "fresh.db", "--dataset", "patients", "--epsilon", "1", "--delta", "1e-6", "--json"],
        ["release", "patients.csv", "--study", "fresh.toml", "--ledger", "fresh.db", "-o", "city.json", "--json"],
        ["ledger", "verify", "fresh.db", "--release", "city.json", "--json"],
        ["fit", "city.json", "-o", "posterior.nc", "--seed", "1", "--json"],
        ["predict", "posterior.nc", "patients.csv", "--json"],
    ]
    bodies = []
    for step in steps:
        done = noisewise(*step)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        if "--json" in step:
            bodies.append(json.loads(done.stdout))
    check, created, released, verified, fitted, predicted = bodies
    assert released["study_digest"] == check["digest"]
    assert released["budget"]["left_epsilon"] == created["total_epsilon"] - released["budget"]["spent_epsilon"]
    assert verified["ok"]
    assert [row["name"] for row in fitted["rows"]][:2] == ["intercept", "age"]
    assert predicted["rows"] == 400

    before = place.contents()
    refused = noisewise("release", "patients.csv", "--study", "fresh.toml", "--ledger", "fresh.db", "-o", "again.json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")
    assert "Traceback" not in refused.stderr
    assert place.contents() == before


def test_an_unexpected_failure_shows_no_values(place: Any) -> None:
    prelude = """
from noisewise.study import Study
def broken(path):
    patient = "Jane Roe, 7731"
    raise RuntimeError("something else broke")
Study.load = broken
"""
    done = noisewise("study", "show", "study.toml", prelude=prelude)
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    assert "Jane Roe" not in done.stderr + done.stdout


def test_a_missing_extra_is_named(place: Any) -> None:
    noisewise("ledger", "create", "some.ledger", "--dataset", "some", "--epsilon", "1", "--delta", "1e-5")
    before = noisewise("ledger", "show", "some.ledger", "--json").stdout
    release = ("release", "table.csv", "--study", "study.toml", "--ledger", "some.ledger", "--output", "some.json")
    done = noisewise(*release, prelude="import sys; sys.modules['opendp'] = None")
    assert done.returncode == 2
    assert "pip install 'noisewise[holder]'" in done.stderr
    assert noisewise("ledger", "show", "some.ledger", "--json").stdout == before  # found missing before any spending


def test_no_color_on_a_terminal_means_no_color(place: Any) -> None:
    colours = ("\x1b[31m", "\x1b[33m")
    done = noisewise("study", "show", "absent.toml", NO_COLOR="1", FORCE_COLOR="1")
    assert done.returncode == 2
    assert not any(colour in done.stderr for colour in colours)
    assert colours[0] in noisewise("study", "show", "absent.toml", FORCE_COLOR="1", NO_COLOR="").stderr


def test_a_reader_that_leaves_early_is_no_traceback(place: Any) -> None:
    shell = f'{sys.executable} -c "{MAIN}" study check study.toml --json | head -c 1'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr
