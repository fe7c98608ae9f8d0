"""Hard and wrong input, for every method: a clear error, tested by its words, or finite draws of a proper posterior."""

from typing import Any

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.fitting import METHODS

QUICK: dict[str, dict[str, Any]] = {
    "exact": {"warmup": 100},
    "individual": {"warmup": 100},
    "gibbs-prior": {"warmup": 100, "thin": 1},
    "gibbs-update": {"warmup": 100, "thin": 1},
    "normal-x": {"warmup": 100, "thin": 1},
}
BY_STATISTICS = sorted({*METHODS} - {"adassp", "gibbs-noisy"})  # these two need statistics of their own


def release(
    S: Any = ((30.0, 1.0), (1.0, 40.0)), z: Any = (1.0, 2.0), n: int = 100, sd: float = 5.0, **other: Any
) -> nw.Release:
    given = {"sd_S": sd, "sd_z": sd, "u": 60.0, "sd_u": sd, **other}
    if given["u"] is None:
        del given["u"], given["sd_u"]
    return nw.Release.from_statistics(np.array(S), z, n, **given)


ONE_ROW = {"S": ((0.5, 0.1), (0.1, 0.3)), "n": 1, "u": 1.0}
INPUTS: dict[str, list[nw.Release]] = {
    "plain": [release()],
    "no y'y": [release(u=None)],
    "laplace": [release(noise="laplace")],
    "fewer rows than features": [release(S=3.0 * np.eye(5), z=np.ones(5), n=3, u=6.0)],
    "a holder with fewer rows than features": [release(), release(**ONE_ROW)],
    "singular S": [release(S=((30.0, 30.0), (30.0, 30.0)))],
    "indefinite S": [release(S=((-30.0, 10.0), (10.0, 5.0)), n=20)],
    "negative S and y'y": [release(S=((-30.0, 0.0), (0.0, -5.0)), n=20, u=-20.0)],
    "no noise": [release(sd=0.0)],
    "no noise on S": [release(sd_S=0.0)],
    "next to no noise": [release(sd=1e-9)],
    "huge noise": [release(S=((3e12, 1e11), (1e11, -4e12)), z=(1e12, -2e12), u=-3e12, sd=1e12)],
}
NOISY = "these releases carry noise.*'fixed-s'"
GAUSSIAN = "under Gaussian noise, and these releases have Laplace noise.*method 'exact'"
CONJUGATE = "no noise, so their posterior is conjugate.*'non-private'"
REFUSED: dict[tuple[str, str], str] = {
    **{("non-private", case): NOISY for case in INPUTS if case != "no noise"},
    **{("gibbs-" + kind, "no y'y"): "needs y'y.*release_yy = true.*exact" for kind in ("prior", "update")},
    **{(name, "laplace"): f"{name} .*{GAUSSIAN}" for name in ("fixed-s", "fixed-s-fast", "normal-x")},
    **{(name, "no noise"): CONJUGATE for name in ("exact", "individual")},
    ("normal-x", "no noise"): "some entries of S here have no noise.*'non-private'",
    ("normal-x", "no noise on S"): "some entries of S here have no noise.*'fixed-s'",
    ("individual", "no noise on S"): "some entries here have no noise.*'exact'",
    ("individual", "next to no noise"): "less than a thousandth.*'exact'",
    ("normal-x", "fewer rows than features"): "has 3 rows.*at least 5.*'exact'",
    ("normal-x", "a holder with fewer rows than features"): "Release 2 has 1 rows.*at least 2.*'exact'",
}


@pytest.mark.parametrize("case", INPUTS)
@pytest.mark.parametrize("name", BY_STATISTICS)
def test_a_clear_error_or_a_proper_posterior(name: str, case: str) -> None:
    def fit() -> nw.Posterior:
        return nw.fit(INPUTS[case], method=name, draws=50, chains=2, seed=1, **QUICK.get(name, {}))

    if (name, case) in REFUSED:
        with pytest.raises(nw.FitError, match=REFUSED[name, case]):
            fit()
        return
    found = fit()
    assert np.isfinite(found.coef).all()
    assert np.isfinite(found.sigma).all()
    assert (found.sigma > 0).all()
    assert (found.coef.std(axis=(0, 1)) > 0).all()


@pytest.mark.parametrize("name", BY_STATISTICS)
@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ({"mean": [0.0, 0.0, 0.0]}, r"mean of shape \(3,\).*or 2 of them, for x1, x2"),
        ({"covariance": np.eye(3)}, r"covariance of shape \(3, 3\).*2 variances or a 2 x 2 matrix"),
        ({"covariance": [[1.0, 2.0], [2.0, 1.0]]}, "not symmetric and positive definite"),
        ({"covariance": [1.0, -1.0]}, "every variance is above 0"),
    ],
)
def test_priors_of_another_shape_are_refused(name: str, prior: dict[str, Any], words: str) -> None:
    with pytest.raises(nw.FitError, match=words):
        nw.fit(release(), method=name, prior=nw.Prior(**prior))
