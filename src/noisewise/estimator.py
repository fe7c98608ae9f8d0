"""The regression as a scikit-learn estimator: one holder, who publishes and fits in one call.

``fit`` is a release followed by a fit of it, so each call of ``fit`` spends privacy budget, and what it learns is what
the release tells: the estimator keeps no row. scikit-learn is loaded with this module and not with ``noisewise``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"PrivateBayesianRegression needs scikit-learn, and there is no module {error.name!r}; install "
        "noisewise[sklearn]."
    ) from None

from noisewise.analyst.fitting import fit as fit_releases
from noisewise.analyst.prior import Prior
from noisewise.analyst.units import design
from noisewise.column import Column
from noisewise.errors import DataError, StudyError
from noisewise.gram import Floats, Layout
from noisewise.holder.publish import Holder
from noisewise.privacy.calibration import plan_noise
from noisewise.privacy.ledger import Ledger
from noisewise.release import Release
from noisewise.study import Study

Bounds = Sequence[float] | Sequence[Sequence[float]] | Mapping[str, Sequence[float]]

# What a study says; with a study they are said there and nowhere else.
_SAID_BY_STUDY = (
    "bounds",
    "target_bounds",
    "epsilon",
    "delta",
    "mechanism",
    "adjacency",
    "radius",
    "fit_intercept",
)

# Messages of scikit-learn that quote values of the table, and what is said instead.
_QUOTING = {
    "could not convert": "X or y holds text where numbers are expected; a study can declare columns as categorical.",
    "Complex data not supported": "Complex data not supported: X and y hold real numbers.",
}


# scikit-learn ships no types, so to mypy its classes are Any.
class PrivateBayesianRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Bayesian linear regression whose fit satisfies differential privacy.

    Every call of ``fit`` makes one release of the data and spends its (epsilon, delta). Folds of a cross-validation and
    points of a grid are calls of ``fit``.

    Parameters
    ----------
    study : Study, default=None
        The public contract: columns, bounds, budget. Leave it out and give ``bounds`` and ``target_bounds`` to have one
        made. With a study, X has its feature columns in its order; if some are categorical, X is a data frame.
    bounds : (lower, upper), or one such pair a column, or dict of column name to pair, default=None
        Public bounds of the columns of X. They are never read off the data; values beyond them are clipped.
    target_bounds : (lower, upper), default=None
        Public bounds of y.
    epsilon, delta : float, default=None
        The budget of one fit. None is the study's; without a study it is 1.0 and, for Gaussian noise, 1e-6.
    mechanism : {"gaussian", "laplace"}, default=None
        The noise. None is the study's; without a study Gaussian.
    adjacency : {"replace-one", "add-remove"}, default=None
        Whom the guarantee protects. None is the study's; without a study "replace-one".
    radius : float, default=None
        Rows are shrunk to this norm, in scaled units; None is the study's, without a study the largest norm.
    fit_intercept : bool, default=None
        Whether the model has a constant. None is the study's; without a study True. Without it the line passes through
        the centre of all bounds, so ``intercept_`` is not 0.
    method : str, default="auto"
        How ``noisewise.fit`` treats the release.
    prior : Prior, default=None
        What is believed beforehand; None is ``Prior()``.
    ledger : path or Ledger, default=None
        Where spending is recorded and limited. Without one, every fit warns.
    draws, chains : int
        How many posterior draws there are in each chain, and how many chains.
    random_state : int, RandomState or None, default=None
        Seeds the posterior's draws. Privacy noise is never seeded, so two fits differ whatever this is.

    Attributes
    ----------
    coef_ : ndarray
        Posterior mean of the coefficients, named by ``posterior_.names``: one for each column, or for each level but
        the baseline of a categorical column.
    intercept_, sigma_ : float
        Posterior means of the intercept and of the residual standard deviation.
    posterior_ : Posterior
        All draws, with ``summary()``, intervals and plots.
    release_ : Release
        What the data told: all that the above is made from.
    study_ : Study
        The study given, or the one made from the bounds.
    n_features_in_ : int
        How many columns X had.
    feature_names_in_ : ndarray
        Their names, if X was a data frame.
    """

    def __init__(
        self,
        study: Study | None = None,
        *,
        bounds: Bounds | None = None,
        target_bounds: Sequence[float] | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        mechanism: str | None = None,
        adjacency: str | None = None,
        radius: float | None = None,
        fit_intercept: bool | None = None,
        method: str = "auto",
        prior: Prior | None = None,
        ledger: str | Path | Ledger | None = None,
        draws: int = 1000,
        chains: int = 4,
        random_state: Any = None,
    ) -> None:
        self.study = study
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.adjacency = adjacency
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.method = method
        self.prior = prior
        self.ledger = ledger
        self.draws = draws
        self.chains = chains
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Release the table (X, y), which spends the budget, and fit the release."""
        self._check_parameters()
        study, table, rows = self._study_and_table(X, y)
        seed = _seed(self.random_state)
        self._rehearse(study, rows)
        release = self._release(study, table)
        posterior = fit_releases(release, self.method, self.prior, draws=self.draws, chains=self.chains, seed=seed)
        self.study_ = study
        self.release_ = release
        self.posterior_ = posterior
        self.coef_ = posterior.coef.mean(axis=0)
        self.intercept_ = float(posterior.intercept.mean())
        self.sigma_ = float(posterior.sigma.mean())
        return self

    def predict(self, X: Any, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """The posterior mean at each row of X; with ``return_std`` also the standard deviation of a new observation.

        As in ``BayesianRidge`` it counts the residual and what is not known of the coefficients. For the line alone,
        and for intervals, use ``posterior_.predict``.
        """
        check_is_fitted(self)
        features = design(self.study_, len(self.coef_), self._rows(X))
        mean = features @ self.coef_ + self.intercept_
        if not return_std:
            return np.asarray(mean)
        draws = self.posterior_.flat[:, :-1]  # intercept, coef
        # R of a QR factorisation: |R (1, x)| is the line's deviation over draws, with no difference of large squares
        root = np.linalg.qr(draws - draws.mean(axis=0), mode="r") / np.sqrt(len(draws))
        line = features @ root[:, 1:].T + root[:, 0]
        variance = (line**2).sum(axis=1) + (self.posterior_.sigma**2).mean()
        return np.asarray(mean), np.sqrt(variance)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # privacy noise can't be seeded
        tags.regressor_tags.poor_score = True  # on the 200 rows that the tag speaks of, the noise outweighs the data
        if isinstance(self.study, Study):
            tags.input_tags.allow_nan = self.study.missing != "refuse"
            tags.input_tags.categorical = tags.input_tags.string = _has_levels(self.study)
        return tags

    def _check_parameters(self) -> None:
        if self.study is None:
            if self.bounds is None or self.target_bounds is None:
                lacking = "bounds" if self.bounds is None else "target_bounds"
                raise StudyError(
                    f"{lacking} are missing, and they are never read off the data: the smallest and the largest value "
                    "are somebody's. Give what is known without looking: bounds=(lower, upper) for all columns of X, "
                    "one pair for each, or a dict of column name to pair, and target_bounds=(lower, upper) for y; or a "
                    "study."
                )
            return
        if not isinstance(self.study, Study):
            raise StudyError(
                f"study is a noisewise.Study, not a {type(self.study).__name__}; Study.load reads one from a file."
            )
        if twice := [name for name in _SAID_BY_STUDY if getattr(self, name) is not None]:
            raise StudyError(f"{twice[0]} is said by the study; leave it out here, or change the study.")

    def _study_and_table(self, X: Any, y: Any) -> tuple[Study, dict[str, Any], int]:
        """The study, the columns under its names, and how many rows there are."""
        if self.study is not None and _has_levels(self.study):
            return self._frame(self.study, X, y)
        X, y = self._numbers(X, y)
        study = self._study_from_bounds() if self.study is None else self._checked_columns(self.study)
        columns = {column.name: X[:, i] for i, column in enumerate(study.features)}
        return study, {**columns, study.target.name: y}, len(y)

    def _numbers(self, X: Any, y: Any) -> tuple[Floats, Floats]:
        finite = "allow-nan" if self.study is not None and self.study.missing != "refuse" else True
        least = Study.min_rows if self.study is None else self.study.min_rows
        try:
            return cast(
                tuple[Floats, Floats],
                validate_data(
                    self, X, y, dtype=np.float64, y_numeric=True, ensure_all_finite=finite, ensure_min_samples=least
                ),
            )
        except ValueError as error:
            quoting = [words for words in _QUOTING if words in str(error)]
            if not quoting:
                raise
        # raised here, after the handler, since scikit-learn's message quotes values and would stay attached
        raise DataError(_QUOTING[quoting[0]])

    def _frame(self, study: Study, X: Any, y: Any) -> tuple[Study, dict[str, Any], int]:
        """Columns of a data frame as they are: its holder's side reads and checks them."""
        _need_frame(study, X)
        validate_data(self, X, y, skip_check_array=True)
        self._checked_columns(study)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_consistent_length(X, y)
        return study, {**{column.name: X[column.name] for column in study.features}, study.target.name: y}, len(y)

    def _checked_columns(self, study: Study) -> Study:
        """The study, if X has its feature columns in its order; so that ``coef_`` has that order too."""
        names = getattr(self, "feature_names_in_", None)
        if names is not None and list(names) != [column.name for column in study.features]:
            raise DataError(
                f"The columns of X are {', '.join(names)}; the study's are {_listed(study)}, in this order."
            )
        if self.n_features_in_ != len(study.features):
            raise DataError(f"X has {self.n_features_in_} columns; the study's are {_listed(study)}.")
        return study

    def _rows(self, X: Any) -> Any:
        """Rows to predict for, of the kind and with the columns that fit had."""
        if _has_levels(self.study_):
            _need_frame(self.study_, X)
            return validate_data(self, X, skip_check_array=True, reset=False)
        return validate_data(self, X, dtype=np.float64, reset=False)

    def _study_from_bounds(self) -> Study:
        named = getattr(self, "feature_names_in_", None)
        names = [f"x{i}" for i in range(self.n_features_in_)] if named is None else [str(name) for name in named]
        target = "y"
        while target in names:
            target += "_"
        mechanism = "gaussian" if self.mechanism is None else self.mechanism
        delta = 1e-6 if self.delta is None and mechanism == "gaussian" else self.delta
        return Study(
            features=tuple(Column(name, *pair) for name, pair in zip(names, _pairs(self.bounds, names), strict=True)),
            target=Column(target, *_pair(self.target_bounds, "target_bounds")),
            epsilon=1.0 if self.epsilon is None else self.epsilon,
            delta=delta,
            adjacency=cast(Any, "replace-one" if self.adjacency is None else self.adjacency),  # Study checks both
            mechanism=cast(Any, mechanism),
            intercept=True if self.fit_intercept is None else self.fit_intercept,
            radius=self.radius,
            name=type(self).__name__,
        )

    def _rehearse(self, study: Study, rows: int) -> None:
        """Fit made-up statistics, so that a bad method, prior or number of draws is found before budget is spent."""
        layout = Layout.of(study)
        one = study.average_rows * 4**study.bits
        third = round(rows / 3 * one)  # uniform columns with no relation between them
        values = np.zeros(len(layout.entries), dtype=np.int64)
        values[: len(layout.pairs)] = layout.pick(np.diag([rows * one, *[third] * (study.d + 1)]))
        made_up = Release.from_plan(study, values, plan_noise(study), holder="", insecure="made up")
        fit_releases(made_up, self.method, self.prior, draws=_once(self.draws), chains=_once(self.chains), seed=0)

    def _release(self, study: Study, table: Mapping[str, Any]) -> Release:
        return Holder(study, ledger=self.ledger).release(table)


