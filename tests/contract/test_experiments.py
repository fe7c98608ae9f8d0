"""The experiments run at a small size, and what is stored of the large ones was made with today's settings."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kstest

from experiments.accuracy import DIMENSIONS, METHODS, Case
from experiments.accuracy_report import write_page
from experiments.pages import write_between
from experiments.projection import EPSILONS, SIZES, methods
from experiments.projection import Case as Projected
from experiments.sbc.cells import RANKED, Cell, study_of
from experiments.sbc.results import Result
from experiments.sbc.rows import draw_rows
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
    for page in ("calibration.md", "exact-sbc.md", "exact.md"):
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
        page.write_text("".join(f"<!-- {name}: begin -->\n<!-- {name}: end -->\n" for name in ("epsilons", "accuracy")))
        cases = [Fixed("exact", factor), Fixed("fixed-s", 1.0), Fixed("normal-x", 5.0)]
        for case in cases:
            for number in range(12):
                archive.append(case, number, case.trial(number))
        write_page(archive, cases, page)
        text = page.read_text()
        ratio = f"{factor:.2f} ({factor:.2f} to {factor:.2f})"
        fifth = f"{factor / 5:.2f} ({factor / 5:.2f} to {factor / 5:.2f})"
        assert f"| 0.1 | {ratio} | {fifth} |" in text  # by epsilon, beside fixed-s and normal-x
        assert f"| 2 | 1 | 0.1 | 12 | {2 * factor:.2g} | 2 | 10 | fixed-s | {ratio} | {verdict} |" in text


@pytest.mark.parametrize("intercept", [True, False])
def test_rows_within_bounds_have_the_moments_that_weak_covariates_expect(intercept):
    """1000 tables of four features: flat means and sds far from the walls, each correlation flat."""
    study, rng = study_of(4, intercept, 1.0, "gaussian", False), np.random.default_rng(1)
    x = np.stack([draw_rows(study, 1, 2000, "bounds", rng)[0] for _ in range(1000)])
    mean, sd = x.mean(axis=1), x.std(axis=1)
    # the wall is felt from moments of 0.6 on; a KS test each at 1e-6, 7 in all: below 1e-5
    far = (sd[:, 0] < 0.4) & (np.abs(mean[:, 0]) < 0.4)
    assert far.sum() > 80
    correlations = np.array([np.corrcoef(table.T)[(0, 2), (1, 3)] for table in x])
    tests = [kstest(column, "uniform", (-1, 2)).pvalue for column in correlations.T]
    tests.append(kstest(sd[far, 0], "uniform", (0, 0.4)).pvalue)
    if intercept:
        tests.append(kstest(mean[far, 0], "uniform", (-0.4, 0.8)).pvalue)
    assert min(tests) > 1e-6


@pytest.mark.parametrize("d", [3, 30])
def test_real_rows_are_within_their_bounds(d, data_folder):
    study = study_of(d, True, 1.0, "gaussian", False)
    rng = np.random.default_rng(2)
    for _ in range(20):
        x = draw_rows(study, 1, 50, "real", rng)
        assert x.shape == (1, 50, d)
        assert np.abs(x).max() <= 1.0


def test_real_rows_name_the_variable_that_they_need(monkeypatch):
    monkeypatch.delenv("NOISEWISE_DATA", raising=False)
    with pytest.raises(SystemExit, match="NOISEWISE_DATA"):
        draw_rows(study_of(3, True, 1.0, "gaussian", False), 1, 50, "real", np.random.default_rng(2))


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
