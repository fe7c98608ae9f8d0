"""gibbs-update and gibbs-prior: moments in closed form, both draws of the sums, limits, calibration on their own model.

Statistical tests have fixed seeds; each states its false-alarm rate, and all of them together stay below 1e-4 a run.
"""

from itertools import product

import numpy as np
import pytest
from scipy import stats

import noisewise as nw
from noisewise.analyst.methods.base import Run
from noisewise.analyst.methods.gibbs import GibbsPrior, GibbsUpdate, dense, linear, moments, spectral
from noisewise.analyst.methods.non_private import NonPrivate
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior
from noisewise.gram import Layout

QUICK = {"warmup": 500, "thin": 1, "cores": 1}


def study(d, *, intercept=True, law="gaussian", release_yy=True):
    columns = [nw.Column(f"x{i + 1}", -1, 1) for i in range(d)]
    delta = 1e-6 if law == "gaussian" else None
    target = nw.Column("y", -1, 1)
    return nw.Study(columns, target, 1.0, delta, mechanism=law, intercept=intercept, release_yy=release_yy, min_rows=1)


def release(made, rows, scale, rng, *, isotropic=True):
    """A release with noise of that scale: in svec coordinates, or the same on every entry."""
    layout = Layout.of(made)
    w = np.column_stack([np.ones(len(rows)), rows])
    scales = scale / layout.weights if isotropic else np.full(len(layout.pairs), scale)
    scales[0] = 0.0
    draw = rng.standard_normal if made.mechanism == "gaussian" else rng.laplace
    values = layout.pick(w.T @ w) + scales * draw(size=scales.size)
    law = made.mechanism if scale else "none"
    identity = str(rng.integers(1 << 60))
    return nw.Release(layout, tuple(values.tolist()), 0, law, tuple(scales.tolist()), study=made, identity=identity)


def some_rows(rng, n, d, *, mean=0.2, spread=0.5, theta0=0.3, v=0.05):
    X = rng.normal(mean, spread, (n, d))
    y = theta0 + X @ np.linspace(0.6, -0.4, d) + np.sqrt(v) * rng.standard_normal(n)
    return np.column_stack([X, y])


def run(method, releases, *, draws=1000, chains=1, seed=1, prior=None):
    problem = Problem.of(releases)
    scaled = (prior or Prior()).in_scaled_units(problem.units)
    return method.sample(problem, scaled, Run(draws, chains, np.random.SeedSequence(seed)))


def row_law(d, constant, seed=0):
    """theta, v, the covariates' mean and covariance, and from them the law of (x, y) by the textbook."""
    rng = np.random.default_rng(seed)
    F = 0.4 * rng.standard_normal((d, d)) + 0.5 * np.eye(d)
    theta, v, mu, Sigma = rng.standard_normal(d + constant), 0.3, constant * rng.normal(0, 0.5, d), F @ F.T
    beta = theta[constant:]
    Omega = np.block([[Sigma, (Sigma @ beta)[:, None]], [beta @ Sigma, beta @ Sigma @ beta + v]])
    m = np.concatenate([np.ones(constant), mu, [mu @ beta + (theta[0] if constant else 0.0)]])
    return theta, v, mu, Sigma, m, Omega


def moment(m, Omega, indices):
    """E of a product of normals, by brute force: each one is paired with another or replaced by its mean."""
    if not indices:
        return 1.0
    first, rest = indices[0], indices[1:]
    total = m[first] * moment(m, Omega, rest)
    for at, other in enumerate(rest):
        total += Omega[first, other] * moment(m, Omega, rest[:at] + rest[at + 1 :])
    return total


def padded(Omega, constant):
    return np.pad(Omega, ((constant, 0), (constant, 0)))


def covariance_of_sums(m, Omega, constant, n=1.0):
    entries = moments.unique_entries(m.size, bool(constant))
    out = np.empty((len(entries), len(entries)))
    moments.normal_covariance(m, np.ascontiguousarray(Omega), constant, entries, n, out)
    return entries, out


