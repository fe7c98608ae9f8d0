"""The scikit-learn estimator: scikit-learn's own checks, and what privacy adds to them."""

import math
import os
import pickle
import struct
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_methods_sample_order_invariance,
    check_methods_subset_invariance,
    parametrize_with_checks,
)

import noisewise as nw
from noisewise.holder.publish import Holder
from noisewise.privacy.noise import SimulatedNoise

pytestmark = pytest.mark.filterwarnings("ignore::noisewise.UnrecordedSpendWarning")

# Fitting twice gives two releases with noise of their own, and these checks compare the predictions of two fits: of the
# same table, or of the same numbers in another wrapping. With noise from a seed all of them pass (SeededRegression).
# That one passes by chance has a probability below 1e-9: predictions would have to agree to 1e-2 or better in as many
# directions as there are coefficients, where the noise moves them by about 1.
EXEMPT = {
    "check_fit_idempotent": "fits twice and compares; privacy noise can't be seeded",
    "check_regressors_int": "fits whole numbers and floats and compares; privacy noise can't be seeded",
    "check_regressor_data_not_an_array": "fits two wrappings of one array and compares; privacy noise can't be seeded",
    "check_supervised_y_2d": "fits y as a vector and as a column and compares; privacy noise can't be seeded",
}


class SeededRegression(nw.PrivateBayesianRegression):
    """The estimator with noise from a seed, which protects nobody: it shows that nothing but noise fails a check."""

    def _release(self, study: nw.Study, table: Mapping[str, Any]) -> nw.Release:
        return Holder(study, ledger=None, noise=SimulatedNoise(np.random.default_rng(0))).release(table)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        return tags


def exempt(estimator: object) -> dict[str, str]:
    return {} if isinstance(estimator, SeededRegression) else EXEMPT


BOUNDS = {"bounds": (-5, 5), "target_bounds": (-5, 5)}
# fixed-s, because it is quick
FEW = {"draws": 50, "chains": 1, "method": "fixed-s"}


@parametrize_with_checks(
    [nw.PrivateBayesianRegression(**BOUNDS, **FEW), SeededRegression(**BOUNDS, **FEW)],
    expected_failed_checks=exempt,
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        check_dataframe_column_names_consistency,
        # Left out for estimators with noise, though one fit is enough for them.
        check_methods_sample_order_invariance,
        check_methods_subset_invariance,
    ],
)
def test_checks_that_are_not_run_by_themselves(check: Any) -> None:
    check("PrivateBayesianRegression", nw.PrivateBayesianRegression(**BOUNDS, **FEW))


def test_the_check_that_needs_an_environment_of_its_own() -> None:
    # SciPy reads the variable when it is first imported, and without it the check above is skipped.
    program = """
import noisewise as nw
from sklearn.utils.estimator_checks import check_array_api_input

model = nw.PrivateBayesianRegression(bounds=(-5, 5), target_bounds=(-5, 5), draws=50)
check_array_api_input("PrivateBayesianRegression", model, "numpy", expect_only_array_outputs=False)
"""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_exempt_checks_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "estimator.md").read_text(encoding="utf-8")
    for check in (*EXEMPT, "check_pipeline_consistency", "check_array_api_input"):
        assert f"`{check}`" in page


def table(rows: int = 400, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    X = rng.uniform((18, 15), (90, 50), (rows, 2))
    return X, 60 + 0.5 * X[:, 0] + 1.0 * X[:, 1] + rng.normal(0, 8, rows)


def regression(**options: Any) -> nw.PrivateBayesianRegression:
    given = {"bounds": [(18, 90), (15, 50)], "target_bounds": (60, 200), **FEW}
    return nw.PrivateBayesianRegression(**{**given, **options})


STUDY = nw.Study(
    features=(
        nw.Column("age", 18, 90),
        nw.Column.boolean("female"),
        nw.Column.categorical("smoking", ["never", "former", "current"]),
    ),
    target=nw.Column("pressure", 60, 200),
    epsilon=1.0,
    delta=1e-6,
)


def patients(rows: int = 200) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(18, 90, rows),
            "female": rng.random(rows) < 0.5,
            "smoking": rng.choice(["never", "former", "current"], rows),
        }
    )
    return frame, pd.Series(80 + 0.5 * frame["age"] + rng.normal(0, 10, rows), name="pressure")


