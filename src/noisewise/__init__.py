"""Differentially private Bayesian linear regression over distributed data.

    import noisewise as nw

Holders make releases (``Holder``), analysts fit them (``fit``), both agree on a ``Study`` first. Names are loaded when
they are first used, so that a holder pays for no sampler and an analyst for no table reader.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisewise.analyst.fitting import fit
    from noisewise.analyst.posterior import Posterior
    from noisewise.analyst.prior import Prior
    from noisewise.column import Column
    from noisewise.errors import (
        DataError,
        FitError,
        LedgerError,
        MismatchError,
        NoisewiseError,
        NoisewiseWarning,
        OutputError,
        OverspendError,
        ReleaseError,
        StudyError,
        UnrecordedSpendWarning,
    )
    from noisewise.estimator import PrivateBayesianRegression
    from noisewise.evaluation.planning import suggest_radius
    from noisewise.evaluation.projection import Projection
    from noisewise.holder.publish import Holder, exact_release
    from noisewise.privacy.ledger import Ledger
    from noisewise.release import Release
    from noisewise.study import Study

__version__ = "0.1.0"

__all__ = [
    "Column",
    "DataError",
    "FitError",
    "Holder",
    "Ledger",
    "LedgerError",
    "MismatchError",
    "NoisewiseError",
    "NoisewiseWarning",
    "OutputError",
    "OverspendError",
    "Posterior",
    "Prior",
    "PrivateBayesianRegression",
    "Projection",
    "Release",
    "ReleaseError",
    "Study",
    "StudyError",
    "UnrecordedSpendWarning",
    "exact_release",
    "fit",
    "suggest_radius",
]

_HOME = {
    "Column": "column",
    "Study": "study",
    "Holder": "holder.publish",
    "exact_release": "holder.publish",
    "Ledger": "privacy.ledger",
    "Release": "release",
    "Prior": "analyst.prior",
    "Posterior": "analyst.posterior",
    "fit": "analyst.fitting",
    "suggest_radius": "evaluation.planning",
    "Projection": "evaluation.projection",
    "PrivateBayesianRegression": "estimator",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'noisewise' has no attribute {name!r}")
    value = getattr(import_module(f"noisewise.{_HOME.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
