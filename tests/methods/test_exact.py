"""exact against closed forms, against brute force (weighted draws of the prior), and against itself (calibration).

All sampling has fixed seeds, so a run repeats; the rates below are for a change that draws other numbers.
"""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from problems import FAR, Density, Law, make, moments, problem_of, scaled, unknowns

from noisewise.analyst.diagnostics import rhat_and_ess
from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.methods.exact import Exact, anchor, run
from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.anchor import build
from noisewise.analyst.methods.exact.covariates import block_start
from noisewise.analyst.methods.exact.entry import entry
from noisewise.analyst.methods.exact.layout import Model, pack, place
from noisewise.analyst.methods.exact.special import noise
from noisewise.analyst.methods.exact.weak import weak_block
from noisewise.analyst.methods.fixed_s import FixedS
from noisewise.analyst.methods.non_private import NonPrivate
from noisewise.analyst.methods.normal_x import NormalX
from noisewise.analyst.model import Problem
from noisewise.analyst.nuts import Settings, Target
from noisewise.analyst.nuts import sample as run_chains
from noisewise.analyst.posterior import Posterior
from noisewise.analyst.prior import Prior
from noisewise.errors import FitError
from noisewise.gram import Floats


def fit(problem: Problem, draws: int = 500, prior: Prior | None = None, **options: Any) -> Draws:
    options.setdefault("warmup", 600)
    return Exact(**options).sample(problem, scaled(problem, prior), Run(draws, 4, np.random.SeedSequence(7)))


MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "no constant": ({"constant": False}, {}),
    "no u": ({"u": False}, {}),
    "laplace": ({"law": "laplace"}, {}),
    "noisy n": ({"noise_n": 8.0}, {}),
    "noisy n, no constant": ({"noise_n": 8.0, "constant": False, "law": "laplace"}, {}),
    "own covariates": ({}, {"shared_covariates": False}),
    "weak": ({"noise_n": 8.0}, {"covariates": "weak"}),
    "weak, no constant": ({"constant": False}, {"covariates": "weak"}),
    "weak, own covariates": ({"d": 3}, {"covariates": "weak", "shared_covariates": False}),
    "fewer rows than coefficients": ({"d": 4, "n": (3, 40)}, {}),
    "little noise": ({"noise": 0.1}, {}),
}


def density(problem: Problem, options: dict[str, Any]) -> Density:
    return Density(entry(), *build(problem, scaled(problem), Exact(**options)._covariate_prior(problem)))


@pytest.mark.parametrize("mode", MODES)
def test_gradient_is_that_of_the_density(mode: str) -> None:
    density(make(**MODES[mode][0]), MODES[mode][1]).check_gradient()


