"""normal-x: its target against a grid and importance sampling, limits, calibration, and the runner's promises."""

import numpy as np
import pytest
from scipy import stats

import noisewise as nw
from noisewise.analyst.chains import Schedule, run_chains, verdict
from noisewise.analyst.fixed_scatter import Statistics, draw, integrate_variance, split_into_components
from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.methods.believed import believed_covariates
from noisewise.analyst.methods.normal_x import NormalX
from noisewise.analyst.methods.normal_x.chain import NormalXChain
from noisewise.analyst.methods.normal_x.start import constants, start
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior, ScaledPrior
from noisewise.analyst.units import Units
from noisewise.gram import Layout

SCATTER = 0.2  # the default of Lambda: times the identity


def problem_of(A, sd, n, *, constant):
    """Noisy augmented Gram matrices (J, p + 1, p + 1) of (b, y), one noise sd: a problem as releases give it."""
    A, n = np.asarray(A, float), np.asarray(n, float)
    J, p = len(A), A.shape[1] - 1
    d = p - constant
    study = nw.Study([nw.Column(f"x{i}", -1, 1) for i in range(d)], nw.Column("y", -1, 1), epsilon=1.0, delta=1e-5)
    sds = np.full((J, p, p), float(sd))
    if constant:
        sds[:, 0, 0] = 0.0
    return Problem(
        units=Units.of_study(study) if constant else Units.scaled(d),
        study=study if constant else None,
        holders=("",) * J,
        law="gaussian",
        n=n,
        S=A[:, :p, :p],
        z=A[:, :p, p],
        u=None,
        sd_n=np.zeros(J),
        sd_S=sds,
        sd_z=np.full((J, p), float(sd)),
        sd_u=np.zeros(J),
    )


def simulate(rng, *, d, J, n, sd, constant):
    """Rows from the model with normal-x's own priors, and the noisy entries of their Gram matrices."""
    Sigma = np.atleast_2d(stats.invwishart(d + 2, SCATTER * np.eye(d)).rvs(random_state=rng))
    mu = rng.standard_normal(d) if constant else np.zeros(d)
    theta, v = rng.standard_normal(d + constant), 0.1 / rng.gamma(2.0)
    A = []
    for _ in range(J):
        x = rng.multivariate_normal(mu, Sigma, n, method="cholesky")
        b = np.column_stack([np.ones(n), x]) if constant else x
        w = np.column_stack([b, b @ theta + np.sqrt(v) * rng.standard_normal(n)])
        noise = np.tril(rng.normal(0, sd, (w.shape[1],) * 2))
        noise += np.tril(noise, -1).T
        if constant:
            noise[0, 0] = 0.0
        A.append(w.T @ w + noise)
    return problem_of(A, sd, [n] * J, constant=constant), theta, v


def sample(problem, *, draws=1000, chains=1, seed=0, prior=None, **options) -> Draws:
    scaled = (prior or Prior()).in_scaled_units(problem.units)
    return NormalX(**options).sample(problem, scaled, Run(draws, chains, np.random.SeedSequence(seed)))


@pytest.mark.parametrize(("n", "sd", "S", "z"), [(10, 2.0, 3.0, 2.0), (200, 20.0, -15.0, 30.0), (50, 0.5, 9.0, -5.0)])
def test_one_feature_agrees_with_a_grid(n, sd, S, z):
    """d = 1: Sigma_x and theta integrate out by hand, S and v on a grid. Six KS tests at 1e-6, draws thinned by 100."""
    log_S = np.linspace(np.log(1e-3), np.log(50.0 * n), 1500)[:, None]
    log_v = np.linspace(np.log(1e-4), np.log(1e4), 700)[None, :]
    grid_S, v = np.exp(log_S), np.exp(log_v)
    log_p = n / 2 * log_S - (n + 3) / 2 * np.log(grid_S + SCATTER) - 0.5 * ((S - grid_S) / sd) ** 2
    spread = grid_S**2 + v * grid_S + sd**2
    log_p = log_p - 2.0 * log_v - 0.1 / v - 0.5 * np.log(spread) - 0.5 * z**2 / spread
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    precision = 1.0 + grid_S**2 / (v * grid_S + sd**2)
    mean = grid_S * z / (v * grid_S + sd**2) / precision
    points = np.linspace(-5, 5, 400)
    live = weight > 1e-9
    cdf = [weight[live] @ stats.norm.cdf((t - mean[live]) * np.sqrt(precision[live])) for t in points]

    result = sample(problem_of([[[S, z], [z, 0.0]]], sd, [n], constant=False), draws=4000, thin=100)
    assert stats.kstest(result.theta.ravel(), lambda t: np.interp(t, points, cdf)).pvalue > 1e-6
    marginal = np.cumsum(weight.sum(axis=0))
    assert stats.kstest(np.log(result.variance.ravel()), lambda t: np.interp(t, log_v[0], marginal)).pvalue > 1e-6


