"""Two releases in place of one cost what the one would have cost: the accountant and a real ledger say so."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw
from noisewise.privacy.accounting import Event, composed_epsilon
from noisewise.privacy.calibration import plan_noise
from noisewise.privacy.split import split_budget

FEATURES = tuple(nw.Column(f"x{i}", -1, 1) for i in range(3))


def study_of(epsilon: float, delta: float | None, bits: int = 16) -> nw.Study:
    mechanism = "laplace" if delta is None else "gaussian"
    return nw.Study(FEATURES, nw.Column("y", -1, 1), epsilon, delta, mechanism=mechanism, bits=bits)


def cost(studies: tuple[nw.Study, nw.Study], delta: float) -> float:
    return composed_epsilon([Event.of(study, plan_noise(study)) for study in studies], delta)


@pytest.mark.parametrize(
    ("epsilon", "delta", "share"),
    list(product([0.1, 0.3, 1.0, 5.0], [None, 1e-9, 1e-6, 1e-4], [0.01, 0.1, 0.3, 0.9])),
)
def test_both_together_cost_the_whole_and_nothing_is_left(epsilon: float, delta: float | None, share: float) -> None:
    study = study_of(epsilon, delta)
    first, second = split_budget(replace(study, statistics="spread"), study, share)
    assert first.delta == second.delta == study.delta
    total = cost((first, second), delta or 0.0)
    # four digits of the first epsilon are made good by the second; a millionth of delta is held back for the grid
    assert epsilon * (1 - 1e-6) < total <= epsilon


def test_a_share_is_one_of_the_squared_shift_or_of_epsilon() -> None:
    gaussian = study_of(1.0, 1e-6)
    first, second = split_budget(gaussian, gaussian, 0.3)
    shifts = [plan_noise(study).multiplier ** -2 for study in (first, second, gaussian)]
    assert shifts[0] / shifts[2] == pytest.approx(0.3, rel=1e-3)
    assert shifts[1] / shifts[2] == pytest.approx(0.7, rel=1e-3)
    assert first.epsilon + second.epsilon > 1.3  # they don't add up, and need not
    pure = study_of(0.3, None)
    assert [study.epsilon for study in split_budget(pure, pure, 0.1)] == [0.03, 0.27]


def test_noise_that_is_fine_for_the_grid_holds_back_more_of_delta() -> None:
    study = study_of(5.0, 1e-9, bits=12)
    both = split_budget(study, study, 0.1)
    assert 5.0 * (1 - 1e-4) < cost(both, 1e-9) <= 5.0


def test_a_ledger_takes_both_and_no_third(tmp_path: Path) -> None:
    study = study_of(1.0, 1e-6)
    first, second = split_budget(replace(study, statistics="spread"), study, 0.1)
    ledger = nw.Ledger.create(tmp_path / "ledger", dataset="rows", epsilon=1.0, delta=1e-6)
    rng = np.random.default_rng(1)
    table = {column.name: rng.uniform(-1, 1, 50) for column in (*FEATURES, study.target)}
    for part in (first, second):
        nw.Holder(part, ledger=ledger).release(table)
    with pytest.raises(nw.OverspendError):
        nw.Holder(replace(first, epsilon=0.01), ledger=ledger).release(table)


@pytest.mark.parametrize("share", [0.0, 0.95, 1.0, -0.1, float("nan"), "0.3", True])
def test_a_share_out_of_range_is_refused(share: object) -> None:
    with pytest.raises(
        nw.StudyError, match=r"share .* is out of range; it is the first release's share .* 0.01 to 0.9"
    ):
        split_budget(study_of(1.0, 1e-6), study_of(1.0, 1e-6), share)  # type: ignore[arg-type]


def test_a_share_that_is_no_epsilon_is_refused() -> None:
    study = study_of(0.1, 0.1)
    with pytest.raises(nw.StudyError, match="leaves one of two releases no epsilon above 0; lower delta"):
        split_budget(study, study, 0.1)