@pytest.mark.parametrize("constant", [0, 1])
def test_joint_law_of_a_row(constant):
    theta, v, mu, Sigma, m, Omega = row_law(3, constant)
    ours = np.zeros(m.size), np.zeros((4, 4)), np.zeros((4, 4))
    moments.joint_normal(theta, v, mu, np.linalg.cholesky(Sigma), constant, *ours)
    np.testing.assert_allclose(ours[0], m, atol=1e-14)
    np.testing.assert_allclose(ours[1], np.linalg.cholesky(Omega), atol=1e-12)
    np.testing.assert_allclose(ours[2], Omega, atol=1e-13)


@pytest.mark.parametrize("constant", [0, 1])
def test_fourth_moments_are_isserlis_by_brute_force(constant):
    *_, m, Omega = row_law(2, constant)
    full = padded(Omega, constant)
    entries, ours = covariance_of_sums(m, Omega, constant, n=7.0)
    assert len(entries) == (3 * 4 // 2 if not constant else 4 * 5 // 2 - 1)
    for (e, (a, b)), (f, (c, g)) in product(enumerate(entries.tolist()), repeat=2):
        expected = moment(m, full, (a, b, c, g)) - moment(m, full, (a, b)) * moment(m, full, (c, g))
        assert ours[e, f] == pytest.approx(7.0 * expected, abs=1e-12)


def test_fourth_moments_agree_with_simulation():
    theta, v, mu, Sigma, m, Omega = row_law(2, 1)
    rng = np.random.default_rng(1)
    x = rng.multivariate_normal(mu, Sigma, 400_000)
    w = np.column_stack([np.ones(len(x)), x, theta[0] + x @ theta[1:] + np.sqrt(v) * rng.standard_normal(len(x))])
    entries, ours = covariance_of_sums(m, Omega, 1)
    terms = w[:, entries[:, 0]] * w[:, entries[:, 1]]
    centred = terms - terms.mean(axis=0)
    for e in range(len(entries)):
        products = centred[:, [e]] * centred
        # 81 z tests at 7 standard errors: 2e-10
        assert (np.abs(products.mean(0) - ours[e]) < 7 * products.std(0) / np.sqrt(len(w))).all()


@pytest.mark.parametrize("constant", [0, 1])
def test_regression_moments_are_equation_3_of_002(constant):
    """From eta and xi of normal covariates alone the covariance of the sums is that of the joint normal law."""
    theta, v, mu, Sigma, m, Omega = row_law(3, constant)
    p = 3 + constant
    fourth = np.empty((p,) * 4)
    for index in product(range(p), repeat=4):
        fourth[index] = moment(m[:p], padded(Sigma, constant), index)
    eta = moments.second_moments(mu, Sigma, bool(constant))
    xi = moments.pairs_of_tensor(eta, fourth)
    _, expected = covariance_of_sums(m, Omega, constant, n=5.0)
    ours = np.empty_like(expected)
    moments.regression_covariance(theta, v, eta, xi, constant, 5.0, ours)
    np.testing.assert_allclose(ours, expected, atol=1e-11)


def affine_map(draw, normals, entries, k):
    """Mean and covariance of a draw that is affine in standard normals: solved from the normals themselves."""
    inputs, outputs = [], []
    for seed in range(normals + 8):
        B = np.zeros((k, k))
        draw(np.random.default_rng(seed), B)
        inputs.append(np.r_[1.0, np.random.default_rng(seed).standard_normal(normals)])
        outputs.append(B[entries[:, 0], entries[:, 1]])
    solved, *_ = np.linalg.lstsq(np.array(inputs), np.array(outputs), rcond=None)
    np.testing.assert_allclose(np.array(inputs) @ solved, outputs, atol=1e-7)  # it is affine, and all normals are known
    return solved[0], solved[1:].T @ solved[1:]


def conditional(m, Omega, constant, n, published, variances):
    """The textbook's mean and covariance of the sums given the noisy ones."""
    entries, P = covariance_of_sums(m, Omega, constant, n)
    mean = n * (np.outer(m, m) + padded(Omega, constant))[entries[:, 0], entries[:, 1]]
    gain = np.linalg.solve(P + np.diag(variances), P).T
    seen = published[entries[:, 0], entries[:, 1]]
    return mean + gain @ (seen - mean), P - gain @ P


def noisy_sums(m, Omega, constant, n, seed=3):
    noise = np.random.default_rng(seed).normal(0, 4, (m.size, m.size))
    return n * (np.outer(m, m) + padded(Omega, constant)) + noise + noise.T


@pytest.mark.parametrize("constant", [0, 1])
def test_spectral_draw_is_the_dense_one(constant):
    """Not by simulation: mean and covariance of the O(d^3) draw are those of the O(d^6) formula."""
    *_, m, Omega = row_law(3, constant)
    k, q, n, s = m.size, 4, 40.0, 2.5
    published = noisy_sums(m, Omega, constant, n)
    entries = moments.unique_entries(k, bool(constant))
    basis = spectral.Basis(np.zeros(q), np.zeros((q, q)), np.zeros(q))
    spectral.find_basis(m, np.ascontiguousarray(Omega), constant, basis)
    work = spectral.Turned(
        np.zeros((q, q)), np.zeros(q), np.zeros(q), np.zeros((q, q)), np.zeros((q, q)), np.zeros((q, q))
    )
    spectral.turn(basis, published, n, s**2 / 2, constant, work)

    def draw(rng, B):
        spectral.draw_turned(rng, basis, n, s**2 / 2, constant, work, B)

    mean, covariance = affine_map(draw, len(entries), entries, k)
    variances = np.where(entries[:, 0] == entries[:, 1], s**2, s**2 / 2)
    expected = conditional(m, Omega, constant, n, published, variances)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(covariance, expected[1], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("constant", [0, 1])
@pytest.mark.parametrize("exact", [False, True])
def test_dense_draw_is_the_textbook(constant, exact):
    """Noise of any variance on each entry, none on some."""
    *_, m, Omega = row_law(2, constant)
    k, q, n = m.size, 3, 40.0
    published = noisy_sums(m, Omega, constant, n)
    entries, P = covariance_of_sums(m, Omega, constant, n)
    size = len(entries)
    variances = np.random.default_rng(4).uniform(1, 9, size) * (np.arange(size) > (2 if exact else -1))
    work = dense.Dense(
        P, np.zeros((size, size)), np.zeros(size), np.zeros(size), np.zeros((q, q)), np.zeros((q, q)), np.zeros(q)
    )
    assert dense.prepare(work, variances)
    L = np.linalg.cholesky(Omega)

    def draw(rng, B):
        dense.normal_start(rng, m, L, n, constant, work, B)
        dense.correct(rng, published, variances, entries, work, B)

    mean, covariance = affine_map(draw, q * (q + 1) // 2 + q + size, entries, k)
    expected = conditional(m, Omega, constant, n, published, variances)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-8, atol=1e-7)
    np.testing.assert_allclose(covariance, expected[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 9, 40])
def test_both_factorisations_are_choleskys(size):
    F = np.random.default_rng(size).standard_normal((size, size + 2))
    for factorise in (linear.factorise, linear.factorise_large):
        A = np.tril(F @ F.T)  # the upper triangle is not read
        assert factorise(A)
        np.testing.assert_allclose(np.tril(A), np.linalg.cholesky(F @ F.T), atol=1e-12 * size)
        assert not factorise(np.tril(F @ F.T) - 100.0 * size * np.eye(size))


def test_draw_from_stated_moments_has_them():
    theta, v, mu, Sigma, m, Omega = row_law(2, 1)
    eta = moments.second_moments(mu, Sigma, True)
    pairs = moments.unique_entries(3, False)
    xi = np.array(
        [
            [moment(m, padded(Omega, 1), (a, b, c, g)) - eta[a, b] * eta[c, g] for c, g in pairs.tolist()]
            for a, b in pairs.tolist()
        ]
    )
    entries, P = covariance_of_sums(m, Omega, 1, 9.0)

    def root(matrix):
        values, vectors = np.linalg.eigh(matrix)
        return np.ascontiguousarray(vectors * np.sqrt(np.maximum(values, 0)))

    def draw(rng, B):
        dense.moments_start(rng, theta, v, eta, root(eta), root(xi), 9.0, B)

    mean, covariance = affine_map(draw, 6 + 3 + 1, entries, 4)
    np.testing.assert_allclose(mean, 9.0 * (np.outer(m, m) + padded(Omega, 1))[entries[:, 0], entries[:, 1]])
    np.testing.assert_allclose(covariance, P, atol=1e-10)


def test_mixing_variance_is_the_inverse_gaussian_of_002():
    b = 1.7
    for residual in (0.0, 1e-3, 2.0, 50.0):
        rng = np.random.default_rng(5)
        ours = np.array([linear.draw_mixing_variance(rng, b, residual) for _ in range(20_000)])
        if residual:
            mean, shape = 1 / (b * residual), 1 / b**2
            law = stats.invgauss(mean / shape, scale=shape)
            # four KS tests at 1e-6 each
            assert stats.kstest(1 / ours, law.cdf).pvalue > 1e-6
        else:
            assert stats.kstest(ours / b**2, stats.chi2(1).cdf).pvalue > 1e-6


def test_inverse_wishart_draw():
    rng, Psi, freedom = np.random.default_rng(6), np.array([[2.0, 0.6], [0.6, 1.0]]), 7.0
    F, T, L = np.zeros((2, 2)), np.zeros((2, 2)), np.linalg.cholesky(Psi)
    ours = []
    for _ in range(20_000):
        linear.draw_inverse_wishart(rng, L, freedom, F, T)
        ours.append(F.copy())
    for c in (np.array([1.0, 0.0]), np.array([0.3, 1.0]), np.array([1.0, -1.0])):
        law = stats.invgamma((freedom - 1) / 2, scale=c @ Psi @ c / 2)
        # three KS tests at 1e-6 each
        assert stats.kstest(np.array(ours) @ c @ c, law.cdf).pvalue > 1e-6


def same(ours, theirs, level=1e-6):
    """KS tests of every coefficient and v, for draws that are next to independent."""
    for i in range(ours.theta.shape[2]):
        assert stats.ks_2samp(ours.theta[..., i].ravel(), theirs.theta[..., i].ravel()).pvalue > level
    assert stats.ks_2samp(ours.variance.ravel(), theirs.variance.ravel()).pvalue > level


@pytest.mark.parametrize(
    ("law", "scale", "isotropic"),
    [("gaussian", 0.0, True), ("gaussian", 1e-5, True), ("gaussian", 1e-5, False), ("laplace", 1e-5, False)],
)
def test_no_noise_gives_the_conjugate_posterior(law, scale, isotropic):
    rng = np.random.default_rng(7)
    rows = [some_rows(rng, 60, 2) for _ in range(2)]
    exact = [release(study(2), part, 0.0, rng) for part in rows]
    noisy = [release(study(2, law=law), part, scale, rng, isotropic=isotropic) for part in rows]
    theirs = run(NonPrivate(), exact, draws=4000)
    ours = run(GibbsUpdate(warmup=200, thin=3, cores=1), noisy, draws=4000)
    same(ours, theirs)  # 4 tests at 1e-6 in each of 4 cases
    np.testing.assert_allclose(ours.noise_free, theirs.noise_free, rtol=0.05)


def test_infinite_noise_gives_the_prior():
    """With the exact law of the sums the prior is what the chain must come back to; sweeps are far from independent."""
    rng = np.random.default_rng(8)
    releases = [release(study(1), some_rows(rng, 12, 1), 1e6, rng)]
    prior = Prior(mean=[0.5, -1.0], shape=4.0, scale=1.0)
    ours = run(GibbsUpdate(sums="exact", warmup=2000, thin=400, cores=1), releases, draws=1500, prior=prior)
    # three KS tests at 1e-6 each, on draws 400 sweeps apart
    for i, mean in enumerate([0.5, -1.0]):
        assert stats.kstest(ours.theta[0, :, i], stats.norm(mean, 1).cdf).pvalue > 1e-6
    assert stats.kstest(ours.variance[0], stats.invgamma(4.0, scale=1.0).cdf).pvalue > 1e-6


def method_shares(method):
    return isinstance(method, GibbsPrior) or method.shared_covariates


def covariates(method, d, constant, rng):
    if isinstance(method, GibbsPrior):
        return np.zeros(d), np.eye(d) / 3
    Sigma = np.atleast_2d(stats.invwishart.rvs(d + 2, 0.2 * np.eye(d), random_state=rng))
    spread = np.eye(d) if method.mean_strength is None else Sigma / method.mean_strength
    return constant * rng.multivariate_normal(np.zeros(d), spread), Sigma


def ranks(method, trials, *, d, constant, n, J, scale, law, seed, draws=40):
    """Ranks of the truth among draws, for tables from the method's own model; ties broken at random."""
    rng, made, out = np.random.default_rng(seed), study(d, intercept=bool(constant), law=law), []
    for _ in range(trials):
        theta, v = rng.standard_normal(d + constant), 0.1 / rng.gamma(2.0)
        releases = []
        for j in range(J):
            if j == 0 or not method_shares(method):
                mu, Sigma = covariates(method, d, constant, rng)
            X = rng.multivariate_normal(mu, Sigma, n)
            y = X @ theta[constant:] + (theta[0] if constant else 0) + np.sqrt(v) * rng.standard_normal(n)
            releases.append(release(made, np.column_stack([X, y]), scale, rng))
        got = run(method, releases, draws=draws, seed=int(rng.integers(1 << 40)))
        below = np.r_[(got.theta[0] < theta).sum(0), (got.variance[0] < v).sum()]
        out.append((below + rng.random(below.size)) / (draws + 1))
    return np.array(out)


@pytest.mark.parametrize(
    ("method", "size"),
    [
        (GibbsUpdate(warmup=800, thin=25, cores=1), {"d": 1, "constant": 1, "n": 100, "J": 1, "law": "gaussian"}),
        (GibbsUpdate(warmup=800, thin=25, cores=1), {"d": 1, "constant": 1, "n": 100, "J": 1, "law": "laplace"}),
        (GibbsUpdate(warmup=800, thin=25, cores=1), {"d": 2, "constant": 0, "n": 100, "J": 2, "law": "gaussian"}),
        (
            GibbsUpdate(sums="exact", warmup=800, thin=25, cores=1),
            {"d": 1, "constant": 1, "n": 10, "J": 2, "law": "gaussian"},
        ),
        (
            GibbsUpdate(sums="exact", mean_strength=2.0, shared_covariates=False, warmup=800, thin=25, cores=1),
            {"d": 2, "constant": 1, "n": 30, "J": 2, "law": "gaussian"},
        ),
        (GibbsPrior(warmup=800, thin=25, cores=1), {"d": 2, "constant": 1, "n": 100, "J": 1, "law": "gaussian"}),
    ],
)
def test_ranks_are_uniform_on_its_own_model(method, size):
    """Simulation-based calibration. 300 trials, KS tests of every coefficient and v at 2e-6: below 5e-5 for all cases.

    With sums="exact" nothing is approximate. With the paper's normal law the ranks are uniform up to an error that
    these sizes do not show (docs/gibbs.md).
    """
    for column in ranks(method, 300, scale=3.0, seed=9, **size).T:
        assert stats.kstest(column, "uniform").pvalue > 2e-6


def test_ignoring_the_noise_fails_the_same_check():
    """The check has power: with the noise's scale understated the ranks are far from uniform."""
    rng, out = np.random.default_rng(10), []
    made = study(1)
    for _ in range(120):
        theta, v = rng.standard_normal(2), 0.1 / rng.gamma(2.0)
        X = rng.normal(0, 0.5, (100, 1))
        y = theta[0] + X @ theta[1:] + np.sqrt(v) * rng.standard_normal(100)
        noisy = release(made, np.column_stack([X, y]), 3.0, rng)
        sure = nw.Release(
            noisy.layout, noisy.values, 0, "gaussian", tuple(0.01 * s for s in noisy.scales), study=made, identity="1"
        )
        got = run(GibbsUpdate(**QUICK), [sure], draws=40)
        out.append((got.theta[0, :, 1] < theta[1]).mean())
    assert stats.kstest(out, "uniform").pvalue < 1e-6


def quantities(result):
    return np.concatenate([result.theta, np.log(result.variance)[..., None]], axis=2)


def close(ours, theirs, level):
    """Means and standard deviations agree within Monte Carlo error; z below ``level`` for each."""
    from noisewise.analyst.diagnostics import rhat_and_ess

    for i in range(ours.shape[2]):
        a, b = ours[..., [i]], theirs[..., [i]]
        spread = np.hypot(a.std() / np.sqrt(rhat_and_ess(a)[1]), b.std() / np.sqrt(rhat_and_ess(b)[1]))
        assert abs(a.mean() - b.mean()) < level * spread
        assert a.std() / b.std() == pytest.approx(1.0, abs=level * spread / b.std())


def test_chains_with_either_draw_agree():
    rng = np.random.default_rng(11)
    releases = [release(study(2), some_rows(rng, 400, 2), 3.0, rng) for _ in range(2)]
    long = {"warmup": 2000, "thin": 20, "cores": 1}
    fast = quantities(run(GibbsUpdate(**long), releases, draws=1000, chains=2))
    dense = quantities(run(GibbsUpdate(spectral=False, **long), releases, draws=1000, chains=2, seed=3))
    close(fast, dense, 6.0)  # 8 z tests at 6 standard errors: 2e-8


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_agrees_with_exact(law):
    """The same model by other means, NUTS: intercept and one feature, n = 100."""
    from noisewise.analyst.methods.exact import Exact

    rng = np.random.default_rng(12)
    releases = [release(study(1, law=law), some_rows(rng, 100, 1), 3.0, rng)]
    theirs = quantities(run(Exact(cores=1, warmup=500), releases, draws=1500, chains=2))
    long = {"warmup": 2000, "thin": 30, "cores": 1}
    ours = quantities(run(GibbsUpdate(sums="exact", **long), releases, draws=1500, chains=2))
    close(ours, theirs, 6.0)  # 6 z tests in each case at 6 standard errors: 2e-8
    # the paper's normal law shifts the posterior, here by less than half its width
    papers = quantities(run(GibbsUpdate(**long), releases, draws=1500, chains=2))
    shift = (papers.mean((0, 1)) - theirs.mean((0, 1))) / theirs.std((0, 1))
    assert np.abs(shift).max() < 0.5


def test_stated_fourth_moments_of_the_normal_change_nothing():
    rng = np.random.default_rng(13)
    releases = [release(study(1), some_rows(rng, 300, 1, mean=0.0), 3.0, rng)]
    fourth = np.empty((2,) * 4)
    for index in product(range(2), repeat=4):
        fourth[index] = moment([1.0, 0.0], np.diag([0.0, 0.25]), index)
    long = {"covariance": 0.25, "warmup": 1000, "thin": 20, "cores": 1}
    normal = quantities(run(GibbsPrior(**long), releases, draws=1000, chains=2))
    stated = quantities(run(GibbsPrior(fourth=fourth, **long), releases, draws=1000, chains=2, seed=2))
    close(normal, stated, 6.0)  # 6 z tests at 6 standard errors: 2e-8


def test_stated_fourth_moments_of_uniform_features():
    """Calibrated where rows are uniform, which a normal's fourth moments are not: 300 trials, 4 KS tests at 1e-6."""
    method = GibbsPrior(fourth=product_moments(9 / 5), warmup=500, thin=20, cores=1)
    rng, made, out = np.random.default_rng(23), study(2), []
    for _ in range(300):
        theta, v = rng.standard_normal(3), 0.1 / rng.gamma(2.0)
        X = rng.uniform(-1, 1, (100, 2))
        y = theta[0] + X @ theta[1:] + np.sqrt(v) * rng.standard_normal(100)
        got = run(method, [release(made, np.column_stack([X, y]), 3.0, rng)], draws=40, seed=int(rng.integers(1 << 40)))
        below = np.r_[(got.theta[0] < theta).sum(0), (got.variance[0] < v).sum()]
        out.append((below + rng.random(4)) / 41)
    for column in np.array(out).T:
        assert stats.kstest(column, "uniform").pvalue > 1e-6


def test_moments_from_bounds():
    from noisewise.analyst.methods.gibbs import moments_from_bounds

    columns = [nw.Column("a", 0, 9), nw.Column.boolean("b"), nw.Column.categorical("c", ("u", "v", "w"))]
    made = nw.Study(columns, nw.Column("y", -1, 1), 1.0, 1e-6)
    rows = np.random.default_rng(14).uniform(-1, 1, (20, 5))
    problem = Problem.of([release(made, rows, 1.0, np.random.default_rng(1))])
    mean, covariance = moments_from_bounds(problem)
    np.testing.assert_allclose(mean, [0, 0, 1 / 3, 1 / 3])
    expected = np.diag([1 / 3, 1.0, 2 / 9, 2 / 9])
    expected[2, 3] = expected[3, 2] = -1 / 9
    np.testing.assert_allclose(covariance, expected)


def test_exact_entries_stay_and_noisy_ones_move():
    rng = np.random.default_rng(15)
    rows = some_rows(rng, 80, 2, theta0=0.0, mean=0.0)
    X, y = rows[:, :2], rows[:, 2]
    S, z = X.T @ X, X.T @ y + 2.0 * rng.standard_normal(2)
    given = nw.Release.from_statistics(S, z, 80, 0.0, 2.0, y @ y, 0.0)
    ours = run(GibbsUpdate(**QUICK), [given], draws=500)
    # S is known, so what the noise-free data would leave depends on v alone
    expected = np.mean([np.linalg.inv(np.eye(2) + S / v) for v in ours.variance[0]], axis=0)
    np.testing.assert_allclose(ours.noise_free, expected, rtol=1e-6)
    assert ours.statistics["taken_sums"].min() > 0.5


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("sums", ["normal", "exact"])
def test_hard_releases_work(law, sums):
    """Indefinite noisy S, huge noise, holders of very different noise and size, one distribution of rows each."""
    rng = np.random.default_rng(16)
    made = study(2, law=law)
    releases = [release(made, some_rows(rng, n, 2), scale, rng) for n, scale in ((6, 40.0), (300, 1e8), (50, 0.01))]
    assert np.linalg.eigvalsh(Problem.of(releases).S[0])[0] < 0
    for method in (GibbsUpdate(sums=sums, shared_covariates=False, **QUICK), GibbsPrior(sums=sums, **QUICK)):
        ours = run(method, releases, draws=200, chains=2)
        assert np.isfinite(ours.theta).all()
        assert np.isfinite(ours.noise_free).all()
        assert (ours.variance > 0).all()


def test_fewer_rows_than_coefficients():
    rng = np.random.default_rng(17)
    releases = [release(study(3), some_rows(rng, n, 3), 2.0, rng) for n in (3, 200)]
    ours = run(GibbsUpdate(**QUICK), releases, draws=200)
    assert np.isfinite(ours.theta).all()
    assert any("too few for the normal approximation" in note for note in ours.notes)
    with pytest.raises(nw.FitError, match="at least 5 from each holder"):
        run(GibbsUpdate(sums="exact", **QUICK), releases)


def test_exact_sums_of_no_table_are_refused():
    S = np.array([[4.0, 9.0], [9.0, 4.0]])
    given = nw.Release.from_statistics(S, [1.0, 1.0], 50, 0.0, 0.0, 9.0, 0.0, "none", holder="a")
    with pytest.raises(nw.FitError, match="Holder 'a'.*no table"):
        run(GibbsUpdate(**QUICK), [given])


def test_seed_decides_and_cores_do_not():
    rng = np.random.default_rng(18)
    releases = [release(study(1), some_rows(rng, 50, 1), 2.0, rng)]
    one, two, other = (
        run(GibbsUpdate(warmup=50, thin=1, cores=cores), releases, draws=50, chains=2, seed=seed)
        for cores, seed in ((1, 5), (2, 5), (1, 6))
    )
    np.testing.assert_array_equal(one.theta, two.theta)
    assert not np.array_equal(one.theta, other.theta)


def test_yy_is_needed():
    rng = np.random.default_rng(19)
    releases = [release(study(1, release_yy=False), some_rows(rng, 50, 1), 2.0, rng)]
    for method in (GibbsUpdate(), GibbsPrior()):
        with pytest.raises(nw.FitError, match="release_yy = true"):
            run(method, releases)


def test_noisy_n_is_said():
    rng = np.random.default_rng(20)
    made = nw.Study([nw.Column("x", -1, 1)], nw.Column("y", -1, 1), 1.0, 1e-6, adjacency="add-remove", min_rows=1)
    given = release(made, some_rows(rng, 90, 1), 2.0, rng)
    noisy = nw.Release(given.layout, given.values, 0, "gaussian", (2.0, *given.scales[1:]), study=made, identity="1")
    assert any("number of rows is noisy" in note for note in run(GibbsUpdate(**QUICK), [noisy], draws=50).notes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sums": "wishart"}, "'normal'"),
        ({"warmup": 0}, "warmup"),
        ({"thin": True}, "thin"),
        ({"tries": 0}, "tries"),
        ({"spectral": 1}, "spectral"),
        ({"covariate_scatter": 0.0}, "covariate_scatter"),
        ({"mean_spread": -1}, "mean_spread"),
        ({"mean_strength": "no"}, "mean_strength"),
        ({"shared_covariates": None}, "shared_covariates"),
    ],
)
def test_bad_options_of_update(options, words):
    with pytest.raises(nw.FitError, match=words):
        GibbsUpdate(**options)


def product_moments(kurtosis):
    """E[b b b b] of (1, x1, x2) with independent features of variance 1/3 and E[x^4] = kurtosis / 9."""
    one = {0: 1.0, 1: 0.0, 2: 1 / 3, 3: 0.0, 4: kurtosis / 9}
    out = np.empty((3,) * 4)
    for index in product(range(3), repeat=4):
        out[index] = one[index.count(1)] * one[index.count(2)]
    return out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mean": [0.0, 0.0, 0.0]}, "one number or 2"),
        ({"covariance": np.ones((3, 3))}, "2 variances"),
        ({"covariance": -1.0}, "positive definite"),
        ({"covariance": [[1.0, 2.0], [0.0, 1.0]]}, "symmetric"),
        ({"fourth": np.ones((2, 2))}, r"\(3, 3, 3, 3\)"),
        ({"fourth": np.arange(81.0).reshape((3,) * 4)}, "not symmetric"),
        ({"fourth": np.ones((3,) * 4)}, "does not fit mean and covariance"),
        ({"fourth": product_moments(-1.0)}, "no law"),
        ({"mean": "a"}, "mean"),
    ],
)
def test_bad_moments_of_prior(options, words):
    rng = np.random.default_rng(21)
    with pytest.raises(nw.FitError, match=words):
        run(GibbsPrior(**options), [release(study(2), some_rows(rng, 50, 2), 2.0, rng)])


def test_exact_sums_need_a_density():
    rng = np.random.default_rng(22)
    releases = [release(study(1, intercept=False), some_rows(rng, 50, 1), 2.0, rng)]
    with pytest.raises(nw.FitError, match="mean 0"):
        run(GibbsPrior(sums="exact", mean=0.5), releases)
    with pytest.raises(nw.FitError, match="covariate_freedom"):
        run(GibbsUpdate(covariate_freedom=0.0), releases)
