"""Units, priors, summaries, predictions and files of a posterior."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import noisewise as nw
from noisewise.analyst.units import Units
from noisewise.gram import Layout
from noisewise.release import Release

STUDY = nw.Study(
    [nw.Column("age", 20, 80), nw.Column.boolean("male"), nw.Column.categorical("smoking", ["no", "ex", "yes"])],
    nw.Column("pressure", 80, 200),
    epsilon=1.0,
    delta=1e-6,
)


def rows(rng, n):
    age, male = rng.uniform(20, 80, n), rng.integers(0, 2, n).astype(float)
    smoking = rng.choice(["no", "ex", "yes"], n)
    mean = 100 + 0.5 * age + 4 * male + 3 * (smoking == "ex") + 8 * (smoking == "yes")
    return {"age": age, "male": male, "smoking": smoking}, mean


def release_of(study, data, y, sd=0.0, seed=0, law=None):
    """A release built straight from the definition, in floating point: independent of the holder's code."""
    rng = np.random.default_rng(seed)
    columns = [np.ones(len(y))]
    for feature in study.encoded:
        values = data[feature.column]
        values = (values == feature.level).astype(float) if feature.level else np.asarray(values, dtype=float)
        columns.append((values - feature.centre) / feature.half_width)
    columns.append((y - study.target.centre) / study.target.half_width)
    W = np.stack(columns)
    layout = Layout.of(study)
    exact = layout.pick(W @ W.T)
    scales = np.full(exact.size, sd)
    scales[0] = 0.0
    values = exact + scales * rng.standard_normal(exact.size)
    return Release(
        layout,
        tuple(values.tolist()),
        0,
        law or ("gaussian" if sd else "none"),
        tuple(scales.tolist()),
        study=study,
        identity=f"r{seed}",
    )


@pytest.fixture(scope="module")
def exact():
    rng = np.random.default_rng(1)
    data, mean = rows(rng, 5000)
    y = mean + 5 * rng.standard_normal(5000)
    return data, y, release_of(STUDY, data, y)


def test_user_units_are_those_of_least_squares(exact):
    """With exact statistics, a wide prior and many rows, the posterior mean is least squares on raw columns."""
    data, y, release = exact
    X = np.column_stack([np.ones(5000), data["age"], data["male"], data["smoking"] == "ex", data["smoking"] == "yes"])
    least_squares, residual, _, _ = np.linalg.lstsq(X.astype(float), y, rcond=None)
    posterior = nw.fit(release, prior=nw.Prior(covariance=1e6), seed=1, draws=5000)
    assert posterior.method == "non-private"
    summary = posterior.summary()
    for name, value in zip(("intercept", *posterior.names), least_squares, strict=True):
        assert summary[name].mean == pytest.approx(value, abs=6 * summary[name].sd / np.sqrt(20_000) + 1e-9)
    assert summary["sigma"].mean == pytest.approx(np.sqrt(residual[0] / 5000), rel=0.01)
    assert posterior.names == ("age", "male", "smoking[ex]", "smoking[yes]")


def test_no_intercept_in_scaled_units_still_maps_back(exact):
    data, y, _ = exact
    study = nw.Study(STUDY.features, STUDY.target, 1.0, 1e-6, intercept=False)
    posterior = nw.fit(release_of(study, data, y), seed=1)
    at_centre = posterior.predict({"age": [50.0], "male": [0.5], "smoking": ["no"]})
    assert at_centre.mean[0] == pytest.approx(140.0)  # theta'0 = 0 is the centre of the target


