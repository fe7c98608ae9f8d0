"""Projection through the secure sum: two rounds, one budget, nobody who sees a spread that is not pooled."""

from pathlib import Path

import numpy as np
import pytest

import noisewise as nw
from noisewise.evaluation.projection import _noise_factor
from noisewise.protocol.pooled import verify
from tests.protocol.world import holder, make_world, member


def test_two_rounds_cost_every_holder_one_budget(tmp_path: Path) -> None:
    study = nw.Study((nw.Column("x", -50, 50),), nw.Column("y", -50, 50), epsilon=1.0, delta=1e-6, name="wide")
    plan = nw.Projection(study, share=0.3)
    rng = np.random.default_rng(3)
    x = rng.normal(5, 1, (4, 10_000))
    tables = [{"x": part, "y": 2 * part - 10 + rng.normal(0, 1, part.size)} for part in x]
    with make_world(tmp_path) as world:

        def play(part: nw.Study) -> nw.Release:
            task = world.open(part)
            for number, table in enumerate(tables):
                who = member(world, number)
                assert who.contribute(task, holder(who, part, epsilon=1.0), table).complete
            return world.coordinator.collect(task.id)

        spread = play(plan.spread_study)
        # 4 holders, nobody drops or colludes: each adds a third of one release's variance
        assert _noise_factor([spread], plan.spread_study) == pytest.approx(4 / 3, rel=1e-6)
        projected = plan.project(spread, repeats=5)
        release = play(projected.study)
        assert verify(release).missing == ()
        (column,) = projected.study.features
        # In 150 draws of simulated noise the half-width, of 50, was 2.3 to 4.4, and the mean's noise has an sd of 0.05;
        # a variance 6 standard deviations of its noise too large makes it 8.
        assert column.lower < 5 < column.upper
        assert column.half_width < 20
        for number in range(4):
            summary = nw.Ledger.open(member(world, number).folder / "ledger").summary()
            assert summary.reservations == 2
            assert 1.0 * (1 - 1e-6) < summary.spent_epsilon <= 1.0
        posterior = nw.fit(release, method="fixed-s", seed=1)
        # 2.00 with a standard deviation of 0.035 in those draws
        assert posterior.coef.mean() == pytest.approx(2.0, abs=0.5)
