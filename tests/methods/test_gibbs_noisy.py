"""gibbs-noisy: moments from the releases made possible, limits, agreement, what it refuses.

Statistical tests have fixed seeds and state their false-alarm rates.
"""

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.methods.base import Run
from noisewise.analyst.methods.gibbs import GibbsUpdate
from noisewise.analyst.methods.gibbs.noisy import GibbsNoisy, possible_moments, released_moments
from noisewise.analyst.methods.non_private import NonPrivate
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior
from noisewise.layout import Layout


def study(d, *, intercept=True, law="gaussian", **choices):
    columns = [nw.Column(f"x{i + 1}", -1, 1) for i in range(d)]
    delta = 1e-6 if law == "gaussian" else None
    made = {"mechanism": law, "intercept": intercept, "fourth_moments": 0.3, "min_rows": 1, **choices}
    return nw.Study(columns, nw.Column("y", -1, 1), 1.0, delta, **made)


def some_rows(rng, n, d, *, constant=True):
    """Uniform, skewed and two-valued columns: what a normal law is not."""
    X = np.column_stack([rng.uniform(-1, 1, n), rng.beta(1, 4, n), rng.choice([-1.0, 1.0], n)])[:, :d]
    y = 0.3 * constant + X @ np.linspace(0.6, -0.4, d) + 0.2 * rng.standard_normal(n)
    return np.column_stack([X, y])


def release(made, rows, scale, rng):
    """Every entry with noise of that scale in its block's coordinates."""
    layout = Layout.of(made)
    w = np.column_stack([np.ones(len(rows)), rows])
    values = np.array([w[:, list(entry)].prod(axis=1).sum() for entry in layout.entries])
    scales = scale / (layout.weights if made.mechanism == "gaussian" else np.ones(len(values)))
    scales[0] = 0.0
    draw = rng.standard_normal if made.mechanism == "gaussian" else rng.laplace
    noisy = values + scales * draw(size=scales.size)
    law = made.mechanism if scale else "none"
    identity = str(rng.integers(1 << 60))
    return nw.Release(layout, tuple(noisy.tolist()), 0, law, tuple(scales.tolist()), study=made, identity=identity)


def run(method, releases, *, draws=1000, seed=1):
    problem = Problem.of(releases)
    scaled = Prior().in_scaled_units(problem.units)
    return method.sample(problem, scaled, Run(draws, 1, np.random.SeedSequence(seed)))


def quick(**options):
    return {"warmup": 500, "thin": 1, "cores": 1, **options}


def tensor(b):
    return np.einsum("ni,nj,nk,nl->ijkl", b, b, b, b) / len(b)


@pytest.mark.parametrize("intercept", [True, False])
def test_moments_are_those_of_the_rows_of_all_holders(intercept):
    rng = np.random.default_rng(0)
    made, rows = study(3, intercept=intercept), some_rows(rng, 600, 3)
    releases = [release(made, part, 0.0, rng) for part in (rows[:200], rows[200:])]
    got = released_moments(Problem.of(releases))
    b = np.column_stack([np.ones(600), rows[:, :3]])
    expected = tensor(b)
    if not intercept:
        odd = (np.indices(expected.shape) > 0).sum(axis=0) % 2 == 1
        expected[odd] = 0.0
    np.testing.assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize("odd", [True, False])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.3, 5.0])
def test_possible_moments(odd, noise):
    """Symmetric, positive semi-definite, within the bounds, 1 at the constant, and no further from the truth."""
    rng = np.random.default_rng(1)
    x = some_rows(rng, 400, 3)[:, :3]
    b = np.column_stack([np.ones(400), x]) if odd else np.column_stack([np.ones(800), np.vstack([x, -x])])
    truth = tensor(b)
    noisy = released_moments_of(truth + noise * rng.standard_normal(truth.shape), odd)
    made = possible_moments(noisy, odd=odd)
    for axes in ((1, 0, 2, 3), (0, 2, 1, 3), (3, 1, 2, 0)):
        np.testing.assert_allclose(made, made.transpose(axes), atol=1e-12)
    assert made[0, 0, 0, 0] == 1.0
    assert np.abs(made).max() <= 1.0
    assert np.linalg.eigvalsh(made.reshape(16, 16))[0] > -1e-12
    assert np.linalg.norm(made - truth) <= np.linalg.norm(noisy - truth) + 1e-6
    np.testing.assert_allclose(possible_moments(made, odd=odd), made, atol=1e-9)
    if noise == 0.0:
        np.testing.assert_allclose(made, truth, atol=1e-7)


def released_moments_of(T, odd):
    """T with the symmetry that a release has."""
    out = np.empty_like(T)
    for index in np.ndindex(T.shape):
        out[index] = T[tuple(sorted(index))]
        if not odd and sum(i > 0 for i in index) % 2:
            out[index] = 0.0
    return out