def test_prior_in_user_units_is_the_same_prior(exact):
    """A prior stated in the user's units and its image in scaled units give the same draws."""
    _, _, release = exact
    units = Units.of_study(STUDY)
    mean_user = np.array([110.0, 0.4, 1.0, 2.0, 3.0])
    sd_user = np.array([30.0, 0.2, 5.0, 5.0, 5.0])
    back = np.linalg.inv(units.linear)
    scaled = nw.Prior(
        mean=back @ (mean_user - units.offset),
        covariance=back @ np.diag(sd_user**2) @ back.T,
        shape=3.0,
        scale=50.0 / units.target_half_width**2,
    )
    user = nw.Prior(mean=mean_user, covariance=sd_user**2, shape=3.0, scale=50.0, units="user")
    a, b = nw.fit(release, prior=scaled, seed=1), nw.fit(release, prior=user, seed=1)
    np.testing.assert_allclose(a.flat, b.flat, rtol=1e-8)
    mean, variance = b.prior_moments
    np.testing.assert_allclose(mean, mean_user)
    np.testing.assert_allclose(variance, sd_user**2)


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ({"mean": [0.0, 0.0]}, "5 of them, for intercept, age, male"),
        ({"covariance": np.eye(3)}, "5 x 5 matrix"),
        ({"covariance": -1.0}, "positive definite"),
        ({"covariance": np.triu(np.ones((5, 5))) + np.eye(5)}, "symmetric"),
        ({"mean": np.nan}, "finite"),
    ],
)
def test_priors_of_the_wrong_shape(exact, prior, words):
    with pytest.raises(nw.FitError, match=words):
        nw.fit(exact[2], prior=nw.Prior(**prior))


@pytest.mark.parametrize(
    ("prior", "words"),
    [({"shape": 0}, "positive"), ({"scale": -1.0}, "positive"), ({"units": "metric"}, "'scaled' or 'user'")],
)
def test_priors_that_are_wrong_at_birth(prior, words):
    with pytest.raises(nw.FitError, match=words):
        nw.Prior(**prior)


def test_variance_splits_into_sampling_and_privacy(exact):
    """Parts add up; noise-free statistics have no privacy part; more noise has more of it, sampling staying put."""
    data, y, release = exact
    assert all(row.privacy_share == 0 for row in nw.fit(release, seed=1).summary().rows[:-1])
    shares = []
    for sd in (0.01, 5.0, 50.0):
        summary = nw.fit(release_of(STUDY, data, y, sd), method="fixed-s", seed=1).summary()
        row = summary["age"]
        assert row.sampling_sd**2 + row.privacy_sd**2 == pytest.approx(row.sd**2)
        shares.append(row.privacy_share)
    assert shares[0] < 0.1 < shares[1] < shares[2]
    assert shares[2] > 0.9


def test_sampling_part_is_the_noise_free_variance(exact):
    """At moderate noise the sampling sd is that of the posterior that the same data leave without noise."""
    data, y, release = exact
    noise_free = nw.fit(release, seed=1, draws=5000).summary()["age"].sd
    split = nw.fit(release_of(STUDY, data, y, 3.0), method="fixed-s", seed=1).summary()["age"].sampling_sd
    assert split == pytest.approx(noise_free, rel=0.1)


def test_naive_has_no_privacy_part_since_it_sees_no_noise(exact):
    data, y, _ = exact
    summary = nw.fit(release_of(STUDY, data, y, 20.0), method="naive", seed=1).summary()
    assert summary["age"].privacy_share == 0


def test_prediction_matches_its_definition(exact):
    _, _, release = exact
    posterior = nw.fit(release, seed=1)
    X = {"age": [30.0, 60.0], "male": [1.0, 0.0], "smoking": ["yes", "no"]}
    line = np.stack(
        [
            posterior.intercept + posterior.coef @ np.array([30.0, 1.0, 0.0, 1.0]),
            posterior.intercept + posterior.coef @ np.array([60.0, 0.0, 0.0, 0.0]),
        ]
    )
    mean = posterior.predict(X, interval=0.8)
    np.testing.assert_allclose(mean.mean, line.mean(axis=1))
    np.testing.assert_allclose(mean.sd, line.std(axis=1))
    np.testing.assert_allclose([mean.lower, mean.upper], np.quantile(line, [0.1, 0.9], axis=1))
    new = posterior.predict(X, interval=0.8, kind="new")
    np.testing.assert_allclose(new.sd**2, mean.sd**2 + (posterior.sigma**2).mean())
    half = 1.2816 * new.sd  # nearly normal
    np.testing.assert_allclose(new.upper - new.mean, half, rtol=0.1)


