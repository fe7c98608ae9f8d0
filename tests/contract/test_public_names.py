"""The names that others rely on: they are there, light to get, documented, and take what they are promised to take."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.cli import app

# These may grow in number and never shrink.
PROMISED = {
    *("Column", "Study", "Holder", "Ledger", "Release", "Prior", "Posterior", "fit", "suggest_radius"),
    *("PrivateBayesianRegression", "Projection", "exact_release", "__version__"),
    *("NoisewiseError", "StudyError", "DataError", "OutputError", "LedgerError", "OverspendError", "ReleaseError"),
    *("MismatchError", "FitError", "NoisewiseWarning", "UnrecordedSpendWarning"),
}
HEAVY = {
    *("scipy", "pyarrow", "opendp", "dp_accounting", "arviz", "xarray", "matplotlib", "sklearn", "pandas", "polars"),
    *("numba", "nutpie", "typer", "rich"),
}
PUBLIC = sorted(nw.__all__)


def loaded_by(program: str) -> set[str]:
    """The top-level packages in a fresh interpreter after the program has run."""
    code = f"{program}\nimport json, sys; print(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_dir_shows_all_and_nothing_else() -> None:
    assert len(set(nw.__all__)) == len(nw.__all__)
    assert set(dir(nw)) == {*nw.__all__, "__version__"}


def test_promised_names_are_public() -> None:
    assert set(dir(nw)) >= PROMISED


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_resolves(name: str) -> None:
    value = getattr(nw, name)
    assert getattr(nw, name) is value
    assert value.__name__ == name
    assert not isinstance(value, ModuleType)
    assert value.__module__.startswith("noisewise.")


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'noisewise' has no attribute 'Hodler'"):
        nw.Hodler  # noqa: B018  (the access itself is what is tested)
    with pytest.raises(ImportError):
        exec("from noisewise import Hodler")


def test_import_star_gives_all() -> None:
    names: dict[str, Any] = {}
    exec("from noisewise import *", names)
    assert set(nw.__all__) <= set(names)


def test_the_version_reads_as_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+([.-]?\w+)*", nw.__version__)


def test_import_is_light() -> None:
    assert not loaded_by("import noisewise") & {*HEAVY, "numpy"}


def test_looking_a_name_up_is_light() -> None:
    names = [name for name in PUBLIC if name != "PrivateBayesianRegression"]
    assert not loaded_by(f"import noisewise\nfor name in {names}: getattr(noisewise, name)") & HEAVY


def test_the_estimator_brings_scikit_learn_and_nothing_else_does() -> None:
    assert "sklearn" in loaded_by("import noisewise; noisewise.PrivateBayesianRegression")


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_has_a_text(name: str) -> None:
    value = getattr(nw, name)
    text = inspect.getdoc(value)
    assert text
    assert not text.startswith(f"{name}("), "this is what dataclass writes where there is no text"
    if inspect.isclass(value):
        assert vars(value).get("__doc__"), "inherited from its parent"


# How the names may be called: positions first, then keywords. None of this runs; it has to fit the signatures.
CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (nw.Column, ("age", 0, 120), {}),
    (nw.Column, (), {"name": "age", "lower": 0, "upper": 120}),
    (nw.Column.boolean, ("smoker",), {}),
    (nw.Column.categorical, ("ward", ["a", "b"]), {"baseline": "a"}),
    (nw.Study, ([], None, 1.0, 1e-6), {}),
    (
        nw.Study,
        (),
        dict.fromkeys(
            (
                *("features", "target", "epsilon", "delta", "adjacency", "mechanism", "intercept", "radius"),
                *("release_yy", "missing", "min_rows", "name"),
            )
        ),
    ),
    (nw.Projection, (None,), {"share": 0.1}),
    (nw.Projection.project, (None, []), {"seed": 1, "repeats": 40}),
    (nw.Study.load, ("study.toml",), {}),
    (nw.Study.save, (None, "study.toml"), {}),
    (nw.Holder, (None,), {"ledger": "clinic.ledger", "name": "clinic"}),
    (nw.Holder, (None,), dict.fromkeys(("ledger", "name", "dataset", "extra_columns", "noise", "progress"))),
    (nw.Holder.release, (None, "table.csv"), {}),
    (nw.Holder.release, (None, "table.csv"), {"output": "release.json"}),
    (nw.Holder.dry_run, (None,), {}),
    (nw.Holder.dry_run, (None, "table.csv"), {}),
    (nw.exact_release, (None, "table.csv"), {}),
    (nw.Ledger.create, ("clinic.ledger",), dict.fromkeys(("dataset", "epsilon", "delta", "adjacency"))),
    (nw.Ledger.open, ("clinic.ledger",), {}),
    (nw.Ledger.verify, (None,), {}),
    (nw.Ledger.summary, (None,), {}),
    (nw.Release.load, ("release.json",), {}),
    (nw.Release.save, (None, "release.json"), {}),
    (nw.Release.from_statistics, (), dict.fromkeys(("S", "z", "n", "sd_S", "sd_z"))),
    (nw.Release.from_statistics, (), dict.fromkeys(("S", "z", "n", "sd_S", "sd_z", "u", "sd_u", "noise"))),
    (nw.Release.from_statistics, ([], [], 5, 1.0, 1.0, 2.0, 1.0, "gaussian"), {}),
    (nw.Prior, (), dict.fromkeys(("mean", "covariance", "shape", "scale", "units"))),
    (nw.Prior, (0.0, 1.0, 2.0, 0.1), {}),
    (nw.fit, ([],), dict.fromkeys(("method", "prior", "draws", "chains", "seed"))),
    (nw.fit, ([], "fixed-s"), {"algorithm": "mcmc"}),
    (nw.Posterior.summary, (None,), {"interval": 0.9}),
    (nw.Posterior.predict, (None, []), {"interval": 0.9, "kind": "new"}),
    (nw.Posterior.to_arviz, (None,), {}),
    (nw.Posterior.save, (None, "posterior.nc"), {}),
    (nw.Posterior.load, ("posterior.nc",), {}),
    (nw.Posterior.plot_marginals, (None,), {}),
    (nw.Posterior.plot_prediction, (None,), {"feature": "age"}),
    (nw.PrivateBayesianRegression, (None,), dict.fromkeys(("epsilon", "delta", "method", "ledger"))),
    (nw.PrivateBayesianRegression, (), dict.fromkeys(("study", "bounds", "target_bounds", "epsilon", "delta"))),
    (nw.PrivateBayesianRegression.fit, (None, [], []), {}),
    (nw.PrivateBayesianRegression.predict, (None, []), {"return_std": True}),
]


@pytest.mark.parametrize(
    ("function", "positions", "keywords"), CALLS, ids=lambda value: getattr(value, "__qualname__", "")
)
def test_promised_arguments_are_accepted(function: Any, positions: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    inspect.signature(function).bind(*positions, **keywords)


def test_defaults_that_people_rely_on() -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(nw.Study).parameters.items()}
    assert defaults["adjacency"] == "replace-one"
    assert defaults["mechanism"] == "gaussian"
    assert defaults["intercept"] is True
    assert defaults["missing"] == "refuse"
    assert inspect.signature(nw.Prior).parameters["units"].default == "scaled"
    assert inspect.signature(nw.Release.from_statistics).parameters["noise"].default == "gaussian"


def test_arviz_gets_the_promised_variables() -> None:
    release = nw.Release.from_statistics(S=100 * np.eye(2), z=[30.0, 10.0], n=300, sd_S=5.0, sd_z=5.0)
    posterior = nw.fit(release, draws=10, chains=2, seed=1).to_arviz().posterior
    assert {"coef", "intercept", "sigma"} <= set(posterior.data_vars)
    assert posterior["coef"].shape == (2, 10, 2)
    assert posterior["sigma"].shape == posterior["intercept"].shape == (2, 10)


def test_study_check_has_the_promised_keys(tmp_path: Path) -> None:
    study = nw.Study((nw.Column("age", 18, 100),), nw.Column("pressure", 70, 220), epsilon=1.0, delta=1e-6)
    study.save(tmp_path / "study.toml")
    done = CliRunner().invoke(app, ["study", "check", str(tmp_path / "study.toml"), "--json"])
    assert done.exit_code == 0, done.output
    assert {"sensitivity", "sigma", "adjacency", "entries"} <= set(json.loads(done.stdout))


def test_the_tree_of_errors() -> None:
    for name, parents in {
        "StudyError": (nw.NoisewiseError, ValueError),
        "DataError": (nw.NoisewiseError, ValueError),
        "OutputError": (nw.NoisewiseError, OSError),
        "LedgerError": (nw.NoisewiseError,),
        "OverspendError": (nw.LedgerError,),
        "ReleaseError": (nw.NoisewiseError, ValueError),
        "MismatchError": (nw.ReleaseError,),
        "FitError": (nw.NoisewiseError, ValueError),
        "NoisewiseWarning": (UserWarning,),
        "UnrecordedSpendWarning": (nw.NoisewiseWarning,),
    }.items():
        assert all(issubclass(getattr(nw, name), parent) for parent in parents), name