@pytest.fixture
def ledger(tmp_path: Path) -> nw.Ledger:
    return nw.Ledger.create(tmp_path / "clinic.ledger", dataset="clinic", epsilon=3.0, delta=1e-4)


class TestFit:
    def test_it_finds_the_coefficients(self) -> None:
        # In scaled units the noise's standard deviation is below 40 and the smallest eigenvalue of S above 5000, so the
        # coefficients move by less than 0.01 at one standard deviation. 0.15 is beyond 15 of them: below 1e-20.
        X, y = table(20_000)
        model = regression(draws=500, random_state=1).fit(X, y)
        assert model.coef_ == pytest.approx([0.5, 1.0], abs=0.15 * 70 / 17.5)
        centre = np.array([[54.0, 32.5]])
        assert model.predict(centre) == pytest.approx([60 + 27 + 32.5], abs=0.15 * 70)
        assert model.score(X, y) > 0.5

    def test_its_attributes_are_posterior_means(self) -> None:
        model = regression().fit(*table())
        posterior = model.posterior_
        assert model.coef_.tolist() == posterior.coef.mean(axis=0).tolist()
        assert (model.intercept_, model.sigma_) == (posterior.intercept.mean(), posterior.sigma.mean())
        assert posterior.draws_.shape == (1, 50, 4)
        assert (model.n_features_in_, posterior.names) == (2, ("x0", "x1"))
        assert model.release_.study == model.study_
        assert not model.release_.insecure
        assert not hasattr(model, "feature_names_in_")

    def test_what_was_chosen_is_in_the_study(self) -> None:
        chosen: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-5, "adjacency": "add-remove", "radius": 1.0}
        study = regression(**chosen, fit_intercept=False).fit(*table()).study_
        assert {key: getattr(study, key) for key in chosen} == chosen
        assert study.intercept is False
        plain = regression().fit(*table()).study_
        assert (plain.epsilon, plain.delta, plain.mechanism, plain.adjacency) == (1.0, 1e-6, "gaussian", "replace-one")
        assert (plain.intercept, plain.radius, plain.min_rows) == (True, math.sqrt(2), 10)

    def test_laplace_noise_needs_no_delta(self) -> None:
        model = regression(mechanism="laplace", method="auto").fit(*table())
        assert (model.study_.delta, model.release_.law, model.posterior_.method) == (0.0, "laplace", "exact")

    def test_without_an_intercept_the_line_passes_through_the_centre(self) -> None:
        model = regression(fit_intercept=False).fit(*table())
        assert model.predict([[54.0, 32.5]]) == pytest.approx([130.0])

    def test_method_and_prior_reach_the_fit(self) -> None:
        sure = nw.Prior(mean=[0.0, 0.25, 0.0], covariance=1e-8)
        model = regression(method="fixed-s-fast", prior=sure).fit(*table())
        assert model.posterior_.method == "fixed-s-fast"
        assert model.coef_ == pytest.approx([0.25 * 70 / 36, 0.0], abs=0.01)

    def test_it_keeps_no_row(self) -> None:
        X, y = table()
        kept = pickle.dumps(regression().fit(X, y))
        for value in (X[3, 0], X[7, 1], y[11]):
            assert struct.pack("<d", value) not in kept
            assert repr(float(value)).encode() not in kept


