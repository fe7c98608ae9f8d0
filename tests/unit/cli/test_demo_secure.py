"""noisewise demo --secure: a whole secure sum, told by its own numbers."""

import json
import re
from pathlib import Path
from statistics import median

import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.cli import app
from noisewise.protocol.pooled import verify


@pytest.mark.slow
def test_the_story_of_the_secure_sum(tmp_path: Path) -> None:
    folder = tmp_path / "shown"
    runner = CliRunner(env={"NO_COLOR": "1"})
    done = runner.invoke(app, ["demo", "--secure", "--output", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0
    results = json.loads((folder / "results.json").read_text())
    pooled = nw.Release.load(folder / "pooled.json")
    evidence = verify(pooled)
    assert evidence.missing == ("willow",)
    assert results["holders"] == list(evidence.holders)
    assert len(evidence.holders) == 7

    # 8 holders, 1 may drop, 1 may collude: 7 parts of 1/5 of one release's variance, against 7 whole ones
    assert results["noise_sd"]["separate"] / results["noise_sd"]["secure sum"] == pytest.approx(5**0.5, rel=1e-6)
    assert "7 of 8 holders are at all nodes, 7 needed" in done.stdout
    told = re.search(r"separate releases are ([\d.]+) times as wide", done.stdout)
    assert told
    widths = [
        [line[way]["upper"] - line[way]["lower"] for way in ("separate", "secure sum")]
        for line in results["parameters"]
    ]
    assert float(told[1]) == pytest.approx(median(apart / together for apart, together in widths), rel=0.06)
    for name in evidence.holders:
        ledger = nw.Ledger.open(folder / f"holder-{name}" / "patients.ledger").summary()
        assert (ledger.reservations, ledger.unconfirmed) == (1, 0)
        assert results["spent_epsilon"][name] == pytest.approx(ledger.spent_epsilon)
    assert (folder / "comparison.png").stat().st_size > 10_000
    for command in (["round", "verify", str(folder / "pooled.json")], ["round", "status", str(folder / "coordinator")]):
        assert runner.invoke(app, command, catch_exceptions=False).exit_code == 0

    again = runner.invoke(app, ["demo", "--secure", "--output", str(tmp_path)], catch_exceptions=False)
    assert again.exit_code == 2
    assert "was not made by the demo" in again.output
