"""noisewise fit and predict, on files that release wrote."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import csv

import noisewise as nw
from noisewise.evaluation.hospitals import HOSPITALS, draw_hospital, hypertension_study
from noisewise.privacy.noise import SimulatedNoise

NEW = "smoking,age,bmi,female\nnever,35,22.5,true\ncurrent,52,27.0,false\n"


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three hospitals' releases with noise that is repeatable."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    names = []
    for hospital in HOSPITALS:
        holder = nw.Holder(hypertension_study(), ledger=None, name=hospital.name, noise=SimulatedNoise(rng))
        names.append(f"{hospital.name}.json")
        with pytest.warns(nw.UnrecordedSpendWarning):
            holder.release(draw_hospital(hospital, rng), names[-1])
    (tmp_path / "new.csv").write_text(NEW)
    return names


def test_fit_shows_the_librarys_summary(run: Any, releases: list[str]) -> None:
    result = run("fit", *releases, "--method", "fixed-s", "--seed", "5", "--json")
    assert result.exit_code == 0
    body = json.loads(result.stdout)
    assert body["rows"] == nw.fit(releases, "fixed-s", seed=5).summary(0.9).to_dict()["rows"]
    assert body["method"] == "fixed-s"
    for row in body["rows"][:-1]:
        assert row["sd"] ** 2 == pytest.approx(row["sampling_sd"] ** 2 + row["privacy_sd"] ** 2)


def test_fit_speaks_to_people(run: Any, releases: list[str]) -> None:
    result = run("fit", *releases, "--seed", "5", "--interval", "0.5")
    for words in ("3 releases, 9,400 rows", "protects nobody", "smoking[current]", "privacy", "50% from"):
        assert words in result.stdout
    assert "auto picked" in result.stderr


@pytest.mark.parametrize("method", ["fixed-s", "fixed-s-fast", "naive"])
def test_methods_by_name(run: Any, releases: list[str], method: str) -> None:
    assert json.loads(run("fit", *releases, "--method", method, "--json").stdout)["method"] == method


def test_method_options_reach_the_method(run: Any, releases: list[str]) -> None:
    chain = run(
        "fit",
        *releases,
        "--method",
        "fixed-s",
        "--option",
        "algorithm=mcmc",
        "--option",
        "warmup=200",
        "--draws",
        "200",
        "--seed",
        "1",
    )
    assert "R-hat" in chain.stderr
    wrong = run("fit", *releases, "--option", "nonsense=1")
    assert wrong.exit_code == 2
    assert "no option 'nonsense'" in wrong.stderr
    assert run("fit", *releases, "--option", "warmup").exit_code == 2
    assert "--draws" in run("fit", *releases, "--option", "draws=5").stderr


def test_priors_matter_and_are_checked(run: Any, releases: list[str]) -> None:
    tight = run("fit", *releases, "--prior-covariance", "1e-9", "--prior-mean", "0,0,0,0.5,0,0", "--json")
    rows = {row["name"]: row["mean"] for row in json.loads(tight.stdout)["rows"]}
    assert rows["female"] == pytest.approx(0.5 * 60 / 0.5, rel=1e-3)
    user = run("fit", *releases, "--prior-units", "user", "--prior-mean", "0,0.7,0,0,0,0", "--prior-covariance",
               "1e6,1e-9,1e6,1e6,1e6,1e6", "--json")  # fmt: skip
    assert json.loads(user.stdout)["rows"][1]["mean"] == pytest.approx(0.7, abs=1e-3)
    for arguments, words in (
        (["--prior-mean", "1,2"], "Prior mean of shape (2,)"),
        (["--prior-mean", "many"], "'many' is not a number"),
        (["--prior-covariance", "-1"], "not symmetric and positive definite"),
        (["--prior-shape", "0"], "Prior shape is 0"),
        (["--prior-units", "feet"], "feet"),
        (["--interval", "90"], "interval is 90"),
        (["--method", "magic"], "Method 'magic' is not known"),
    ):
        result = run("fit", *releases, *arguments)
        assert result.exit_code == 2
        assert words in result.stderr.replace("\n", " ")


def test_plots_and_posterior_are_written(run: Any, releases: list[str]) -> None:
    result = run("fit", *releases, "--method", "naive", "--output", "posterior.nc", "--plots", "plots/here", "--json")
    plots = [f"plots/here/{name}.png" for name in ("marginals", "prediction-age", "prediction-bmi")]
    assert json.loads(result.stdout)["written"] == ["posterior.nc", *plots]
    assert all(Path(plot).read_bytes().startswith(b"\x89PNG") for plot in plots)
    assert nw.Posterior.load("posterior.nc").method == "naive"


def test_bad_releases_are_refused_in_words(run: Any, releases: list[str]) -> None:
    text = Path(releases[0]).read_text()
    Path("cut.json").write_text(text[:500])
    Path("changed.json").write_text(text.replace('"holder": "city"', '"holder": "town"'))
    Path("foreign.json").write_text('{"hello": 1}')
    other = nw.exact_release(nw.Study((nw.Column("x", 0, 1),), nw.Column("y", 0, 1), 1.0, 1e-6), np.full((20, 2), 0.5))
    other.save("other.json")
    for files, words in (
        (["absent.json"], "absent.json: can't be read"),
        (["cut.json"], "cut off before its end"),
        (["changed.json"], "does not match its digest"),
        (["foreign.json"], "not a noisewise release"),
        ([releases[0], "other.json"], "of another study"),
        ([releases[0], releases[0]], "each may be counted once"),
    ):
        result = run("fit", *files, "--output", "posterior.nc")
        assert result.exit_code == 2
        assert result.stdout == ""
        assert words in result.stderr
    assert not Path("posterior.nc").exists()


def test_unwritable_outputs_are_told(run: Any, releases: list[str]) -> None:
    Path("file").write_text("")
    assert "can't be written" in run("fit", *releases, "--output", "absent/posterior.nc").stderr
    result = run("fit", *releases, "--plots", "file/plots")
    assert result.exit_code == 2
    assert "choose another folder" in result.stderr


def test_predict_gives_the_librarys_numbers(run: Any, releases: list[str]) -> None:
    assert run("fit", *releases, "--seed", "5", "--output", "posterior.nc").exit_code == 0
    posterior = nw.Posterior.load("posterior.nc")
    people = {"age": [35, 52], "bmi": [22.5, 27.0], "female": [1, 0], "smoking": ["never", "current"]}
    body = json.loads(run("predict", "posterior.nc", "new.csv", "--interval", "0.8", "--json").stdout)
    wanted = posterior.predict(people, interval=0.8)
    for part in ("mean", "sd", "lower", "upper"):
        assert body[part] == pytest.approx(getattr(wanted, part))
    new = json.loads(run("predict", "posterior.nc", "new.csv", "--kind", "new", "--json").stdout)
    assert np.all(np.array(new["sd"]) > np.array(body["sd"]))
    text = run("predict", "posterior.nc", "new.csv").stdout
    assert "The regression line" in text
    assert "90% from" in text


def test_predict_writes_the_rows_with_their_predictions(run: Any, releases: list[str]) -> None:
    assert run("fit", *releases, "--output", "posterior.nc").exit_code == 0
    result = run("predict", "posterior.nc", "new.csv", "--output", "out.csv")
    assert result.exit_code == 0
    assert "wrote out.csv: 2 rows" in result.stderr
    table = csv.read_csv("out.csv")
    added = ["predicted_mean", "predicted_sd", "predicted_lower", "predicted_upper"]
    assert table.schema.names == ["smoking", "age", "bmi", "female", *added]
    assert run("predict", "posterior.nc", "out.csv", "--output", "again.csv").exit_code == 0
    assert csv.read_csv("again.csv").schema.names == table.schema.names


def test_predict_shows_twenty_rows_and_tells_of_the_rest(run: Any, releases: list[str]) -> None:
    assert run("fit", *releases, "--output", "posterior.nc").exit_code == 0
    header, *rows = NEW.splitlines()
    Path("many.csv").write_text("\n".join([header, *(rows * 15)]) + "\n")
    result = run("predict", "posterior.nc", "many.csv")
    assert len(result.stdout.splitlines()) == 24
    assert "10 more rows" in result.stderr


def test_predict_refuses_in_words(run: Any, releases: list[str]) -> None:
    assert run("fit", *releases, "--output", "posterior.nc").exit_code == 0
    Path("short.csv").write_text("age,bmi\n35,22.5\n")
    Path("wrong.csv").write_text(NEW.replace("current", "pipe"))
    Path("text.csv").write_text(NEW.replace("27.0", "heavy"))
    Path("hole.csv").write_text(NEW.replace("27.0", ""))
    for arguments, words in (
        (["posterior.nc", "absent.csv"], "absent.csv: no such file"),
        (["absent.nc", "new.csv"], "absent.nc: no such file"),
        (["new.csv", "new.csv"], "not a posterior"),
        (["posterior.nc", "short.csv"], "Column 'female' is missing"),
        (["posterior.nc", "wrong.csv"], "Column 'smoking', row 2"),
        (["posterior.nc", "text.csv"], "Column 'bmi' holds text"),
        (["posterior.nc", "hole.csv"], "Column 'bmi', row 2: missing"),
        (["posterior.nc", "new.csv", "--interval", "2"], "interval is 2"),
        (["posterior.nc", "new.csv", "--output", "absent/out.csv"], "absent/out.csv: can't be written"),
    ):
        result = run("predict", *arguments)
        assert result.exit_code == 2
        assert words in result.stderr


def test_predict_reads_levels_that_look_like_numbers(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = nw.Study((nw.Column.categorical("ward", ["01", "02"]),), nw.Column("y", 0, 1), 1.0, 1e-6)
    nw.exact_release(study, {"ward": ["01", "02"] * 50, "y": [0.2, 0.7] * 50}).save("exact.json")
    Path("wards.csv").write_text("ward\n02\n01\n")
    assert run("fit", "exact.json", "--output", "posterior.nc").exit_code == 0
    body = json.loads(run("predict", "posterior.nc", "wards.csv", "--json").stdout)
    assert body["mean"] == pytest.approx([0.7, 0.2], abs=0.05)


def test_statistics_from_elsewhere_are_fitted_and_predicted_without_a_study(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    release = nw.Release.from_statistics(S=[[900.0, 0.0], [0.0, 900.0]], z=[450.0, 90.0], n=1000, sd_S=5.0, sd_z=5.0)
    release.save("elsewhere.json")
    Path("x.csv").write_text("x1,x2\n0.5,0.0\n0.0,1.0\n")
    result = run("fit", "elsewhere.json", "--output", "posterior.nc", "--plots", "plots")
    assert "made elsewhere: no guarantee is stated here" in result.stdout
    body = json.loads(run("predict", "posterior.nc", "x.csv", "--json").stdout)
    assert body["mean"] == pytest.approx([0.25, 0.1], abs=0.05)


@pytest.mark.filterwarnings("ignore::noisewise.errors.UnrecordedSpendWarning")
def test_a_point_estimate_shows_no_interval(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = nw.Study((nw.Column("x", 0, 1),), nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6, smallest_eigenvalue=0.3)
    x = np.linspace(0, 1, 500)
    nw.Holder(study, ledger=None).release({"x": x, "y": 0.2 + 0.5 * x}, "r.json")
    result = run("fit", "r.json", "--method", "adassp", "--output", "p.nc")
    assert "Point estimate by adassp" in result.stdout
    assert "nan" not in result.stdout
    assert "there is no posterior, no interval" in result.stderr
    body = json.loads(run("fit", "r.json", "--method", "adassp", "--json").stdout)
    assert body["point"] is True
    assert {row["sd"] for row in body["rows"]} == {None}
    Path("new.csv").write_text("x\n0.5\n")
    predicted = json.loads(run("predict", "p.nc", "new.csv", "--json").stdout)
    assert predicted["sd"] == predicted["lower"] == [None]
    refused = run("fit", "r.json", "--method", "adassp", "--plots", "plots")
    assert refused.exit_code == 2
    assert "there is no distribution to draw a picture of" in refused.stderr