class TestBounds:
    def test_one_pair_or_one_a_column_or_a_name_each(self) -> None:
        X, y = table()
        frame = pd.DataFrame(X, columns=["age", "bmi"])
        everywhere = regression(bounds=(0, 100)).fit(X, y).study_
        assert everywhere == regression(bounds=np.array([0, 100])).fit(X, y).study_
        assert everywhere == regression(bounds=[(0, 100), (0, 100)]).fit(X, y).study_
        assert everywhere == regression(bounds={"x1": (0, 100), "x0": (0, 100)}).fit(X, y).study_
        assert [column.name for column in everywhere.features] == ["x0", "x1"]
        named = regression(bounds={"bmi": (15, 50), "age": (18, 90)}).fit(frame, y)
        assert named.study_.features == (nw.Column("age", 18, 90), nw.Column("bmi", 15, 50))
        assert named.feature_names_in_.tolist() == ["age", "bmi"]

    def test_the_target_has_a_name_of_its_own(self) -> None:
        X, y = table()
        frame = pd.DataFrame(X, columns=["y", "y_"])
        assert regression(bounds=(0, 100)).fit(frame, y).study_.target == nw.Column("y__", 60, 200)

    def test_the_data_have_no_say_in_the_study(self) -> None:
        X, y = table()
        assert regression().fit(X, y).study_ == regression().fit(10 * X - 400, 0.01 * y).study_

    @pytest.mark.parametrize("lacking", ["bounds", "target_bounds"])
    def test_they_are_never_read_off_the_data(self, lacking: str) -> None:
        with pytest.raises(
            nw.StudyError, match=f"^{lacking} are missing, and they are never read off the data"
        ) as error:
            regression(**{lacking: None}).fit(*table())
        assert isinstance(error.value, ValueError)
        assert "bounds=(lower, upper) for all columns of X" in str(error.value)
        assert "target_bounds=(lower, upper) for y; or a study" in str(error.value)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (
                {"bounds": [(0, 1)] * 3},
                "bounds of shape (3, 2) are neither one pair (lower, upper) nor one for each of 2",
            ),
            ({"bounds": [0, 1, 2]}, "bounds of shape (3,) are neither one pair"),
            ({"bounds": "wide"}, "bounds of shape None are neither one pair"),
            ({"bounds": [(0, 1), (0, 1, 2)]}, "bounds of shape None are neither one pair"),
            ({"bounds": {"x0": (0, 1)}}, "Column 'x1' has no bounds; give each column of X a pair"),
            ({"bounds": {"x0": (0, 1), "x1": 5}}, "bounds of 'x1' are a pair of numbers (lower, upper); got 5"),
            ({"bounds": {"x0": (0, 1), "x1": (0, 1), "x2": (0, 1)}}, "bounds name a column 'x2' that X does not have"),
            ({"bounds": (90, 18)}, "Column 'x0': lower bound 90 is not below upper bound 18"),
            ({"bounds": (0, math.inf)}, "Column 'x0': upper bound inf is not a finite number"),
            ({"target_bounds": 5}, "target_bounds are a pair of numbers (lower, upper); got 5"),
            ({"target_bounds": (1, 1)}, "Column 'y': lower bound 1 is not below upper bound 1"),
            ({"epsilon": 0}, "epsilon 0 is out of range"),
            ({"delta": 1}, "delta 1 is out of range"),
            ({"mechanism": "laplace", "delta": 1e-6}, "Laplace mechanism has no delta"),
            ({"mechanism": "normal"}, "mechanism 'normal' is not known"),
            ({"adjacency": "swap"}, "adjacency 'swap' is not known"),
            ({"radius": 5}, "radius 5 is out of range"),
            ({"fit_intercept": "yes"}, "intercept is true or false; got 'yes'"),
        ],
    )
    def test_bad_choices_are_refused(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(nw.StudyError) as error:
            regression(**options).fit(*table())
        assert words in str(error.value)


class TestStudy:
    @pytest.mark.parametrize("as_polars", [False, True], ids=["pandas", "polars"])
    def test_categorical_columns_come_in_a_data_frame(self, as_polars: bool) -> None:
        frame, y = patients()
        X: Any = pl.DataFrame({name: frame[name].to_numpy() for name in frame}) if as_polars else frame
        model = nw.PrivateBayesianRegression(STUDY, **FEW).fit(X, y)
        assert model.study_ == STUDY
        assert model.posterior_.names == ("age", "female", "smoking[former]", "smoking[current]")
        assert model.coef_.shape == (4,)
        assert model.n_features_in_ == 3
        assert model.feature_names_in_.tolist() == ["age", "female", "smoking"]
        row = frame[:1].assign(age=40.0, female=True, smoking="current")
        asked: Any = pl.DataFrame({name: row[name].to_numpy() for name in row}) if as_polars else row
        expected = model.intercept_ + 40 * model.coef_[0] + model.coef_[1] + model.coef_[3]
        assert model.predict(asked) == pytest.approx([expected])
        mean, sd = model.predict(asked, return_std=True)
        assert (mean, sd) == (pytest.approx([expected]), pytest.approx([sd[0]]))

    def test_plain_numbers_may_come_in_an_array(self) -> None:
        study = nw.Study((nw.Column("age", 18, 90), nw.Column("bmi", 15, 50)), nw.Column("p", 60, 200), 1.0, 1e-6)
        X, y = table()
        assert nw.PrivateBayesianRegression(study, **FEW).fit(X, y).posterior_.names == ("age", "bmi")
        with pytest.raises(nw.DataError, match="X has 1 columns; the study's are age, bmi"):
            nw.PrivateBayesianRegression(study, **FEW).fit(X[:, :1], y)

    def test_columns_have_the_studys_order(self) -> None:
        frame, y = patients()
        for wrong in (frame[["smoking", "age", "female"]], frame.assign(other=1), frame[["age", "smoking"]]):
            with pytest.raises(nw.DataError, match="the study's are age, female, smoking, in this order"):
                nw.PrivateBayesianRegression(STUDY, **FEW).fit(wrong, y)
        model = nw.PrivateBayesianRegression(STUDY, **FEW).fit(frame, y)
        with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
            model.predict(frame[["smoking", "age", "female"]])

    def test_an_array_has_no_levels(self) -> None:
        frame, y = patients()
        model = nw.PrivateBayesianRegression(STUDY, **FEW)
        with pytest.raises(nw.DataError, match="give X as a data frame with age, female, smoking"):
            model.fit(frame.to_numpy(), y)
        model.fit(frame, y)
        with pytest.raises(nw.DataError, match="give X as a data frame with age, female, smoking"):
            model.predict(frame.to_numpy())

    def test_y_is_checked_with_a_data_frame_too(self) -> None:
        frame, y = patients()
        model = nw.PrivateBayesianRegression(STUDY, **FEW)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.fit(frame, y[:-1])
        with pytest.raises(ValueError, match="Input y contains NaN"):
            model.fit(frame, y.where(y.index > 0))
        with pytest.raises(ValueError, match="requires y to be passed"):
            model.fit(frame, None)
        with pytest.warns(DataConversionWarning, match="column-vector y"):
            model.fit(frame, y.to_numpy()[:, None])

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("bounds", (0, 1)),
            ("target_bounds", (0, 1)),
            ("epsilon", 1.0),
            ("delta", 1e-6),
            ("mechanism", "gaussian"),
            ("adjacency", "replace-one"),
            ("radius", 1.0),
            ("fit_intercept", True),
        ],
    )
    def test_what_it_says_is_not_said_twice(self, name: str, value: Any) -> None:
        with pytest.raises(
            nw.StudyError, match=f"^{name} is said by the study; leave it out here, or change the study"
        ):
            nw.PrivateBayesianRegression(STUDY, **{name: value}).fit(*patients())

    def test_it_is_no_path(self) -> None:
        with pytest.raises(nw.StudyError, match=r"study is a noisewise.Study, not a str; Study.load reads one"):
            nw.PrivateBayesianRegression("study.toml").fit(*patients())

    def test_its_missing_values(self) -> None:
        X, y = table()
        X[3, 0] = np.nan
        columns = (nw.Column("age", 18, 90), nw.Column("bmi", 15, 50))
        centre = nw.Study(columns, nw.Column("p", 60, 200), 1.0, 1e-6, missing="centre")
        model = nw.PrivateBayesianRegression(centre, **FEW)
        assert model.__sklearn_tags__().input_tags.allow_nan
        assert model.fit(X, y).release_.n == 400
        with pytest.raises(ValueError, match="Input X contains NaN"):
            model.predict(X)
        with pytest.raises(ValueError, match="Input X contains NaN"):
            regression().fit(X, y)