def _has_levels(study: Study) -> bool:
    return any(column.kind == "categorical" for column in study.features)


def _need_frame(study: Study, X: Any) -> None:
    if not hasattr(X, "columns"):
        raise DataError(f"The study has categorical columns; give X as a data frame with {_listed(study)}.")


def _listed(study: Study) -> str:
    return ", ".join(column.name for column in study.features)


def _pairs(bounds: Any, names: Sequence[str]) -> list[tuple[float, float]]:
    """The bounds of each column."""
    if isinstance(bounds, Mapping):
        if unknown := [str(name) for name in bounds if name not in names]:
            raise StudyError(f"bounds name a column {unknown[0]!r} that X does not have; it has {', '.join(names)}.")
        if missing := [name for name in names if name not in bounds]:
            raise StudyError(f"Column {missing[0]!r} has no bounds; give each column of X a pair.")
        return [_pair(bounds[name], f"bounds of {name!r}") for name in names]
    shape = _shape(bounds)
    if shape == (2,):
        return [_pair(bounds, "bounds")] * len(names)
    if shape != (len(names), 2):
        raise StudyError(
            f"bounds of shape {shape} are neither one pair (lower, upper) nor one for each of {len(names)} columns; "
            f"their shape is (2,) or ({len(names)}, 2)."
        )
    return [_pair(pair, f"bounds of {name!r}") for pair, name in zip(bounds, names, strict=True)]


def _pair(bounds: Any, what: str) -> tuple[float, float]:
    if _shape(bounds) != (2,):
        raise StudyError(f"{what} are a pair of numbers (lower, upper); got {bounds!r}.")
    return float(bounds[0]), float(bounds[1])


def _shape(bounds: Any) -> tuple[int, ...] | None:
    try:
        return np.asarray(bounds, dtype=float).shape
    except (TypeError, ValueError):  # texts, ragged lists
        return None


def _seed(random_state: Any) -> int | None:
    """An integer is the seed itself, as in ``noisewise.fit``."""
    if random_state is None or (isinstance(random_state, int) and not isinstance(random_state, bool)):
        check_random_state(random_state)
        return random_state
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _once(count: Any) -> Any:
    """1 for a proper number of draws; what is not one stays as it is, to be refused."""
    return 1 if isinstance(count, int) and not isinstance(count, bool) and count > 1 else count
