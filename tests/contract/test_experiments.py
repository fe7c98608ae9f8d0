"""The experiments run at a small size, and what is stored of the large ones was made with today's settings."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.accuracy import DIMENSIONS, METHODS, Case
from experiments.accuracy_report import write_page
from experiments.pages import write_between
from experiments.projection import EPSILONS, SIZES, methods
from experiments.projection import Case as Projected
from experiments.sbc.cells import RANKED, Cell
from experiments.sbc.results import Result
from noisewise.evaluation.trials import Archive

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "results"


def run(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", *map(str, arguments)], cwd=ROOT, check=True)


def test_every_stored_cell_is_readable_and_has_todays_settings():
    archive = Archive(RESULTS / "sbc")
    cells = [Cell.named(name) for name in archive.names()]
    assert len(cells) > 80
    for cell in cells:
        result = Result.read(archive, cell)
        assert result is not None, cell.name
        assert result.ranks.min() >= 0, cell.name
        assert result.ranks.max() <= RANKED, cell.name
        assert result.held.shape == result.ranks.shape, cell.name


def test_every_stored_replication_is_readable_and_has_todays_settings():
    archive = Archive(RESULTS / "accuracy")
    cases = [Case(d, method) for d in DIMENSIONS for method in METHODS]
    assert set(archive.names()) <= {case.name for case in cases}
    for case in cases:
        for row in archive.read(case):
            errors = np.array([float(value) for name, value in row.items() if name != "trial"])
            assert errors.size == 21, case.name
            assert (errors >= 0).all(), case.name


def test_calibration_runs_resumes_and_writes_its_pages(tmp_path):
    docs, results = tmp_path / "docs", tmp_path / "results"
    docs.mkdir()
    for page in ("calibration.md", "exact-sbc.md"):
        shutil.copy(ROOT / "docs" / page, docs / page)
    small = ["experiments.sbc", "methods", "--methods", "naive", "fixed-s", "--rows", 10, "--results", results]
    run(*small, "--trials", 10)
    run(*small, "--trials", 21)
    run("experiments.sbc", "pages", "--results", results, "--docs", docs)
    text = (docs / "calibration.md").read_text(encoding="utf-8")
    assert "| 1 + intercept | 10 | 0.1 | 21 | intercept, slope 1, v |" in text  # naive fails
    assert "### fixed-s" in text
    assert "### normal-x" not in text
    assert (docs / "figures" / "sbc-naive.png").stat().st_size > 1000
    assert "No trials yet." in (docs / "exact-sbc.md").read_text(encoding="utf-8")


class Fixed:
    """A stored case of known errors."""

    settings = "fixed"

    def __init__(self, method: str, factor: float) -> None:
        self.d, self.method, self.factor = 2, method, factor
        self.name = f"{method}_d2"

    def trial(self, number: int) -> dict[str, object]:
        return {"J1 e0.1": self.factor * (1 + number % 3)}


def test_verdicts_on_known_errors(tmp_path):
    """Twice the error of the best is worse, half of it better, the same level; in every resample."""
    for factor, verdict in ((2.0, "worse"), (0.5, "better"), (1.0, "level")):
        archive, page = Archive(tmp_path / verdict), tmp_path / f"{verdict}.md"
        page.write_text("<!-- accuracy: begin -->\n<!-- accuracy: end -->\n")
        cases = [Fixed("exact", factor), Fixed("fixed-s", 1.0), Fixed("normal-x", 5.0)]
        for case in cases:
            for number in range(12):
                archive.append(case, number, case.trial(number))
        write_page(archive, cases, page)
        text = page.read_text()
        ratio = f"{factor:.2f} ({factor:.2f} to {factor:.2f})"
        assert f"| 2 | 1 | 0.1 | 12 | {2 * factor:.2g} | 2 | 10 | fixed-s | {ratio} | {verdict} |" in text


def test_projection_runs_resumes_and_writes_its_page(tmp_path, data_folder):
    page, results = tmp_path / "projection.md", tmp_path / "results"
    page.write_text("<!-- projection: begin -->\n<!-- projection: end -->\n")
    small = ["experiments.projection", "--data", "wine_red", "--epsilon", 3.162, "--workers", 1]
    for splits in (1, 2):
        run(*small, "--splits", splits, "--results", results, "--page", page)
    assert "Median over 2 splits" in page.read_text(encoding="utf-8")
    rows = Archive(results).read(Projected("wine_red", 3.162))
    for row in rows:
        # loose bounds and 1,000 rows: the plain release is worse than the mean alone, the projected one is not far off
        errors = {name: float(value) for name, value in row.items()}
        assert errors["non-private"] < errors["secure-sum projected: fixed-s"] < errors["secure-sum: paper"]
    assert (tmp_path / "figures" / "projection.png").stat().st_size > 1000


def test_every_stored_split_is_readable_and_has_todays_settings():
    archive = Archive(RESULTS / "projection")
    cases = [Projected(data, epsilon) for data in SIZES for epsilon in EPSILONS]
    assert set(archive.names()) == {case.name for case in cases}
    for case in cases:
        rows = archive.read(case)
        assert len(rows) == 25, case.name
        assert all(float(row[method]) > 0 for row in rows for method in methods()), case.name


def test_a_page_without_markers_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("text")
    with pytest.raises(SystemExit, match="has no markers <!-- sbc: begin --> and <!-- sbc: end -->"):
        write_between(page, "sbc", "table")