class TestPredict:
    def test_deviation_is_that_of_a_new_observation(self) -> None:
        X, y = table()
        model = regression(draws=400).fit(X, y)
        mean, sd = model.predict(X, return_std=True)
        assert mean.tolist() == model.predict(X).tolist()
        new = model.posterior_.predict(X, kind="new")
        assert mean == pytest.approx(new.mean, rel=1e-12)
        assert sd == pytest.approx(new.sd, rel=1e-9)
        line = model.posterior_.predict(X, kind="mean")
        assert (sd > line.sd).all()

    def test_far_from_zero_nothing_cancels(self) -> None:
        X, y = table()
        shifted = [(18 + 1e6, 90 + 1e6), (15 + 1e6, 50 + 1e6)]
        model = regression(bounds=shifted, draws=400).fit(X + 1e6, y)
        _, sd = model.predict(X + 1e6, return_std=True)
        # the line's draws subtract a millionfold slope from the intercept, which costs six of sixteen digits
        assert sd == pytest.approx(model.posterior_.predict(X + 1e6, kind="new").sd, rel=1e-6)

    def test_before_fit(self) -> None:
        with pytest.raises(NotFittedError):
            regression().predict([[40, 25]])

    def test_no_rows_at_all(self) -> None:
        with pytest.raises(ValueError, match="0 sample"):
            regression().fit(*table()).predict(np.empty((0, 2)))