def test_weak_covariances_have_flat_sds_and_correlations_that_are_each_uniform() -> None:
    """The density of what is sampled, beside that of correlations as Barnard, McCulloch and Meng (2000) give it."""
    d, rng = 4, np.random.default_rng(2)
    sampled = density(make(d=d), {"covariates": "weak"})
    rows, columns = np.tril_indices(d, -1)

    def moved(c: Floats) -> Floats:
        U = np.eye(d)
        U[rows, columns] = c
        U /= np.linalg.norm(U, axis=1)[:, None]
        return (U @ U.T)[rows, columns]

    def expected(log_V: Floats, c: Floats, mu: Floats) -> float:
        R = np.eye(d)
        R[rows, columns] = R[columns, rows] = moved(c)
        minors = [np.linalg.det(np.delete(np.delete(R, b, 0), b, 1)) for b in range(d)]
        of_R = (d * (d - 1) / 2 - 1) * np.linalg.slogdet(R)[1] - 0.5 * (d + 1) * np.log(minors).sum()
        step = 1e-6 * np.eye(c.size)
        jacobian = np.array([(moved(c + h) - moved(c - h)) / 2e-6 for h in step])
        moment = np.exp(log_V) + mu**2
        walls = -0.5 * (moment**8).sum() - 0.5 * moment.mean() ** 8
        return float(0.5 * log_V.sum() + walls + of_R + np.linalg.slogdet(jacobian)[1])

    def found(log_V: Floats, c: Floats, mu: Floats) -> float:
        data, x = sampled.data, np.zeros(sampled.size)
        L, log_L, mean, G = np.zeros((1, d, d)), np.zeros((1, d)), np.zeros((1, d)), np.zeros((1, d, d))
        centre, scale = place(data, at.K0, 0, d * d), place(data, at.SCALE_R, 0, d * d)
        where = np.eye(d) * log_V
        where[rows, columns] = c
        for i, (a, b) in enumerate(zip(*np.tril_indices(d), strict=True), block_start(data, 0)):
            x[i] = (where[a, b] - data[centre + a * d + b]) / data[scale + a * d + b]
        first, factor = block_start(data, 0) + d * (d + 1) // 2, place(data, at.FACTOR_MU, 0, d * d)
        matrix = data[factor : factor + d * d].reshape(d, d)
        start = place(data, at.MU0, 0, d)
        x[first : first + d] = np.linalg.solve(np.tril(matrix), mu - data[start : start + d])
        log_p = weak_block(data, 0, x, L, log_L, mean, G)
        np.testing.assert_allclose(mean[0], mu)
        np.testing.assert_allclose((L[0] @ L[0].T).diagonal(), np.exp(log_V))
        return float(log_p)

    points = [
        (rng.uniform(-3, 0, d), 1.5 * rng.standard_normal(rows.size), rng.uniform(-0.9, 0.9, d)) for _ in range(20)
    ]
    gaps = [found(*point) - expected(*point) for point in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-5)


def test_a_point_with_no_finite_density_is_refused_not_believed() -> None:
    given = density(make(), {})
    x = np.full(given.size, 1e200)
    with pytest.raises(AssertionError):
        given(x)


def test_a_sampler_that_cannot_start_says_so_in_one_line() -> None:
    given = density(make(), {})
    target = Target(
        given.code.density, given.code.expand, given.data, given.size, 10, lambda seed: np.full(given.size, 1e200)
    )
    with pytest.raises(FitError, match="could not start.*scale of their study") as told:
        run_chains(target, Run(10, 1, np.random.SeedSequence(1)), Settings(100, 0.8, 5, 1))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("softness", [0.0, 0.3, 1.0])
def test_a_rounded_kink_is_laplace_outside_and_smooth_inside(softness: float) -> None:
    r, step = np.linspace(-2.0, 2.0, 81), 1e-6
    scale = 0.7
    value, slope = np.array([noise(scale * one, -np.sqrt(2.0) * scale, softness) for one in r]).T
    rounded = np.where(np.abs(r) < softness, (softness - np.abs(r)) ** 2 / (2.0 * max(softness, 1e-300)), 0.0)
    np.testing.assert_allclose(value, -np.abs(r) - rounded, atol=1e-12)
    up, down = (
        np.array([noise(scale * one + side, -np.sqrt(2.0) * scale, softness)[0] for one in r]) for side in (-step, step)
    )
    smooth = (np.abs(r) > 1e-9) | (softness > 0.0)  # slopes are by the true value, which has the residual's sign turned
    np.testing.assert_allclose(slope[smooth], ((up - down) / (2.0 * step))[smooth], atol=1e-4)