def test_prediction_takes_every_kind_of_table(exact):
    posterior = nw.fit(exact[2], seed=1)
    X = {"age": [30.0, 60.0], "male": [1.0, 0.0], "smoking": ["yes", "no"]}
    expected = posterior.predict(X).mean
    array = np.array([[30.0, 1.0, "yes"], [60.0, 0.0, "no"]], dtype=object)
    for table in (pd.DataFrame(X), pl.DataFrame(X), pa.table(X), array, pd.DataFrame(X).assign(other=1)):
        np.testing.assert_allclose(posterior.predict(table).mean, expected)
    np.testing.assert_allclose(posterior.predict(array[0]).mean, expected[:1])


def test_levels_are_read_as_holders_read_them():
    """1, 1.0 and "1" are one level; true and True too."""
    grade, flag = nw.Column.categorical("grade", ["1", "2"]), nw.Column.categorical("flag", ["true", "false"])
    study = nw.Study([grade, flag], nw.Column("y", 0, 1), 1.0, 1e-6)
    rng = np.random.default_rng(2)
    data = {"grade": rng.choice(["1", "2"], 50), "flag": rng.choice(["true", "false"], 50)}
    posterior = nw.fit(release_of(study, data, rng.uniform(size=50)), seed=1)
    expected = posterior.predict({"grade": ["1", "2"], "flag": ["true", "false"]}).mean
    for values in ([1, 2], [1.0, 2.0]):
        given = {"grade": values, "flag": np.array([True, False])}
        np.testing.assert_array_equal(posterior.predict(given).mean, expected)


def test_prediction_of_no_rows_is_empty(exact):
    posterior = nw.fit(exact[2], seed=1)
    assert posterior.predict({"age": [], "male": [], "smoking": []}).mean.size == 0


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ({"age": [30.0], "male": [1.0]}, "'smoking' is missing"),
        ({"age": [30.0], "male": [1.0], "smoking": ["pipe"]}, "row 1: not one of its levels"),
        ({"age": ["x"], "male": [1.0], "smoking": ["no"]}, "'age' holds text"),
        ({"age": [np.nan], "male": [1.0], "smoking": ["no"]}, "row 1: missing or infinite"),
        (np.zeros((2, 7)), "rows x 3"),
    ],
)
def test_bad_rows_to_predict_for(exact, X, words):
    with pytest.raises(nw.DataError, match=words):
        nw.fit(exact[2], seed=1).predict(X)


def test_bad_intervals_and_kinds(exact):
    posterior = nw.fit(exact[2], seed=1)
    with pytest.raises(nw.FitError, match="between 0 and 1"):
        posterior.summary(interval=90)
    with pytest.raises(nw.FitError, match="'mean' or a 'new'"):
        posterior.predict({"age": [30.0], "male": [1.0], "smoking": ["no"]}, kind="both")


def test_file_keeps_everything(exact, tmp_path):
    posterior = nw.fit(exact[2], seed=1, draws=200)
    posterior.save(tmp_path / "p.nc")
    back = nw.Posterior.load(tmp_path / "p.nc")
    np.testing.assert_array_equal(back.draws_, posterior.draws_)
    assert str(back.summary()) == str(posterior.summary())
    assert back.study == STUDY
    X = {"age": [30.0], "male": [1.0], "smoking": ["yes"]}
    assert back.predict(X, kind="new").upper == posterior.predict(X, kind="new").upper
    np.testing.assert_array_equal(back.prior_moments, posterior.prior_moments)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_arviz_reads_object_and_file(exact, tmp_path):
    import arviz

    posterior = nw.fit(exact[2], seed=1, draws=200)
    data = posterior.to_arviz()
    assert set(data.posterior.data_vars) == {"coef", "intercept", "sigma"}
    assert data.posterior["coef"].dims == ("chain", "draw", "feature")
    assert list(data.posterior["feature"].values) == list(posterior.names)
    posterior.save(tmp_path / "p.nc")
    table = arviz.summary(arviz.from_netcdf(tmp_path / "p.nc"))
    assert "coef[smoking[yes]]" in table.index