class TestRandomness:
    def test_random_state_does_not_seed_privacy_noise(self) -> None:
        # Two of nine noisy entries agree with probability below 1e-9 each: the noise spans 2^32 steps and more.
        X, y = table()
        one, other = (regression(random_state=1).fit(X, y) for _ in range(2))
        assert one.release_.n == other.release_.n
        pairs = zip(one.release_.values[1:], other.release_.values[1:], strict=True)
        assert all(mine != theirs for mine, theirs in pairs)
        assert one.coef_.tolist() != other.coef_.tolist()

    def test_it_seeds_the_posteriors_draws(self) -> None:
        model = regression(random_state=3, draws=200, chains=2).fit(*table())
        again = nw.fit(model.release_, "fixed-s", seed=3, draws=200, chains=2)
        assert np.array_equal(again.draws_, model.posterior_.draws_)
        other = nw.fit(model.release_, "fixed-s", seed=4, draws=200, chains=2)
        assert not np.array_equal(other.draws_, model.posterior_.draws_)

    def test_a_random_state_object_is_used_up(self) -> None:
        X, y = table()
        state = np.random.RandomState(0)
        model = SeededRegression(**BOUNDS, **FEW, random_state=state)
        first, second = model.fit(X, y).coef_, model.fit(X, y).coef_
        assert first.tolist() != second.tolist()
        again = model.set_params(random_state=np.random.RandomState(0)).fit(X, y).coef_
        assert again.tolist() == first.tolist()

    @pytest.mark.parametrize("state", ["one", -1, 1.5])
    def test_what_is_no_random_state(self, state: Any, ledger: nw.Ledger) -> None:
        with pytest.raises(ValueError, match=r"cannot be used to seed|Seed must be between"):
            regression(random_state=state, ledger=ledger).fit(*table())
        assert ledger.summary().reservations == 0