def test_rounding_the_kink_changes_nothing_once_draws_are_weighted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded over two scales, six times as far as it would be, against not at all; 6 comparisons at 4e-8 each."""
    problem = make(d=1, n=(40, 40), noise=6.0, law="laplace", seed=3)
    found, weighted = {}, run._resampled
    for softness, resampled in ((0.0, weighted), (2.0, weighted), (2.0, lambda kept, rng: (kept, np.ones(4)))):
        monkeypatch.setattr(anchor, "_softness", lambda problem, softness=softness: softness)
        monkeypatch.setattr(run, "_resampled", resampled)
        found[softness, resampled is weighted] = moments(unknowns(fit(problem, draws=6000)))
    kink, rounded, unweighted = found[0.0, True], found[2.0, True], found[2.0, False]
    assert np.abs((rounded.mean - kink.mean) / np.hypot(rounded.error, kink.error)).max() < FAR
    assert np.abs((unweighted.mean - kink.mean) / np.hypot(unweighted.error, kink.error)).max() > FAR


def test_resampling_repeats_a_draw_as_often_as_its_weight_asks() -> None:
    rng = np.random.default_rng(0)
    kept = np.stack([np.tile(np.arange(500.0), (3, 1)), rng.standard_normal((3, 500))], axis=2)
    again, evenness = run._resampled(kept, rng)
    assert again.shape == kept.shape
    shares = np.exp(kept[..., 1]) / np.exp(kept[..., 1]).sum(axis=1, keepdims=True)
    for share, after in zip(shares, again, strict=True):
        times = np.bincount(after[:, 0].astype(int), minlength=500)
        assert np.abs(times - 500 * share).max() < 1.0
        assert (np.diff(after[:, 0]) >= 0).all()
    np.testing.assert_allclose(evenness, 1.0 / (500 * (shares**2).sum(axis=1)))


def test_uneven_weights_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make(d=2, n=(60,) * 6, noise=3.0, law="laplace", seed=3)
    result = fit(problem, draws=200)
    assert 0.7 < result.statistics["evenness"].min() < 1.0
    assert not any("unevenly" in note for note in result.notes)
    monkeypatch.setattr(anchor, "_softness", lambda problem: 3.0)
    assert any(
        re.search(r"weigh unevenly: .* worth \d+% .* Raise draws at least \d+fold", n) for n in fit(problem).notes
    )


def test_packing_keeps_every_field_apart() -> None:
    problem = make()
    model, _ = build(problem, scaled(problem), Exact()._covariate_prior(problem))
    data = pack(model)
    for index, name in enumerate(Model._fields):
        value = np.asarray(getattr(model, name), dtype=float).ravel()
        if np.ndim(getattr(model, name)) == 0:
            assert data[1 + index] == value[0]
        else:
            start = int(data[1 + index])
            np.testing.assert_array_equal(data[start : start + value.size], value)


class Brute(NamedTuple):
    """Posterior means and sds of (theta, log v) by weighted draws of the prior, with their standard errors."""

    mean: Floats
    error: Floats
    sd: Floats
    effective: float


def brute_force(problem: Problem, weak: bool, rng: np.random.Generator, count: int = 1_500_000) -> Brute:
    """One holder, one feature, a constant: draw everything from its prior, weigh by the density of the noise."""
    n_noisy = problem.sd_n[0] > 0
    n = rng.uniform(3, problem.n[0] + 12 * problem.sd_n[0], count) if n_noisy else np.full(count, problem.n[0])
    log_weight = np.zeros(count)
    if weak:
        mu, Sigma = rng.uniform(-1.4, 1.4, count), rng.uniform(0, 1.2, count) ** 2
        log_weight -= (mu**2 + Sigma) ** 8  # two walls, of the feature and of the whole row, of 1/2 each
    else:
        mu, Sigma = rng.standard_normal(count), 0.1 / rng.gamma(1.5, size=count)  # inverse-Wishart(0.2, 3)
    mean = mu + np.sqrt(Sigma / n) * rng.standard_normal(count)
    scatter = Sigma * rng.chisquare(n - 1)
    K = np.array([[np.sqrt(n), 0 * n], [np.sqrt(n) * mean, np.sqrt(scatter)]])
    theta, v = rng.standard_normal((2, count)), 0.1 / rng.gamma(2.0, size=count)
    w = np.einsum("abi,ai->bi", K, theta) + np.sqrt(v) * rng.standard_normal((2, count))
    S, z = np.einsum("abi,cbi->aci", K, K), np.einsum("abi,bi->ai", K, w)

    def noise(gap: Floats, sd: float) -> Floats:
        return -np.sqrt(2) * np.abs(gap) / sd if problem.law == "laplace" else -0.5 * (gap / sd) ** 2

    for a in range(2):
        for b in range(a + 1):
            if problem.sd_S[0, a, b]:
                log_weight += noise(problem.S[0, a, b] - S[a, b], problem.sd_S[0, a, b])
        log_weight += noise(problem.z[0, a] - z[a], problem.sd_z[0, a])
    if problem.u is not None:
        u = (w**2).sum(axis=0) + v * rng.chisquare(n - 2)
        log_weight += noise(problem.u[0] - u, problem.sd_u[0])
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    values = np.vstack([theta, np.log(v)])
    mean_ = values @ weight
    off = values - mean_[:, None]
    error = np.sqrt((off**2) @ weight**2)
    return Brute(mean_, error, np.sqrt((off**2) @ weight), float(1 / (weight**2).sum()))


BRUTE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gaussian": ({}, {}),
    "laplace": ({"law": "laplace"}, {}),
    "no u": ({"u": False}, {}),
    "noisy n": ({"noise_n": 6.0}, {}),
    "noisy n, laplace": ({"noise_n": 6.0, "law": "laplace"}, {}),
    "few rows": ({"n": (4,)}, {}),
    "weak": ({}, {"covariates": "weak"}),
    "weak, noisy n": ({"noise_n": 6.0}, {"covariates": "weak"}),
}


@pytest.mark.parametrize("mode", BRUTE)
def test_the_posterior_is_that_of_brute_force(mode: str) -> None:
    # 6 standard errors of a difference of two means, 3 of them: below 1e-8 a mode
    given, options = BRUTE[mode]
    problem = make(**{"d": 1, "n": (30,), "noise": 12.0, **given})
    truth = brute_force(problem, options.get("covariates") == "weak", np.random.default_rng(3))
    assert truth.effective > 3000
    draws = unknowns(fit(problem, 1500, **options))
    for i in range(3):
        own = draws[..., i].std() / np.sqrt(rhat_and_ess(draws[..., i : i + 1])[1])
        assert abs(draws[..., i].mean() - truth.mean[i]) < 6 * np.hypot(own, truth.error[i])
    np.testing.assert_allclose(draws.std(axis=(0, 1)), truth.sd, rtol=0.15)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("constant", [True, False])
def test_no_noise_to_speak_of_gives_the_conjugate_posterior(law: Law, constant: bool) -> None:
    # the noise is a thousandth of the sampling variation; 6 standard errors of the mean, 4 unknowns: below 1e-8
    problem = make(noise=0.02, law=law, constant=constant)
    exact = make(noise=0.0, law=law, constant=constant)
    assert exact.law == "none"
    conjugate = NonPrivate().sample(exact, scaled(exact), Run(4000, 1, np.random.SeedSequence(1)))
    mine, its = unknowns(fit(problem)), unknowns(conjugate)
    ess = min(rhat_and_ess(mine)[1:])
    error = np.sqrt(1 / ess + 1 / 4000) * its.std(axis=(0, 1))
    assert (np.abs(mine.mean(axis=(0, 1)) - its.mean(axis=(0, 1))) < 6 * error + 2e-3).all()
    np.testing.assert_allclose(mine.std(axis=(0, 1)), its.std(axis=(0, 1)), rtol=0.12)


@pytest.mark.parametrize("covariates", ["normal", "weak"])
def test_noise_without_end_gives_the_prior(covariates: str) -> None:
    # theta ~ N(0.5, 0.25), 1/v ~ gamma: 6 standard errors, 3 unknowns
    problem = make(noise=1e6)
    prior = Prior(mean=0.5, covariance=0.25, shape=5.0, scale=1.0)
    result = fit(problem, prior=prior, covariates=covariates)
    theta, precision = result.theta, 1 / result.variance
    for values, mean, sd in ((theta, 0.5, 0.5), (precision[..., None], 5.0, np.sqrt(5.0))):
        ess = rhat_and_ess(values)[1]
        assert (np.abs(values.mean(axis=(0, 1)) - mean) < 6 * sd / np.sqrt(ess)).all()
        np.testing.assert_allclose(values.std(axis=(0, 1)), sd, rtol=0.15)


def test_it_agrees_with_fixed_s_where_s_is_known() -> None:
    # without u, fixed-s is exact for a known S; 6 standard errors
    noisy, true = make(noise=25.0, u=False, seed=3), make(noise=0.0, u=False, seed=3)
    fields = {**vars(noisy), "S": true.S, "sd_S": np.zeros_like(noisy.sd_S)}
    problem = Problem(**fields)
    its = unknowns(FixedS().sample(problem, scaled(problem), Run(4000, 1, np.random.SeedSequence(1))))
    result = fit(problem)
    mine = unknowns(result)
    ess = min(rhat_and_ess(mine)[1:])
    error = np.sqrt(1 / ess + 1 / 4000) * its.std(axis=(0, 1))
    assert (np.abs(mine.mean(axis=(0, 1)) - its.mean(axis=(0, 1))) < 6 * error).all()
    np.testing.assert_allclose(mine.std(axis=(0, 1)), its.std(axis=(0, 1)), rtol=0.12)
    assert result.statistics["divergences"].sum() == 0


@pytest.mark.parametrize("constant", [True, False])
def test_it_agrees_with_a_long_chain_of_normal_x(constant: bool) -> None:
    # the same model and prior by another sampler, on S and z; 6 standard errors of a difference, 4 unknowns
    problem = make(n=(150, 300), noise=25.0, u=False, constant=constant, seed=5)
    its = unknowns(NormalX().sample(problem, scaled(problem), Run(3000, 4, np.random.SeedSequence(2))))
    mine = unknowns(fit(problem, 1000))
    error = np.sqrt(1 / min(rhat_and_ess(mine)[1:]) + 1 / min(rhat_and_ess(its)[1:])) * its.std(axis=(0, 1))
    assert (np.abs(mine.mean(axis=(0, 1)) - its.mean(axis=(0, 1))) < 6 * error).all()
    np.testing.assert_allclose(mine.std(axis=(0, 1)), its.std(axis=(0, 1)), rtol=0.15)


HARD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "typical": ({"d": 3, "n": (500,) * 4, "noise": 20.0}, {}),
    "indefinite S": ({"d": 3, "n": (10, 10), "noise": 50.0}, {}),
    "fewer rows than coefficients": ({"d": 4, "n": (2, 3, 200)}, {}),
    "own covariates": ({"n": (200, 50, 10)}, {"shared_covariates": False}),
    "weak": ({"d": 3, "n": (200,) * 3, "noise": 30.0}, {"covariates": "weak"}),
    "noisy n below zero": ({"n": (8, 12), "noise": 20.0, "noise_n": 30.0, "seed": 4}, {}),
}


@pytest.mark.parametrize("mode", HARD)
def test_no_divergences_and_chains_agree(mode: str) -> None:
    given, options = HARD[mode]
    result = fit(make(**given), 400, **options)
    assert result.statistics["divergences"].sum() == 0
    assert rhat_and_ess(unknowns(result))[0] < 1.03
    assert not any("diverged" in note for note in result.notes)


def test_a_large_sum_of_squares_under_large_noise_is_not_taken_for_residual_variance() -> None:
    """y'y of 1300 in 30 rows, from a feature twice its bounds away whose squares noise hides: v is 0.03, not 40."""
    S = [[30.0, -60.0], [-60.0, 150.0]]
    whole = np.array([[*S[0], 150.0], [*S[1], -390.0], [150.0, -390.0, 1300.0]])
    problem = problem_of([(30, whole)] * 5, 130.0, "gaussian", True, True, 0.0)
    model, _ = build(problem, scaled(problem), Exact()._covariate_prior(problem))
    log_v = unknowns(fit(problem, 300))[..., -1].mean()
    assert abs(log_v - model.log_v0) < 8.0 * model.scale_v  # it was 35 off, and trajectories diverged there


