"""A release is one vector of blocks: which entries, in which order, and what an analyst reads off them."""

import math
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest

import noisewise as nw
from noisewise.gram import Gram, max_chunk_rows, max_rows
from noisewise.holder.statistics import gram_of
from noisewise.layout import Layout, Spread, orders
from noisewise.privacy.calibration import plan_noise
from noisewise.privacy.noise import SimulatedNoise


def make_study(**choices: Any) -> nw.Study:
    features = (nw.Column("a", -1, 1), nw.Column("b", -1, 1))
    return nw.Study(features, nw.Column("y", -1, 1), **{"epsilon": 1.0, "delta": 1e-6, **choices})


def table(rng: np.random.Generator, n: int = 500) -> dict[str, Any]:
    a, b = rng.uniform(-1, 0.8, n), rng.uniform(-0.3, 1, n)
    return {"a": a, "b": b, "y": np.clip(0.4 * a - 0.2 * b + rng.normal(0, 0.1, n), -1, 1)}


class TestBlocks:
    def test_shares_add_up_and_the_gram_matrix_has_the_rest(self) -> None:
        layout = Layout.of(make_study(fourth_moments=0.3, smallest_eigenvalue=0.2))
        assert [(block.name, block.share) for block in layout.blocks] == [
            ("gram", 0.5),
            ("fourth", 0.3),
            ("eigenvalue", 0.2),
        ]
        assert len(layout.entries) == len(layout.weights) == sum(len(block.entries) for block in layout.blocks)
        assert layout.entries[:10] == layout.pairs

    @pytest.mark.parametrize("intercept", [True, False])
    def test_fourth_moments_are_there_once_and_not_what_the_gram_matrix_has(self, intercept: bool) -> None:
        layout = Layout.of(make_study(fourth_moments=0.3, intercept=intercept))
        where = layout.where("fourth")
        assert where is not None
        entries = layout.entries[where]
        every = set(combinations_with_replacement(range(0 if intercept else 1, 3), 4))
        assert set(entries) == {entry for entry in every if entry.count(0) < 2}
        assert len(set(entries)) == len(entries) == (4 + 5 if intercept else 5)
        # weights are those of the whole tensor
        full = sum(orders(entry) for entry in every)
        assert full == (81 if intercept else 16)

    def test_only_the_eigenvalue_does_not_add_up_over_holders(self) -> None:
        assert Layout.of(make_study(fourth_moments=0.5)).additive
        assert Layout.of(make_study(statistics="spread")).additive
        assert Layout.of(make_study(average_rows=2)).additive
        assert not Layout.of(make_study(smallest_eigenvalue=0.5)).additive

    def test_names(self) -> None:
        names = Layout.of(make_study(fourth_moments=0.3, smallest_eigenvalue=0.2)).entry_names(("a", "b"), "y")
        assert names[:3] == ("n", "sum a", "sum b")
        assert names[10:12] == ("a * a * a", "a * a * b")
        assert names[-2:] == ("b * b * b * b", "smallest eigenvalue")

    def test_a_block_that_is_not_released(self) -> None:
        assert Layout.of(make_study()).where("fourth") is None
        layout = Layout.of(make_study(statistics="spread"))
        with pytest.raises(ValueError, match="the spread has no S and z"):
            layout.sufficient(np.zeros(len(layout.entries)), np.zeros(len(layout.entries)))


class TestSums:
    @pytest.mark.parametrize("intercept", [True, False])
    @pytest.mark.parametrize("bits", [8, 16, 20])
    def test_fourth_moments_are_sums_of_truncated_products(self, intercept: bool, bits: int) -> None:
        """In Python's integers, entry by entry: trunc(product of two / 2^q), and again."""
        study = make_study(fourth_moments=0.3, intercept=intercept, bits=bits)
        rng, one = np.random.default_rng(bits), 1 << bits
        rows = rng.integers(-one, one + 1, (40, 3))
        rows[0] = [one, -one, one]
        w = np.column_stack([np.full(40, one), rows])
        layout = Layout.of(study)
        got = Gram.empty(study).add_chunk(w.T.astype(float)).entries(layout)

        def cut(value: int) -> int:
            return int(math.copysign(abs(value) >> bits, value))

        for entry, value in zip(layout.entries, got.tolist(), strict=True):
            if len(entry) == 4:
                i, j, k, m = entry
                assert value == sum(cut(int(r[i]) * int(r[j])) * cut(int(r[k]) * int(r[m])) for r in w)
        exact = (w[:, 1] / one) ** 4
        at = layout.entries.index((1, 1, 1, 1))
        assert got[at] / 4.0**bits == pytest.approx(exact.sum(), abs=2 * 40 / one)

    def test_chunks_and_parts_do_not_matter(self) -> None:
        study = make_study(fourth_moments=0.3, smallest_eigenvalue=0.2)
        data, layout = table(np.random.default_rng(1)), Layout.of(study)
        whole = gram_of(study, data)[0]
        chunked = gram_of(study, data, chunk_rows=7)[0]
        parts = [
            gram_of(study, {key: value[part] for key, value in data.items()})[0]
            for part in (slice(200), slice(200, None))
        ]
        assert whole.entries(layout).tolist() == chunked.entries(layout).tolist()
        assert whole.entries(layout).tolist() == (parts[0] + parts[1]).entries(layout).tolist()
        with pytest.raises(ValueError, match="different studies"):
            whole + gram_of(make_study(), data)[0]

    def test_sums_of_another_study_have_no_fourth_moments(self) -> None:
        gram = gram_of(make_study(), table(np.random.default_rng(1)))[0]
        with pytest.raises(ValueError, match="a study without fourth moments"):
            gram.entries(Layout.of(make_study(fourth_moments=0.3)))

    def test_the_smallest_eigenvalue(self) -> None:
        study = make_study(smallest_eigenvalue=0.3)
        gram = gram_of(study, table(np.random.default_rng(2)))[0]
        expected = np.linalg.eigvalsh(gram.matrix[:-1, :-1] / 4.0**study.bits)[0]
        assert gram.entries(Layout.of(study))[-1] / 4.0**study.bits == pytest.approx(expected, abs=2.0**-study.bits)