def test_the_projection_is_the_nearest():
    """Moves towards other possible moments only lead away: the inequality that characterises a projection."""
    rng = np.random.default_rng(2)
    noisy = released_moments_of(tensor(rng.uniform(-1, 1, (50, 3))) + 0.5 * rng.standard_normal((3,) * 4), True)
    noisy[0, 0, 0, 0] = 1.0
    made = possible_moments(noisy, odd=True)
    for _ in range(200):
        b = np.column_stack([np.ones(5), rng.uniform(-1, 1, (5, 2))])
        assert ((noisy - made) * (tensor(b) - made)).sum() < 1e-3


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("holders", [1, 2])
def test_without_noise_it_is_the_conjugate_posterior(law, intercept, holders):
    """Noise of 1e-6: means within 6 Monte Carlo errors, spreads within 20% (1,000 draws, nearly independent): 1e-6."""
    rng = np.random.default_rng(3)
    made, rows = study(2, intercept=intercept, law=law), some_rows(rng, 400, 2, constant=intercept)
    parts = np.array_split(rows, holders)
    noisy = run(GibbsNoisy(**quick()), [release(made, part, 1e-6, rng) for part in parts])
    exact = run(NonPrivate(), [release(made, part, 0.0, rng) for part in parts], draws=20_000)
    spread = exact.theta.std(axis=(0, 1))
    assert (np.abs(noisy.theta.mean(axis=(0, 1)) - exact.theta.mean(axis=(0, 1))) < 6 * spread / np.sqrt(700)).all()
    np.testing.assert_allclose(noisy.theta.std(axis=(0, 1)), spread, rtol=0.2)
    assert noisy.variance.mean() == pytest.approx(exact.variance.mean(), rel=0.05)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_it_agrees_with_gibbs_update_where_n_is_large(law):
    """20,000 rows, noise worth 10 of them: both posteriors, 1,500 draws 20 sweeps apart.

    Means of 3 coefficients within 0.5 spreads, spreads within 25%: what 150 effective draws give at 4.5 standard
    errors of a difference (7e-6 each).
    """
    rng = np.random.default_rng(4)
    made, rows = study(2, law=law), rng.normal(0, 0.4, (20_000, 2))
    rows = np.column_stack([rows, 0.3 + rows @ [0.6, -0.4] + 0.2 * rng.standard_normal(20_000)])
    releases = [release(made, rows, 10.0, rng)]
    noisy, update = (
        run(method(**quick(warmup=3000, thin=20)), releases, draws=1500) for method in (GibbsNoisy, GibbsUpdate)
    )
    spread = update.theta.std(axis=(0, 1))
    assert (np.abs(noisy.theta.mean(axis=(0, 1)) - update.theta.mean(axis=(0, 1))) < 0.5 * spread).all()
    np.testing.assert_allclose(noisy.theta.std(axis=(0, 1)), spread, rtol=0.25)


def test_it_uses_the_released_moments():
    """Other fourth moments, all else the same: another spread of the sums, and so another posterior."""
    rng = np.random.default_rng(5)
    made, rows = study(1, intercept=False), some_rows(rng, 200, 1, constant=False)
    given = release(made, rows, 20.0, rng)
    where = given.layout.where("fourth")
    draws = []
    for fourth in (60.0, 190.0):
        values = list(given.values)
        values[where] = [fourth]
        other = nw.Release(given.layout, tuple(values), 0, "gaussian", given.scales, study=made, identity=str(fourth))
        draws.append(run(GibbsNoisy(**quick(thin=20)), [other]))
    assert draws[1].theta.std() > 1.05 * draws[0].theta.std()


def test_calibration_where_noise_is_small():
    """200 trials on uniform covariates, noise worth 3 of 300 rows: ranks of (theta, v) in 5 bins, chi-square.

    The moments' own noise is not counted, so this is the regime in which the method claims to be calibrated. Three
    tests at 1e-6 each.
    """
    from scipy import stats

    made, prior = study(1), Prior()
    ranks = []
    for trial in range(200):
        rng = np.random.default_rng([6, trial])
        theta, v = rng.standard_normal(2), prior.scale / rng.gamma(prior.shape)
        x = rng.uniform(-1, 1, 300)
        rows = np.column_stack([x, theta[0] + theta[1] * x + np.sqrt(v) * rng.standard_normal(300)])
        drawn = run(GibbsNoisy(**quick(thin=10)), [release(made, rows, 3.0, rng)], draws=99, seed=trial)
        values = np.column_stack([drawn.theta[0], drawn.variance[0]])
        ranks.append((values < np.append(theta, v)).sum(axis=0) // 20)
    for column in np.array(ranks).T:
        assert stats.chisquare(np.bincount(column, minlength=5)).pvalue > 1e-6


@pytest.mark.parametrize(("n", "scale"), [(3, 5.0), (50, 500.0), (50, 1e6)])
def test_much_noise_and_few_rows(n, scale):
    """Indefinite sums, fewer rows than coefficients, noise beyond all sense: finite draws, and words that warn."""
    rng = np.random.default_rng(7)
    releases = [release(study(3), some_rows(rng, n, 3), scale, rng) for _ in range(2)]
    drawn = run(GibbsNoisy(**quick()), releases, draws=50)
    assert np.isfinite(drawn.theta).all()
    assert (drawn.variance > 0).all()
    assert any("noise in those moments is not counted" in note for note in drawn.notes)


def test_what_it_refuses():
    rng = np.random.default_rng(8)
    rows = some_rows(rng, 50, 1)
    with pytest.raises(nw.FitError, match=r"gibbs-noisy needs third and fourth moments.* fourth_moments = 0.3"):
        nw.fit(release(study(1, fourth_moments=0.0), rows, 1.0, rng), "gibbs-noisy")
    with pytest.raises(nw.FitError, match=r"gibbs-noisy needs y'y"):
        nw.fit(release(study(1, release_yy=False), rows, 1.0, rng), "gibbs-noisy")
    given = release(study(1), rows, 1.0, rng)
    with pytest.raises(nw.FitError, match="sums='exact' is for gibbs-update and gibbs-prior"):
        nw.fit(given, "gibbs-noisy", sums="exact")
    with pytest.raises(nw.FitError, match="has no option 'covariate_scatter'"):
        nw.fit(given, "gibbs-noisy", covariate_scatter=1.0)
    with pytest.raises(nw.FitError, match="Prior mean of shape"):
        nw.fit(given, "gibbs-noisy", nw.Prior(mean=[0.0, 0.0, 0.0]))