def test_hard_cases_are_what_they_claim() -> None:
    assert np.linalg.eigvalsh(make(**HARD["indefinite S"][0]).S)[:, 0].min() < 0
    assert make(**HARD["noisy n below zero"][0]).n.min() < 3


def test_calibration_over_the_prior() -> None:
    # 60 trials, 3 quantities: a correct sampler's distance passes 0.34 with probability 6e-6 (Kolmogorov)
    rng = np.random.default_rng(11)
    ranks = np.empty((60, 3))
    for number in range(60):
        Sigma, mu = 0.1 / rng.gamma(1.5), rng.standard_normal()
        theta, v = rng.standard_normal(2), 0.1 / rng.gamma(2.0)
        grams = []
        for rows in (20, 60):
            x = mu + np.sqrt(Sigma) * rng.standard_normal(rows)
            w = np.column_stack([np.ones(rows), x, theta[0] + theta[1] * x + np.sqrt(v) * rng.standard_normal(rows)])
            e = np.tril(rng.standard_normal((3, 3)))
            noisy = w.T @ w + 8.0 * (e + np.tril(e, -1).T)
            noisy[0, 0] = rows
            grams.append((rows, noisy))
        problem = problem_of(grams, 8.0, "gaussian", True, True, 0.0)
        run = Run(150, 2, np.random.SeedSequence(number))
        result = Exact(warmup=300, cores=1).sample(problem, scaled(problem), run)
        flat = unknowns(result).reshape(-1, 3)
        ranks[number] = (flat < np.append(theta, np.log(v))).mean(axis=0)
    for column in np.sort(ranks, axis=0).T:
        uniform = np.arange(60) / 60
        assert max(np.abs(column - uniform).max(), np.abs(column - uniform - 1 / 60).max()) < 0.34


