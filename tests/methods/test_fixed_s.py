"""fixed-s and its baselines: equations, limits, agreement of its two algorithms, calibration on its own model.

Statistical tests have fixed seeds; each states its false-alarm rate, and all of them together stay below 1e-4 a run.
"""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

import noisewise as nw
from noisewise.analyst.fixed_scatter import (
    Statistics,
    _log_chi_square_plus_normal,
    integrate_variance,
    split_into_components,
    theta_given_variance,
)
from noisewise.analyst.model import nearest_psd
from noisewise.analyst.prior import ScaledPrior


def simulate(rng, *, d, J, n, sd, theta=None, v=None, sd_S=0.0, with_u=True):
    """Releases from the model itself, S noisy only where sd_S says so; theta and v from the default prior."""
    theta = rng.standard_normal(d) if theta is None else theta
    v = stats.invgamma.rvs(2.0, scale=0.1, random_state=rng) if v is None else v
    releases = []
    for _ in range(J):
        X = rng.uniform(-1, 1, (n, d))
        y = X @ theta + np.sqrt(v) * rng.standard_normal(n)
        noise = sd_S * rng.standard_normal((d, d))
        S = X.T @ X + np.triu(noise) + np.triu(noise, 1).T
        u, sd_u = (y @ y + sd * rng.standard_normal(), sd) if with_u else (None, None)
        z = X.T @ y + sd * rng.standard_normal(d)
        releases.append(nw.Release.from_statistics(S, z, n, sd_S, sd, u, sd_u, "gaussian" if sd or sd_S else "none"))
    return releases, theta, v


def as_statistics(releases):
    parts = [release.sufficient for release in releases]
    return Statistics(
        n=np.array([part.n for part in parts]),
        S=np.stack([part.S for part in parts]),
        z=np.stack([part.z for part in parts]),
        u=None if parts[0].u is None else np.array([part.u for part in parts]),
        sd_z=np.stack([part.sd_z for part in parts]),
        sd_u=np.array([part.sd_u for part in parts]),
    )


def default_prior(d):
    return ScaledPrior(np.zeros(d), np.eye(d), np.eye(d), 2.0, 0.1)


@pytest.mark.parametrize("sd_z", [np.array([0.0, 0.0, 0.0]), np.array([3.0, 3.0, 3.0]), np.array([0.0, 2.0, 9.0])])
def test_components_rebuild_s_and_the_noise(sd_z):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 3))
    given = Statistics(np.array([40.0]), (X.T @ X)[None], rng.standard_normal((1, 3)), None, sd_z[None], np.zeros(1))
    T, M, t, _ = split_into_components(given)
    np.testing.assert_allclose((T * M) @ T.T, X.T @ X, atol=1e-10)
    np.testing.assert_allclose((T * (1 - M)) @ T.T, np.diag(sd_z**2), atol=1e-10)
    np.testing.assert_allclose(T @ t, given.z[0], atol=1e-10)


def test_theta_given_variance_is_equation_12():
    rng = np.random.default_rng(2)
    releases, _, _ = simulate(rng, d=3, J=4, n=50, sd=5.0)
    given = as_statistics(releases)
    prior = ScaledPrior(np.array([0.1, -0.2, 0.3]), np.diag([1.0, 2.0, 0.5]), np.diag([1.0, 0.5, 2.0]), 2.0, 0.1)
    v = np.array([0.01, 0.3, 4.0])
    conditional = theta_given_variance(split_into_components(given), prior, v)
    for g, variance in enumerate(v):
        precision, pull = prior.precision.copy(), prior.precision @ prior.mean
        for S, z in zip(given.S, given.z, strict=True):
            weight = S @ np.linalg.inv(variance * S + 25.0 * np.eye(3))
            precision += weight @ S
            pull += weight @ z
        np.testing.assert_allclose(conditional.mean[g], np.linalg.solve(precision, pull), rtol=1e-9)
        covariance = conditional.factor[g] @ conditional.factor[g].T
        np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-9)


def test_evidence_is_the_marginal_density_of_z():
    rng = np.random.default_rng(3)
    releases, _, _ = simulate(rng, d=2, J=2, n=30, sd=4.0)
    given, prior, v = as_statistics(releases), default_prior(2), np.array([0.02, 0.5, 2.0])
    ours = theta_given_variance(split_into_components(given), prior, v).log_evidence
    expected = []
    for variance in v:
        design = np.vstack(list(given.S))
        covariance = design @ design.T
        for j, S in enumerate(given.S):
            block = slice(2 * j, 2 * j + 2)
            covariance[block, block] += variance * S + 16.0 * np.eye(2)
        expected.append(stats.multivariate_normal.logpdf(given.z.ravel(), np.zeros(4), covariance))
    np.testing.assert_allclose(np.diff(ours), np.diff(expected), rtol=1e-8)