def test_files_that_are_not_posteriors(tmp_path):
    with pytest.raises(nw.FitError, match="no such file"):
        nw.Posterior.load(tmp_path / "absent.nc")
    (tmp_path / "text.nc").write_text("not a netCDF file")
    with pytest.raises(nw.FitError, match="not a posterior"):
        nw.Posterior.load(tmp_path / "text.nc")


def test_unwritable_posterior(exact, tmp_path):
    with pytest.raises(nw.OutputError, match="can't be written"):
        nw.fit(exact[2], seed=1, draws=10).save(tmp_path / "no" / "such" / "folder.nc")


def test_plots_are_made(exact, tmp_path):
    data, y, _ = exact
    posterior = nw.fit(release_of(STUDY, data, y, 5.0), seed=1)
    for name, figure in (("marginals", posterior.plot_marginals()), ("prediction", posterior.plot_prediction("age"))):
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    with pytest.raises(nw.FitError, match="choose one of age"):
        posterior.plot_prediction("smoking")


def test_seed_repeats_sampling(exact):
    data, y, _ = exact
    release = release_of(STUDY, data, y, 5.0)
    np.testing.assert_array_equal(nw.fit(release, seed=3).flat, nw.fit(release, seed=3).flat)
    assert (nw.fit(release, seed=3).flat != nw.fit(release, seed=4).flat).any()


def test_auto_says_what_it_picked_and_why(exact):
    data, y, release = exact
    assert "auto picked non-private" in nw.fit(release).notes[0]
    gaussian = nw.fit(release_of(STUDY, data, y, 5.0))
    assert gaussian.method != "naive"
    assert gaussian.notes[0].startswith("auto picked")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "lasso"}, "use one of auto, "),
        ({"method": "fixed-s", "algorithm": "gibbs"}, "'quadrature' and 'mcmc'"),
        ({"method": "fixed-s", "speed": 1}, "its options are algorithm, warmup"),
        ({"method": "naive", "speed": 1}, "it has none"),
        ({"draws": 0}, "draws is 0"),
        ({"chains": 1.5}, "chains is 1.5"),
        ({"method": "fixed-s-fast", "residual_variance": -1.0}, "positive number in scaled units"),
    ],
)
def test_bad_options(exact, arguments, words):
    data, y, _ = exact
    with pytest.raises(nw.FitError, match=words):
        nw.fit(release_of(STUDY, data, y, 5.0), **arguments)


def test_releases_that_cannot_be_fitted(exact):
    data, y, release = exact
    with pytest.raises(nw.FitError, match="No release"):
        nw.fit([])
    with pytest.raises(nw.FitError, match="different noise laws"):
        nw.fit([release, release_of(STUDY, data, y, 5.0, seed=5)])
    laplace = nw.Study(STUDY.features, STUDY.target, epsilon=1.0, mechanism="laplace")
    with pytest.raises(nw.FitError, match="Laplace noise"):
        nw.fit(release_of(laplace, data, y, 5.0, law="laplace"), method="fixed-s")
    with pytest.raises(nw.MismatchError, match="again"):
        nw.fit([release, release])
    other = nw.Study(STUDY.features, STUDY.target, epsilon=2.0, delta=1e-6)
    with pytest.raises(nw.MismatchError, match=r"epsilon: 1\.0 against 2\.0"):
        nw.fit([release, release_of(other, data, y, seed=6)])