def test_intercept_agrees_with_importance_sampling():
    """Two holders, (1, x): two million draws of the prior, weighted. Moments within 5 standard errors."""
    rng = np.random.default_rng(3)
    n, sd, draws = np.array([8.0, 5.0]), 4.0, 2_000_000
    problem = problem_of(
        [[[8, 5, 4], [5, 9, 2], [4, 2, 0]], [[5, -1, 3], [-1, 1, -4], [3, -4, 0]]], sd, n, constant=True
    )
    v, theta = 0.1 / rng.gamma(2.0, size=draws), rng.standard_normal((draws, 2))
    mu, Sigma = rng.standard_normal(draws), SCATTER / rng.chisquare(3.0, draws)
    log_w = np.zeros(draws)
    for j in range(2):
        xbar = mu + np.sqrt(Sigma / n[j]) * rng.standard_normal(draws)
        sx, sxx = n[j] * xbar, Sigma * rng.chisquare(n[j] - 1, draws) + n[j] * xbar**2
        # z | S, theta, v by the Cholesky factor of S
        e = np.sqrt(v)[:, None] * rng.standard_normal((draws, 2))
        z0 = n[j] * theta[:, 0] + sx * theta[:, 1] + np.sqrt(n[j]) * e[:, 0]
        z1 = sx * theta[:, 0] + sxx * theta[:, 1] + sx / np.sqrt(n[j]) * e[:, 0]
        z1 += np.sqrt(sxx - sx**2 / n[j]) * e[:, 1]
        for value, seen in (
            (sx, problem.S[j, 0, 1]),
            (sxx, problem.S[j, 1, 1]),
            (z0, problem.z[j, 0]),
            (z1, problem.z[j, 1]),
        ):
            log_w -= 0.5 * ((value - seen) / sd) ** 2
    weight = np.exp(log_w - log_w.max())
    weight /= weight.sum()
    assert 1.0 / (weight**2).sum() > 5_000
    result = sample(problem, draws=4000, thin=50, warmup=3000)
    ours = np.column_stack([result.theta.reshape(-1, 2), np.log(result.variance.ravel())])
    theirs = np.column_stack([theta, np.log(v)])
    for a, b in ((ours, theirs), (ours**2, theirs**2)):
        centre = weight @ b
        error = np.sqrt(weight**2 @ (b - centre) ** 2 + a.var(axis=0) / 1500)  # thinned draws are worth at least 1500
        assert np.all(np.abs(a.mean(axis=0) - centre) < 5 * error)  # six tests at 6e-7


