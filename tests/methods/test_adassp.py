"""adassp: the ridge formula, its limits, a point estimate that does not pretend to be more, what it refuses."""

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.methods.adassp import AdaSSP
from noisewise.analyst.methods.base import Run
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior
from noisewise.evaluation.hospitals import HOSPITALS, draw_hospital, hypertension_study
from noisewise.layout import Layout
from noisewise.privacy.noise import SimulatedNoise


def study(d, **choices):
    columns = [nw.Column(f"x{i + 1}", -1, 1) for i in range(d)]
    made = {"smallest_eigenvalue": 0.3, "delta": 1e-6, "min_rows": 1, **choices}
    return nw.Study(columns, nw.Column("y", -1, 1), epsilon=1.0, **made)


def table(rng, n, d):
    X = rng.uniform(-1, 1, (n, d))
    y = np.clip(0.1 + X @ np.linspace(0.3, -0.2, d) + 0.1 * rng.standard_normal(n), -1, 1)
    return {**{f"x{i + 1}": X[:, i] for i in range(d)}, "y": y}


def releases(made, rng, sizes=(500, 300)):
    return [
        nw.Holder(made, ledger=None, name=f"h{n}", noise=SimulatedNoise(rng)).release(table(rng, n, made.d))
        for n in sizes
    ]


def estimate(given, rho=0.05):
    problem = Problem.of(given)
    prior = Prior().in_scaled_units(problem.units)
    return AdaSSP(rho).sample(problem, prior, Run(10, 2, np.random.SeedSequence(0))).theta[0, 0]


pytestmark = pytest.mark.filterwarnings("ignore::noisewise.errors.UnrecordedSpendWarning")


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sizes", [(60,), (500, 300), (30, 20, 10_000)])
def test_it_is_the_ridge_formula(intercept, sizes):
    """000, Eq. 15 with each holder's own ridge, written out again."""
    made = study(2, intercept=intercept)
    given = releases(made, np.random.default_rng(1), sizes)
    p = 2 + intercept
    S, z, ridge = np.zeros((p, p)), np.zeros(p), 0.0
    for one in given:
        part, (value, sd) = one.sufficient, one.block("eigenvalue")
        low = max(value[0] - np.sqrt(np.log(6 / 1e-6)) * sd[0], 0.0)
        ridge += max(np.sqrt(p * np.log(2 * p**2 / 0.05)) * part.sd_S.max() - low, 0.0)
        S, z = S + part.S, z + part.z
    np.testing.assert_allclose(estimate(given), np.linalg.solve(S + ridge * np.eye(p), z), rtol=1e-9)
    assert ridge > 0


def test_without_noise_it_is_least_squares():
    data = table(np.random.default_rng(2), 400, 3)
    given = nw.exact_release(study(3), data)
    X = np.column_stack([np.ones(400), *(data[f"x{i}"] for i in (1, 2, 3))])
    np.testing.assert_allclose(estimate([given]), np.linalg.lstsq(X, data["y"], rcond=None)[0], atol=1e-3)
    fitted = nw.fit(given, "adassp")
    residuals = data["y"] - X @ np.linalg.lstsq(X, data["y"], rcond=None)[0]
    assert fitted.sigma[0] == pytest.approx(np.sqrt(residuals @ residuals / 396), rel=1e-2)


def test_much_data_needs_no_ridge_and_little_data_shrinks():
    rng = np.random.default_rng(3)
    large, small = (nw.fit(releases(study(2), rng, (n,)), "adassp") for n in (200_000, 30))
    assert "Ridge 0 in scaled units, beside 200,000 rows." in large.notes
    assert np.linalg.norm(small.coef) < np.linalg.norm(large.coef)


def test_the_eigenvalue_is_paid_for(tmp_path):
    """Its noise is as large as its share is small; the release, the ledger and the dry run say so."""
    rng, shares = np.random.default_rng(4), (0.1, 0.6)
    sds = []
    for share in shares:
        holder = nw.Holder(study(2, smallest_eigenvalue=share), ledger=tmp_path / f"{share}.db", name="h")
        quote = holder.dry_run()
        given = holder.release(table(rng, 200, 2))
        sds.append(given.block("eigenvalue")[1][0])
        assert quote.entries[-1] == "smallest eigenvalue"
        assert quote.scales[-1] == pytest.approx(sds[-1])
        assert f"{share:g} of it to the smallest eigenvalue" in given.privacy_statement()
        assert nw.Ledger.open(tmp_path / f"{share}.db").summary().spent_epsilon == 1.0
    assert sds[0] / sds[1] == pytest.approx(np.sqrt(shares[1] / shares[0]), rel=1e-9)