def test_noise_free_is_what_the_data_would_leave() -> None:
    result, problem = fit(make(noise=0.02)), make(noise=0.02)
    prior = scaled(problem)
    v = result.variance.mean()
    np.testing.assert_allclose(result.noise_free, np.linalg.inv(prior.precision + problem.S.sum(axis=0) / v), rtol=0.05)
    noisy = Posterior.of(make(noise=40.0), prior, "exact", fit(make(noise=40.0)))
    assert (np.array([noisy.summary()[name].privacy_share for name in noisy.names]) > 0.3).all()


def test_a_seed_repeats_and_another_does_not() -> None:
    problem = make(d=1, n=(50,))
    one, two = (fit(problem, 50, warmup=150).theta for _ in range(2))
    np.testing.assert_array_equal(one, two)
    other = Exact(warmup=150).sample(problem, scaled(problem), Run(50, 4, np.random.SeedSequence(8))).theta
    assert not np.array_equal(one, other)


def test_too_few_draws_are_told_in_words() -> None:
    notes = " ".join(fit(make(), 20, warmup=100).notes)
    assert "Raise draws" in notes
    assert "normally distributed" in notes


def test_no_noise_names_the_method_to_use() -> None:
    with pytest.raises(FitError, match="non-private"):
        fit(make(noise=0.0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"covariates": "uniform"}, "'normal' and 'weak'"),
        ({"metric": "dense"}, "'learned' and 'diagonal'"),
        ({"shared_covariates": 1}, "True, False, or None"),
        ({"covariate_scatter": -1.0}, "positive"),
        ({"covariate_scatter": [[1.0, 2.0], [2.0, 1.0]]}, "symmetric positive definite matrix"),
        ({"covariate_scatter": [[1.0, 0.0], [0.5, 1.0]]}, "symmetric positive definite matrix"),
        ({"covariate_scatter": "wide"}, "a positive number, or a symmetric"),
        ({"covariate_scatter": [[1.0]]}, r"has 1 rows, and the releases have 2 features \(x1, x2\)"),
        ({"mean_spread": float("nan")}, "positive"),
        ({"warmup": 10}, "at least 100"),
        ({"max_depth": 0}, "at least 1"),
        ({"cores": 0}, "at least 1"),
        ({"target_accept": 1.0}, "below 1"),
        ({"covariate_freedom": 0.5}, "above 1"),
        ({"covariates": "weak", "covariate_scatter": 0.5}, "leave covariate_scatter out, or use covariates='normal'"),
        ({"covariates": "weak", "mean_spread": 2.0}, "mean_spread is part of the prior of normal covariates"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(FitError, match=words):
        fit(make(), **options)


@pytest.mark.parametrize("covariates", ["normal", "weak"])
def test_too_few_rows_are_named(covariates: str) -> None:
    with pytest.raises(FitError, match="'h1' has 1 rows.*at least 2 from each. Leave it out"):
        fit(make(n=(50, 1)), covariates=covariates)