class TestSpread:
    def test_mean_and_sd_of_every_column(self) -> None:
        rng = np.random.default_rng(3)
        data = table(rng)
        release = nw.exact_release(make_study(statistics="spread"), data)
        spread = release.spread
        columns = np.column_stack(list(data.values()))
        np.testing.assert_allclose(spread.mean, columns.mean(axis=0), atol=1e-4)
        np.testing.assert_allclose(spread.sd, columns.std(axis=0), atol=1e-4)
        assert release.n == spread.n == 500
        assert not spread.noise_mean.any()
        assert not spread.noise_sd.any()

    def test_the_noise_is_that_of_mean_and_sd(self) -> None:
        """2,000 releases; 12 sample spreads within 15% (7 standard errors; the delta method is within 3% here)."""
        rng = np.random.default_rng(4)
        study, data = make_study(statistics="spread", adjacency="add-remove", public_n=True), table(rng, 4000)
        exact = nw.exact_release(study, data)
        scales = np.array(plan_noise(study).scales)
        values = np.array(exact.values) / 4.0**study.bits
        found, stated = [], []
        for _ in range(2000):
            noisy = values + scales * rng.standard_normal(values.size)
            spread = nw.Release(exact.layout, tuple(noisy.tolist()), 0, "gaussian", tuple(scales.tolist())).spread
            found.append([spread.mean, spread.sd])
            stated.append([spread.noise_mean, spread.noise_sd])
        np.testing.assert_allclose(np.std(found, axis=0), np.mean(stated, axis=0), rtol=0.15)

    def test_holders_are_pooled(self) -> None:
        rng = np.random.default_rng(5)
        study, tables = make_study(statistics="spread"), [table(rng, 300), table(rng, 700)]
        both = {key: np.concatenate([part[key] for part in tables]) for key in tables[0]}
        pooled = Spread.of([nw.exact_release(study, part).spread for part in tables])
        together = nw.exact_release(study, both).spread
        np.testing.assert_allclose(pooled.mean, together.mean)
        np.testing.assert_allclose(pooled.sd, together.sd)
        one = Spread(10.0, np.ones(1), np.ones(1), 3.0, np.full(1, 3.0), np.full(1, 4.0))
        assert Spread.of([one, one]).noise_sums == pytest.approx(3 * math.sqrt(2))
        assert Spread.of([one, one]).n == 20

    def test_noise_can_make_no_nonsense_of_it(self) -> None:
        wild = Spread(10.0, np.array([30.0, 0.0]), np.array([-5.0, 50.0]), 0.0, np.ones(2), np.ones(2))
        assert wild.mean.tolist() == [1.0, 0.0]
        assert wild.sd.tolist() == [0.0, 1.0]
        assert np.isfinite(wild.noise_sd).all()
        assert np.isfinite(Spread(-3.0, np.ones(1), np.ones(1), 9.0, np.ones(1), np.ones(1)).sd).all()

    def test_a_gram_matrix_has_it_too(self) -> None:
        data = table(np.random.default_rng(6))
        gram, spread = (nw.exact_release(make_study(statistics=kind), data).spread for kind in ("gram", "spread"))
        np.testing.assert_allclose(gram.mean, spread.mean)
        np.testing.assert_allclose(gram.sd, spread.sd)
        with pytest.raises(nw.ReleaseError, match="does not have the sum and the sum of squares of every column"):
            nw.exact_release(make_study(intercept=False), data).spread  # noqa: B018

    def test_nothing_can_be_fitted_to_it(self) -> None:
        release = nw.exact_release(make_study(statistics="spread"), table(np.random.default_rng(7)))
        with pytest.raises(nw.FitError, match=r"no regression can be fitted to them. nw.Projection makes the study"):
            nw.fit(release)
        with pytest.raises(nw.ReleaseError, match="sums and squares of each column and no products of two"):
            release.sufficient  # noqa: B018
        assert "n 500" in repr(release)


