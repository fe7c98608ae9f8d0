"""Posteriors as netCDF files and as ArviZ objects.

The file is ArviZ's own layout (a group ``posterior`` with dimensions chain and draw), so any of its users can open it;
what it takes to predict later (study, units, prior) rides along as one JSON attribute.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise.analyst.diagnostics import import_arviz
from noisewise.analyst.prior import ScaledPrior
from noisewise.analyst.units import Units
from noisewise.errors import FitError, NoisewiseError, OutputError
from noisewise.study import Study

if TYPE_CHECKING:
    import arviz
    import xarray

    from noisewise.analyst.posterior import Posterior

FORMAT = "noisewise-posterior"
VERSION = 1


def to_dataset(posterior: "Posterior") -> "xarray.Dataset":
    """The draws as an xarray Dataset."""
    import xarray

    values = posterior.draws_
    return xarray.Dataset(
        {
            "intercept": (("chain", "draw"), values[..., 0]),
            "coef": (("chain", "draw", "feature"), values[..., 1:-1]),
            "sigma": (("chain", "draw"), values[..., -1]),
        },
        coords={
            "chain": np.arange(values.shape[0]),
            "draw": np.arange(values.shape[1]),
            "feature": np.array(posterior.names, dtype=object),
        },
        attrs={"inference_library": "noisewise", "noisewise": json.dumps(_metadata(posterior))},
    )


def to_arviz(posterior: "Posterior") -> "arviz.InferenceData":
    data: arviz.InferenceData = import_arviz().InferenceData(posterior=to_dataset(posterior))
    return data


def save(posterior: "Posterior", path: str | Path) -> None:
    try:
        to_dataset(posterior).to_netcdf(path, group="posterior", engine="h5netcdf", mode="w")
    except OSError as error:
        raise OutputError(f"{path}: can't be written ({error.strerror or error}); choose another place.") from None


def load(path: str | Path) -> "Posterior":
    import xarray

    from noisewise.analyst.posterior import Posterior

    try:
        with xarray.open_dataset(path, group="posterior", engine="h5netcdf") as opened:
            data = opened.load()
        meta = json.loads(data.attrs["noisewise"])
        if meta["format"] != FORMAT or meta["version"] != VERSION:
            raise FitError(f"{path}: a posterior of version {meta['version']}, which this package does not read.")
        draws = np.concatenate(
            [data["intercept"].values[..., None], data["coef"].values, data["sigma"].values[..., None]], axis=2
        )
        units: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in meta["units"].items()}
        prior: dict[str, Any] = {key: np.array(v) if isinstance(v, list) else v for key, v in meta["prior"].items()}
        return Posterior(
            method=meta["method"],
            units=Units(**units),
            study=None if meta["study"] is None else Study.from_dict(meta["study"], str(path)),
            prior=ScaledPrior(**prior),
            draws_=draws,
            noise_free=np.array(meta["noise_free"]),
            independent=meta["independent"],
            counts_noise=meta["counts_noise"],
            notes=tuple(meta["notes"]),
            statistics={key: np.array(value) for key, value in meta["statistics"].items()},
            point=meta["point"],
        )
    except NoisewiseError:
        raise
    except FileNotFoundError:
        raise FitError(f"{path}: no such file; 'noisewise fit ... --output {path}' writes one.") from None
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise FitError(f"{path}: not a posterior that noisewise wrote, or damaged ({type(error).__name__}).") from None


def _metadata(posterior: "Posterior") -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "method": posterior.method,
        "study": posterior.study.to_dict() if posterior.study else None,
        "units": asdict(posterior.units),
        "prior": {key: np.asarray(value).tolist() for key, value in posterior.prior._asdict().items()},
        "noise_free": posterior.noise_free.tolist(),
        "independent": posterior.independent,
        "counts_noise": posterior.counts_noise,
        "notes": list(posterior.notes),
        "point": posterior.point,
        "statistics": {key: np.asarray(value).tolist() for key, value in posterior.statistics.items()},
    }