def test_a_point_estimate_pretends_nothing(tmp_path):
    fitted = nw.fit(releases(study(2), np.random.default_rng(5)), "adassp")
    summary = fitted.summary()
    assert "Point estimate by adassp" in str(summary)
    for row in summary.rows:
        assert np.isfinite(row.mean)
        assert np.isnan([row.sd, row.lower, row.upper]).all()
        assert row.sampling_sd is row.privacy_sd is row.privacy_share is None
    assert "nan" not in str(summary)
    assert "nothing here tells how far off it may be" in fitted.diagnostics
    assert fitted.notes[0].startswith("adassp is a point estimate: there is no posterior, no interval")
    assert repr(fitted) == "<Point estimate by adassp: 2 features>"
    line = fitted.predict([[0.5, -0.5]])
    assert line.mean == pytest.approx(fitted.intercept + fitted.coef @ [0.5, -0.5])
    assert np.isnan([*line.sd, *line.lower, *line.upper]).all()
    with pytest.raises(nw.FitError, match=r"no law of a new observation. Use kind='mean'"):
        fitted.predict([[0.5, -0.5]], kind="new")
    for plot in (fitted.plot_marginals, fitted.plot_prediction):
        with pytest.raises(nw.FitError, match="there is no distribution to draw a picture of"):
            plot()
    fitted.save(tmp_path / "p.nc")
    again = nw.Posterior.load(tmp_path / "p.nc")
    assert again.point
    assert str(again.summary()) == str(summary)


def test_what_it_refuses():
    rng = np.random.default_rng(6)
    with pytest.raises(nw.FitError, match=r"adassp needs the smallest eigenvalue.* smallest_eigenvalue = 0.3"):
        nw.fit(releases(study(2, smallest_eigenvalue=0.0), rng), "adassp")
    with pytest.raises(nw.FitError, match=r"adassp is made for Gaussian noise, and these releases have Laplace noise"):
        nw.fit(releases(study(2, mechanism="laplace", delta=None), rng), "adassp")
    for rho in (0, 1, True, "x"):
        with pytest.raises(nw.FitError, match="rho is .*; it is a probability between 0 and 1"):
            nw.fit(releases(study(2), rng), "adassp", rho=rho)


def test_without_yy_sigma_is_not_known():
    fitted = nw.fit(releases(study(2, release_yy=False), np.random.default_rng(7)), "adassp")
    assert np.isnan(fitted.sigma).all()
    assert np.isfinite(fitted.coef).all()


def test_fewer_rows_than_coefficients_and_an_indefinite_matrix():
    made = study(3)
    few = nw.fit(releases(made, np.random.default_rng(8), (3,)), "adassp")
    assert np.isfinite(few.coef).all()
    layout = Layout.of(made)
    values = np.zeros(len(layout.entries))
    values[0], values[layout.entries.index((1, 1))], values[-1] = 10.0, -1e4, 1e3
    scales = np.full(len(values), 0.01)
    scales[0] = 0.0
    wild = nw.Release(layout, tuple(values.tolist()), 0, "gaussian", tuple(scales.tolist()), study=made)
    fitted = nw.fit(wild, "adassp")
    assert np.isfinite(fitted.coef).all()
    assert any("not positive definite: do not rely on this estimate" in note for note in fitted.notes)


def test_categories_and_real_columns():
    made = nw.Study.from_dict({**hypertension_study().to_dict(), "smallest_eigenvalue": 0.3})
    rng = np.random.default_rng(9)
    data = draw_hospital(HOSPITALS[0]._replace(rows=20_000), rng)
    noisy = nw.fit(nw.Holder(made, ledger=None, noise=SimulatedNoise(rng)).release(data), "adassp")
    exact = nw.fit(nw.exact_release(made, data), "adassp")
    assert noisy.names == exact.names
    assert np.abs(noisy.coef[0, 0] - exact.coef[0, 0]) < 1.0