@pytest.mark.parametrize(
    ("x", "v", "freedom", "sd"), [(5.0, 0.3, 20, 1.0), (-3.0, 0.3, 5, 2.0), (1.0, 0.5, 1, 0.7), (40.0, 0.1, 300, 9.0)]
)
def test_density_of_u_is_the_convolution(x, v, freedom, sd):
    def integrand(w):
        return (
            np.exp(w) * stats.gamma.pdf(np.exp(w), freedom / 2, scale=2 * v) * stats.norm.pdf(x - np.exp(w), scale=sd)
        )

    top = np.log(4 * v * freedom + 12 * sd)
    pieces = np.linspace(top - 80 / freedom - 10, top, 12)
    expected = sum(integrate.quad(integrand, a, b, epsabs=0, epsrel=1e-11)[0] for a, b in pairwise(pieces))
    ours = _log_chi_square_plus_normal(np.array([x]), np.array([v]), float(freedom), np.array([sd**2]))
    assert np.exp(ours[0]) == pytest.approx(expected, rel=1e-7)


def test_density_of_u_without_noise_is_the_chi_square_density():
    ours = _log_chi_square_plus_normal(np.array([5.0]), np.array([0.3]), 20.0, np.array([1e-14]))
    assert ours[0] == pytest.approx(stats.gamma.logpdf(5.0, 10, scale=0.6), abs=1e-6)


@pytest.mark.parametrize("J", [1, 3])
def test_no_noise_gives_the_exact_posterior(J):
    """As noise goes to 0 fixed-s is the posterior from exact statistics, u included, holders apart or pooled."""
    rng = np.random.default_rng(4)
    releases, _, _ = simulate(rng, d=2, J=J, n=40, sd=1e-9)
    given, prior = as_statistics(releases), default_prior(2)
    grid = integrate_variance(given, split_into_components(given), prior)
    S, z, u, n = given.S.sum(0), given.z.sum(0), given.u.sum(), given.n.sum()
    expected = []
    for v in np.exp(grid.log_v):
        precision, pull = np.eye(2) + S / v, z / v
        fit = pull @ np.linalg.solve(precision, pull) - np.linalg.slogdet(precision)[1]
        expected.append(-2.0 * np.log(v) - 0.1 / v - n / 2 * np.log(v) - u / (2 * v) + fit / 2)
    expected = np.array(expected)
    near = expected > expected.max() - 15
    difference = (grid.log_density - expected)[near]
    assert np.ptp(difference) < 1e-5
    assert grid.weights @ grid.conditional.mean == pytest.approx(np.linalg.solve(S, z), abs=0.05)


def test_infinite_noise_gives_the_prior():
    rng = np.random.default_rng(5)
    releases, _, _ = simulate(rng, d=2, J=2, n=40, sd=1e9)
    posterior = nw.fit(releases, method="fixed-s", draws=25_000, chains=4, seed=1, prior=nw.Prior(mean=[0.5, -1.0]))
    # three KS tests at 1e-6 each
    for i, mean in enumerate([0.5, -1.0]):
        assert stats.kstest(posterior.coef[:, i], stats.norm(mean, 1).cdf).pvalue > 1e-6
    assert stats.kstest(posterior.sigma**2, stats.invgamma(2.0, scale=0.1).cdf).pvalue > 1e-6


@pytest.mark.parametrize("with_u", [True, False])
def test_quadrature_and_chain_agree(with_u):
    """KS of 1e5 independent draws against 1e5 draws of the paper's chain, thinned by 15; six tests at 1e-6 each."""
    rng = np.random.default_rng(6)
    releases, _, _ = simulate(rng, d=2, J=3, n=60, sd=6.0, with_u=with_u, theta=np.array([0.5, -0.3]), v=0.05)
    direct = nw.fit(releases, method="fixed-s", draws=100_000, chains=1, seed=2)
    chain = nw.fit(releases, method="fixed-s", algorithm="mcmc", draws=1_500_000, chains=1, seed=3)
    assert 0.3 < chain.statistics["acceptance_rate"][0] < 0.6
    for a, b in zip(direct.flat.T[1:], chain.flat.T[1:], strict=True):
        assert stats.ks_2samp(a, b[::15]).pvalue > 1e-6