@pytest.mark.parametrize(("d", "J", "n", "sd", "constant"), [(2, 2, 15, 4.0, True), (3, 1, 100, 6.0, False)])
def test_ranks_are_uniform_on_its_own_model(d, J, n, sd, constant):
    """Simulation-based calibration: chi-square over 10 bins of 250 ranks each, 7 tests at 1e-6 each."""
    rng = np.random.default_rng(1)
    ranks = []
    for trial in range(250):
        problem, theta, v = simulate(rng, d=d, J=J, n=n, sd=sd, constant=constant)
        result = sample(problem, draws=99, thin=20, warmup=1500, seed=trial, steps=1)
        ranks.append([*(result.theta[0] < theta).sum(axis=0), (result.variance < v).sum()])
    for rank in np.array(ranks).T:
        assert stats.chisquare(np.bincount(rank // 10, minlength=10)).pvalue > 1e-6


def test_the_papers_moves_alone_have_the_same_posterior():
    """Two KS tests at 1e-6, chains thinned until their draws are nearly independent."""
    problem, _, _ = simulate(np.random.default_rng(4), d=1, J=2, n=20, sd=3.0, constant=True)
    every = sample(problem, draws=3000, thin=40, warmup=2000)
    paper = sample(problem, draws=3000, thin=150, warmup=5000, joint=False, seed=1)
    for a, b in ((every.theta[0, :, 1], paper.theta[0, :, 1]), (every.variance[0], paper.variance[0])):
        assert stats.ks_2samp(a, b).pvalue > 1e-6


@pytest.mark.parametrize("constant", [False, True])
def test_no_noise_gives_the_posterior_of_s_and_z(constant):
    """Noise a millionth of the statistics: theta and v as by quadrature with S and z known. KS tests at 1e-6."""
    problem, _, _ = simulate(np.random.default_rng(5), d=2, J=2, n=60, sd=1e-5, constant=constant)
    prior = Prior().in_scaled_units(problem.units)
    given = Statistics(problem.n, problem.S, problem.z, None, problem.sd_z, problem.sd_u)
    grid = integrate_variance(given, split_into_components(given), prior)
    theta, v = draw(grid, 40_000, np.random.default_rng(6))
    result = sample(problem, draws=3000, thin=10)
    for ours, theirs in zip(result.theta[0].T, theta.T, strict=True):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-6
    assert stats.ks_2samp(result.variance[0], v).pvalue > 1e-6
    assert result.noise_free == pytest.approx(np.cov(result.theta[0].T), rel=0.2, abs=0.05 * result.noise_free.max())


def test_boundless_noise_gives_the_prior():
    problem, _, _ = simulate(np.random.default_rng(7), d=2, J=2, n=30, sd=1e9, constant=True)
    prior = Prior(mean=[0.5, -1.0, 0.0])
    result = sample(problem, draws=3000, thin=10, prior=prior)
    for i, mean in enumerate([0.5, -1.0, 0.0]):  # four KS tests at 1e-6 each
        assert stats.kstest(result.theta[0, :, i], stats.norm(mean, 1).cdf).pvalue > 1e-6
    assert stats.kstest(result.variance[0], stats.invgamma(2.0, scale=0.1).cdf).pvalue > 1e-6


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("constant", [True, False])
def test_boundless_noise_gives_the_prior_of_the_scatter(constant, joint):
    """sum_j S_j against direct draws: log determinant and first diagonal entry. Eight KS tests at 1e-6 each."""
    d, J, n, draws = 2, 2, 6, 3000
    problem = simulate(np.random.default_rng(7), d=d, J=J, n=n, sd=1e7, constant=constant)[0]
    data = constants(
        problem, Prior().in_scaled_units(problem.units), believed_covariates(problem, SCATTER, None, 1.0), joint
    )
    rng = np.random.default_rng(8)
    chain, p = NormalXChain(data, start(problem, data, rng), rng, 1), d + constant
    kept = np.empty((draws, p + 1 + p * (p + 1) // 2))
    chain.warm_up(5000)
    chain.draw(60, kept)
    ours, (a, b) = np.zeros((draws, p, p)), np.tril_indices(p)
    ours[:, a, b] = ours[:, b, a] = kept[:, p + 1 :]
    Sigmas = stats.invwishart(d + 2, SCATTER * np.eye(d)).rvs(20_000, random_state=rng)
    x = rng.standard_normal((20_000, J * n, d)) @ np.linalg.cholesky(Sigmas).transpose(0, 2, 1)
    if constant:
        x = np.concatenate([np.ones((20_000, J * n, 1)), x + rng.standard_normal((20_000, 1, d))], axis=2)
    theirs = x.transpose(0, 2, 1) @ x
    for summary in (lambda S: np.linalg.slogdet(S)[1], lambda S: S[:, -1, -1]):
        assert stats.ks_2samp(summary(ours), summary(theirs)).pvalue > 1e-6


def test_indefinite_statistics_of_several_holders_work():
    problem, _, _ = simulate(np.random.default_rng(8), d=4, J=3, n=10, sd=40.0, constant=True)
    assert np.linalg.eigvalsh(problem.S).min() < 0
    result = sample(problem, chains=2, draws=200)
    assert np.isfinite(result.theta).all()
    assert np.all(result.variance > 0)
    assert result.theta.std(axis=(0, 1)).min() > 0.1


def small():
    return simulate(np.random.default_rng(9), d=2, J=2, n=40, sd=5.0, constant=True)[0]


def test_a_seed_repeats_whatever_the_cores_are():
    options = {"warmup": 200, "draws": 50, "chains": 3}
    one, two = sample(small(), cores=1, **options), sample(small(), cores=2, **options)
    other = sample(small(), seed=1, **options)
    np.testing.assert_array_equal(one.theta, two.theta)
    np.testing.assert_array_equal(one.variance, two.variance)
    assert not np.array_equal(one.theta, other.theta)
    assert not np.array_equal(one.theta[0], one.theta[1])


def test_adaptation_is_frozen_after_the_warm_up():
    problem = small()
    data = constants(problem, Prior().in_scaled_units(problem.units), believed_covariates(problem, SCATTER, 4.0, 1.0))
    rng = np.random.default_rng(1)
    state = start(problem, data, rng)
    chain, before = NormalXChain(data, state, rng, 2), state.log_step.copy()
    chain.warm_up(2000)
    frozen = state.log_step.copy()
    chain.draw(3, np.empty((1000, 3 + 1 + 6)))
    assert not np.array_equal(before, frozen)
    np.testing.assert_array_equal(state.log_step, frozen)
    rates = chain.statistics()
    for name in ("acceptance_scatter", "acceptance_mean", "acceptance_all_scatters", "acceptance_all_means"):
        assert np.all((rates[name] > 0.15) & (rates[name] < 0.6)), name
    assert 0.3 < rates["acceptance_variance"] < 0.6


def test_progress_is_told_and_may_interrupt():
    told = []
    sample(small(), warmup=150, thin=2, draws=60, chains=2, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (540, 540)

    def give_up(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample(small(), chains=2, draws=50, progress=give_up)


class Drifting:
    """A chain that never settles."""

    def __init__(self, rng):
        self.level = rng.normal(0, 100)

    def warm_up(self, sweeps):
        self.level += sweeps

    def draw(self, thin, kept):
        kept[:] = self.level + np.arange(len(kept))[:, None]

    def statistics(self):
        return {"level": np.array(self.level)}


def test_poor_chains_are_called_so_in_words():
    run, schedule = Run(100, 2, np.random.SeedSequence(1)), Schedule(10)
    chains = run_chains(Drifting, 1, run, schedule)
    assert chains.statistics["level"].shape == (2,)
    words = " ".join(verdict(chains.kept, schedule))
    assert "do not agree" in words
    assert "Effective draws" in words
    good = np.random.default_rng(1).standard_normal((4, 1000, 2))
    assert verdict(good, schedule) == ()
    assert "One chain" in verdict(good[:1], schedule)[0]


def release(S=((30.0, 1.0), (1.0, 40.0)), n=100, sd_S=5.0, sd_z=5.0, **other):
    return nw.Release.from_statistics(np.array(S), [1.0, 2.0], n, sd_S, sd_z, holder="north", **other)


@pytest.mark.parametrize(
    ("releases", "words"),
    [
        ([release(noise="laplace")], "Laplace"),
        ([release(sd_S=0.0)], "no noise"),
        ([release(sd_S=np.array([[1.0, 0.0], [0.0, 1.0]]))], "no noise"),
        ([release(), release(n=1)], "'north' has 1 rows"),
    ],
)
def test_inputs_that_the_method_does_not_take(releases, words):
    with pytest.raises(nw.FitError, match=words):
        sample(Problem.of(releases), draws=10)


@pytest.mark.parametrize(
    "options",
    [
        {"warmup": 0},
        {"thin": 1.5},
        {"cores": 0},
        {"steps": True},
        {"steps": 0},
        {"joint": "no"},
        {"covariate_scatter": 0.0},
        {"mean_spread": float("nan")},
        {"covariate_freedom": "many"},
        {"covariate_freedom": 1.0},
    ],
)
def test_options_that_the_method_does_not_take(options):
    with pytest.raises(nw.FitError, match=next(iter(options))):
        sample(Problem.of([release()]), draws=10, **options)


def test_notes_say_what_was_assumed_and_left_out():
    said = " ".join(sample(Problem.of([release(u=60.0, sd_u=5.0)]), draws=10, warmup=50).notes)
    assert "normally distributed" in said
    assert "y'y was not used" in said
    study = nw.Study([nw.Column("x", -1, 1)], nw.Column("y", -1, 1), epsilon=1.0, delta=1e-5, adjacency="add-remove")
    assert not study.public_n
    values = [40.3, 1.0, 2.0, 12.0, 3.0, 9.0]
    made = nw.Release(Layout.of(study), tuple(values), 0, "gaussian", (3.0,) * 6, study=study)
    result = sample(Problem.of([made]), draws=10, warmup=50)
    assert any("rounds it" in note for note in result.notes)
    assert np.isfinite(result.theta).all()


def test_a_prior_scaled_by_hand_is_used_in_full():
    """A prior that leaves no doubt about theta decides it, correlations included."""
    problem = small()
    narrow = np.array([[2.0, 1.9, 0.0], [1.9, 2.0, 0.0], [0.0, 0.0, 1.0]]) * 1e-8
    prior = ScaledPrior(np.array([1.0, 2.0, 3.0]), narrow, np.linalg.inv(narrow), 2.0, 0.1)
    result = NormalX().sample(problem, prior, Run(2000, 1, np.random.SeedSequence(2)))
    np.testing.assert_allclose(result.theta.mean(axis=(0, 1)), [1.0, 2.0, 3.0], atol=1e-4)
    assert np.corrcoef(result.theta[0].T)[0, 1] == pytest.approx(0.95, abs=0.02)