class TestAverages:
    def test_sums_of_groups_in_order_and_the_rest_left_out(self) -> None:
        study = make_study(average_rows=3)
        data = table(np.random.default_rng(8), 11)
        gram, report = gram_of(study, data)
        one = 1 << study.bits
        w = np.column_stack([np.full(11, one), *(np.trunc(value * one) for value in data.values())]).astype(np.int64)
        sums = w[:9].reshape(3, 3, 4).sum(axis=1)
        assert gram.matrix.tolist() == (sums.T @ sums).tolist()
        assert (gram.rows, report.read, report.used, report.left_over, report.dropped) == (9, 11, 9, 2, 0)
        assert "rows left out at the end, too few for a group: 2" in str(report)
        for chunk in (1, 4, 5):
            assert gram_of(study, data, chunk_rows=chunk)[0].matrix.tolist() == gram.matrix.tolist()

    def test_statistics_are_those_of_averages(self) -> None:
        study = make_study(average_rows=5)
        data = table(np.random.default_rng(9))
        release = nw.exact_release(study, data)
        averages = np.column_stack([value.reshape(-1, 5).mean(axis=1) for value in data.values()])
        b = np.column_stack([np.ones(100), averages[:, :2]])
        part = release.sufficient
        np.testing.assert_allclose(part.S, b.T @ b, atol=0.01)
        np.testing.assert_allclose(part.z, b.T @ averages[:, 2], atol=0.01)
        assert (part.n, release.n) == (100, 500)

    def test_noise_is_divided_alike(self) -> None:
        study = make_study(average_rows=4)
        rng = np.random.default_rng(10)
        release = nw.Holder(study, ledger=None, noise=SimulatedNoise(rng)).release(table(rng))
        assert release.sufficient.sd_u == pytest.approx(release.scales[-1] / 16)

    @pytest.mark.parametrize("units", ["scaled", "user"])
    def test_the_posterior_speaks_of_rows(self, units: Any) -> None:
        """Exact statistics, 40,000 rows in groups of 4: sigma is that of a row, whatever the prior's units.

        sigma is known to 0.7% from 10,000 averages, the slope to 0.002; 6 standard deviations: 4e-9 each.
        """
        rng = np.random.default_rng(11)
        a = rng.uniform(-1, 1, 40_000)
        data = {"a": a, "b": rng.uniform(-1, 1, 40_000), "y": 0.3 * a + rng.normal(0, 0.1, 40_000)}
        release = nw.exact_release(make_study(average_rows=4), data)
        posterior = nw.fit(release, "non-private", nw.Prior(shape=2.0, scale=0.01, units=units), seed=1)
        assert posterior.sigma.mean() == pytest.approx(0.1, rel=6 * 0.007)
        assert posterior.coef[:, 0].mean() == pytest.approx(0.3, abs=6 * 0.002)

    def test_few_bits_are_left(self) -> None:
        assert max_chunk_rows(16, 64) == (1 << 21) // 64**2
        assert max_rows(16, 64) == (1 << 30) // 64**2
        study = make_study(average_rows=64)
        data = {key: np.ones(64 * 1030) for key in ("a", "b", "y")}
        assert gram_of(study, data)[0].matrix[1, 1] == 1030 * (64 << 16) ** 2

    def test_too_many_rows_are_refused(self) -> None:
        study = make_study(average_rows=64)
        full = Gram.empty(study)
        w = np.full((4, max_chunk_rows(16, 64)), float(64 << 16))
        for _ in range(max_rows(16, 64) // w.shape[1]):
            full = full.add_chunk(w)
        with pytest.raises(nw.DataError, match=r"more than 16,777,216 rows; their sums would overflow 64-bit integers"):
            full.add_chunk(w[:, :1])

    def test_fewer_rows_than_a_group(self) -> None:
        holder = nw.Holder(make_study(average_rows=8, min_rows=1), ledger=None)
        with pytest.raises(nw.DataError, match=r"has 0 rows to release \(of 5 read\)"):
            holder.release(table(np.random.default_rng(1), 5))


def test_the_privacy_statement_has_the_split(tmp_path: Any) -> None:
    study = make_study(fourth_moments=0.3, smallest_eigenvalue=0.2)
    release = nw.Holder(study, ledger=tmp_path / "l.db").release(table(np.random.default_rng(12)), tmp_path / "r.json")
    words = release.privacy_statement()
    assert "the budget is split, 0.5 of it to the Gram matrix, 0.3 of it to third and fourth moments" in words
    assert "0.2 of it to the smallest eigenvalue" in words
    loaded = nw.Release.load(tmp_path / "r.json")
    assert loaded == release
    assert nw.Ledger.open(tmp_path / "l.db").summary().spent_epsilon == 1.0
    fourth, eigenvalue = loaded.block("fourth"), loaded.block("eigenvalue")
    assert fourth is not None
    assert eigenvalue is not None
    assert (len(fourth[0]), len(eigenvalue[0])) == (9, 1)
    assert loaded.block("spread") is None