def ranks(method, trials, *, seed, **problem):
    """Simulation-based calibration: the rank of the truth among 99 posterior draws, for theta_1 and v."""
    rng = np.random.default_rng(seed)
    out = []
    for trial in range(trials):
        releases, theta, v = simulate(rng, **problem)
        posterior = nw.fit(releases, method=method, draws=99, chains=1, seed=trial)
        out.append([(posterior.coef[:, 0] < theta[0]).sum(), (posterior.sigma**2 < v).sum()])
    return np.array(out).T


def chi_square_of_uniform(values):
    counts = np.bincount(values // 10, minlength=10)
    return stats.chisquare(counts).pvalue


@pytest.mark.parametrize(("n", "sd"), [(10, 2.0), (100, 5.0), (1000, 20.0)])
def test_fixed_s_is_calibrated_where_s_is_known(n, sd):
    """Data from its own model (S without noise): ranks are uniform. Six chi-square tests at 1e-6 each."""
    for rank in ranks("fixed-s", 400, seed=7, d=2, J=2, n=n, sd=sd):
        assert chi_square_of_uniform(rank) > 1e-6


def test_naive_is_not_calibrated():
    """The same check sees what ignoring the noise does, by a wide margin."""
    theta_rank, _ = ranks("naive", 200, seed=8, d=2, J=2, n=100, sd=5.0)
    assert chi_square_of_uniform(theta_rank) < 1e-20


def test_fixed_s_fast_is_the_closed_form_at_the_stated_variance():
    rng = np.random.default_rng(9)
    releases, _, _ = simulate(rng, d=3, J=2, n=80, sd=4.0)
    given = as_statistics(releases)
    expected = theta_given_variance(split_into_components(given), default_prior(3), np.array([0.2]))
    posterior = nw.fit(releases, method="fixed-s-fast", residual_variance=0.2, draws=50_000, seed=1)
    sd = np.linalg.norm(expected.factor[0], axis=1)
    # five-sigma bands on the mean of 2e5 draws: three tests at 6e-7
    assert np.all(np.abs(posterior.coef.mean(0) - expected.mean[0]) < 5 * sd / np.sqrt(200_000))
    assert posterior.sigma == pytest.approx(np.sqrt(0.2))


def test_non_private_equals_naive_on_exact_statistics_and_refuses_noise():
    rng = np.random.default_rng(10)
    exact, _, _ = simulate(rng, d=2, J=2, n=50, sd=0.0)
    np.testing.assert_array_equal(
        nw.fit(exact, method="non-private", seed=1).flat, nw.fit(exact, method="naive", seed=1).flat
    )
    noisy, _, _ = simulate(rng, d=2, J=2, n=50, sd=1.0)
    with pytest.raises(nw.FitError, match="carry noise"):
        nw.fit(noisy, method="non-private")


@pytest.mark.parametrize("method", ["fixed-s", "fixed-s-fast", "naive"])
def test_indefinite_s_and_tiny_n_work(method):
    """Noise far above the signal makes S indefinite and y'y negative; the posterior stays finite and near the prior."""
    rng = np.random.default_rng(11)
    releases, _, _ = simulate(rng, d=5, J=3, n=3, sd=50.0, sd_S=50.0)
    assert min(np.linalg.eigvalsh(release.sufficient.S).min() for release in releases) < 0
    posterior = nw.fit(releases, method=method, seed=1)
    assert np.isfinite(posterior.flat).all()
    if method != "naive":
        assert posterior.coef.std(axis=0).min() > 0.1


def test_nearest_psd_without_constraint_is_highams():
    S = np.array([[1.0, 3.0], [3.0, 1.0]])
    np.testing.assert_allclose(nearest_psd(S, keep_first=False), [[2.0, 2.0], [2.0, 2.0]], atol=1e-12)
    definite = np.array([[2.0, 1.0], [1.0, 2.0]])
    assert nearest_psd(definite, keep_first=True) is definite


def test_nearest_psd_keeps_n_and_is_nearest():
    """No feasible matrix found by search is nearer; the exact entry stays to the last digit."""
    rng = np.random.default_rng(12)
    for _ in range(20):
        noise = rng.standard_normal((4, 4))
        S = noise + noise.T
        S[0, 0] = 3.0
        nearest = nearest_psd(S, keep_first=True)
        assert nearest[0, 0] == 3.0
        assert np.linalg.eigvalsh(nearest)[0] > -1e-9
        distance = np.linalg.norm(nearest - S)
        for scale in (1e-3, 1e-2, 0.1, 1.0):
            for _ in range(50):
                root = np.linalg.cholesky(nearest + 1e-12 * np.eye(4)) + scale * rng.standard_normal((4, 4))
                other = root @ root.T
                other *= 3.0 / other[0, 0]
                assert np.linalg.norm(other - S) >= distance * (1 - 1e-6)