class TestSpending:
    def test_without_a_ledger_every_fit_warns_once(self) -> None:
        X, y = table()
        model = regression()
        for _ in range(2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.fit(X, y)
            assert [warning.category for warning in caught] == [nw.UnrecordedSpendWarning]

    def test_a_ledger_records_and_limits(self, ledger: nw.Ledger, recwarn: pytest.WarningsRecorder) -> None:
        X, y = table()
        for given in (ledger, ledger.path, str(ledger.path)):
            model = regression(ledger=given, epsilon=1.0).fit(X, y)
            assert model.release_.ledger_entry in {entry.hash for entry in ledger.entries()}
        assert not [warning for warning in recwarn if issubclass(warning.category, nw.NoisewiseWarning)]
        assert (ledger.summary().reservations, ledger.summary().unconfirmed) == (3, 0)
        with pytest.raises(nw.OverspendError, match="asks for epsilon 8"):
            regression(ledger=ledger, epsilon=8.0).fit(X, y)
        assert ledger.summary().reservations == 3

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"method": "fixed-t"}, nw.FitError),
            ({"method": "non-private"}, nw.FitError),
            ({"method": "fixed-s", "mechanism": "laplace"}, nw.FitError),
            ({"prior": nw.Prior(mean=[0.0, 1.0])}, nw.FitError),
            ({"prior": nw.Prior(covariance=-1.0)}, nw.FitError),
            ({"draws": 0}, nw.FitError),
            ({"draws": "many"}, nw.FitError),
            ({"chains": 0}, nw.FitError),
            ({"epsilon": 1e-9, "mechanism": "laplace"}, nw.StudyError),
        ],
        ids=lambda value: str(value) if isinstance(value, dict) else value.__name__,
    )
    def test_bad_options_are_found_before_anything_is_spent(
        self, options: dict[str, Any], error: type[Exception], ledger: nw.Ledger
    ) -> None:
        with pytest.raises(error):
            regression(ledger=ledger, **options).fit(*table())
        assert ledger.summary().reservations == 0

    def test_a_bad_table_is_found_before_anything_is_spent(self, ledger: nw.Ledger) -> None:
        X, y = table()
        holes = X.copy()
        holes[5, 1] = np.nan
        for bad, target, words in (
            (holes, y, "Input X contains NaN"),
            (X, np.where(y > y[0], np.inf, y), "Input y contains infinity"),
            (X[:9], y[:9], r"Found array with 9 sample\(s\).*minimum of 10 is required"),
            (X[:20], y, "inconsistent numbers of samples"),
        ):
            with pytest.raises(ValueError, match=words):
                regression(ledger=ledger).fit(bad, target)
        assert ledger.summary().reservations == 0

    def test_errors_quote_no_value(self) -> None:
        X, y = table(20)
        text = X.astype(object)
        text[4, 1] = "Ms Smith"
        for bad in (text, pd.DataFrame(text, columns=["age", "bmi"]), text.tolist()):
            with pytest.raises(nw.DataError, match="X or y holds text where numbers are expected") as error:
                regression().fit(bad, y)
            assert error.value.__context__ is None
        with pytest.raises(nw.DataError, match="^Complex data not supported: X and y hold real numbers.$") as error:
            regression().fit(X + 1j, y)
        assert error.value.__context__ is None
        frame, pressure = patients()
        with pytest.raises(nw.DataError, match="Column 'smoking', row 8: the value is not one of the levels") as error:
            nw.PrivateBayesianRegression(STUDY).fit(
                frame.assign(smoking=frame["smoking"].where(frame.index != 7, "Smith")), pressure
            )
        assert "Smith" not in str(error.value)


class TestWithinScikitLearn:
    def test_clone_keeps_all_parameters(self, ledger: nw.Ledger) -> None:
        prior = nw.Prior(covariance=2.0)
        model = nw.PrivateBayesianRegression(STUDY, prior=prior, ledger=ledger, draws=10, chains=2, random_state=1)
        copied = clone(model)
        assert copied.study == STUDY
        assert copied.prior.covariance == 2.0
        copied.fit(*patients())
        assert ledger.summary().reservations == 1
        assert repr(clone(regression(epsilon=0.5))) == repr(regression(epsilon=0.5))

    def test_a_pipeline(self) -> None:
        X, y = table()
        squares = PolynomialFeatures(degree=2, include_bias=False)  # learns nothing from the data
        wide = [(18, 90), (15, 50), (0, 8100), (0, 4500), (0, 2500)]
        model = make_pipeline(squares, regression(bounds=wide)).fit(X, y)
        mean, sd = model.predict(X, return_std=True)
        assert mean.shape == sd.shape == (400,)
        assert model[-1].coef_.shape == (5,)

    def test_every_fold_spends(self, ledger: nw.Ledger) -> None:
        X, y = table()
        scores = cross_val_score(regression(ledger=ledger, epsilon=0.1), X, y, cv=4)
        assert np.isfinite(scores).all()
        assert ledger.summary().reservations == 4

    def test_a_ledger_stops_cross_validation(self, tmp_path: Path) -> None:
        X, y = table()
        # a path where there is no ledger gets one with room for a single fit
        model = regression(ledger=tmp_path / "new.ledger")
        with pytest.raises(nw.OverspendError):
            cross_val_score(model, X, y, cv=3, error_score="raise")
        assert nw.Ledger.open(tmp_path / "new.ledger").summary().reservations == 1

    def test_a_grid_search(self, ledger: nw.Ledger) -> None:
        X, y = table()
        grid = {"prior": [None, nw.Prior(covariance=0.1)], "epsilon": [0.1]}
        search = GridSearchCV(regression(ledger=ledger), grid, cv=2).fit(X, y)
        assert search.best_estimator_.coef_.shape == (2,)
        assert ledger.summary().reservations == 2 * 2 + 1


def test_without_scikit_learn_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['sklearn'] = None; import noisewise as nw; nw.PrivateBayesianRegression"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "PrivateBayesianRegression needs scikit-learn" in done.stderr
    assert "install noisewise[sklearn]" in done.stderr
