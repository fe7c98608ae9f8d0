"""From shares to a pooled release that anyone can check; the noise in it has the law that it states."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from noisewise.errors import ForgeryError, RoundError
from noisewise.privacy.noise import SecureNoise
from noisewise.protocol.pooled import pool, read_manifest, read_sum, sign_manifest, sign_sum, verify
from noisewise.protocol.round import Holdings
from noisewise.protocol.signed import Signed
from noisewise.release import Release


def play(parties, present: int, values: np.ndarray, noise: bool = True) -> tuple[Holdings, list[Signed]]:
    """A round in which the first ``present`` holders take part, every message read by its reader."""
    draw = SecureNoise()
    sent = []
    for holder in range(present):
        own = draw.draw("gaussian", parties.task.scales) if noise else np.zeros(parties.task.length, dtype=np.int64)
        sent.append(parties.contribute(holder, values[holder] + own))
    manifests, totals = [], []
    for node, identity in enumerate(parties.nodes):
        total, held = parties.add_up(node, [envelopes[node] for envelopes in sent])
        manifests.append(read_manifest(sign_manifest(identity, parties.task, held).to_dict(), parties.task))
        totals.append(total)
    agreed = manifests[0][1]
    assert manifests == [(node, agreed) for node in range(len(parties.nodes))]
    sums = [
        read_sum(sign_sum(identity, parties.task, agreed, total.words).to_dict(), parties.task)[1]
        for identity, total in zip(parties.nodes, totals, strict=True)
    ]
    return agreed, sums


def some_values(parties, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-(2**40), 2**40, (len(parties.holders), parties.task.length))


@pytest.mark.parametrize("features", [2, 22])  # whole shares, and seeds
def test_without_noise_the_pooled_values_are_the_exact_sums(make_parties, rng, features: int) -> None:
    parties = make_parties(features=features)
    values = some_values(parties, rng)
    release = pool(parties.task, *play(parties, 4, values, noise=False))
    assert release.values == tuple(values[:4].sum(axis=0).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 3, 10])
@pytest.mark.parametrize(("holders", "may_drop"), [(3, 0), (10, 2), (1000, 50)])
def test_the_pooled_noise_has_the_stated_law(make_parties, rng, holders: int, may_drop: int, nodes: int) -> None:
    """Pooled minus exact, with may_drop holders missing, over its stated scale: standard normal by KS and by variance.

    Noise is the operating system's, so the rate of false alarms is 1e-9 in all: 9 cells, two tests each at 5e-11. A
    variance that is off by a tenth, or noise that one holder forgot among three, is far outside.
    """
    found = []
    for _ in range(1 if holders == 1000 else 12):
        parties = make_parties(holders=holders, nodes=nodes, features=5, may_drop=may_drop, may_collude=1 - (nodes > 2))
        values = some_values(parties, rng)
        present = holders - may_drop
        release = pool(parties.task, *play(parties, present, values))
        exact = values[:present].sum(axis=0)
        scales = np.array(release.scales) * 2.0**release.unit
        noisy = scales > 0
        assert release.values[0] == exact[0]  # the number of rows is public
        found.append((np.array(release.values) - exact)[noisy] / scales[noisy])
    errors = np.concatenate(found)
    assert stats.kstest(errors, "norm").pvalue > 5e-11
    low, high = stats.chi2(len(errors)).ppf([2.5e-11, 1 - 2.5e-11])
    assert low < float(errors @ errors) < high


def test_a_pooled_release_can_be_checked_by_anyone(parties, rng, tmp_path: Path) -> None:
    release = pool(parties.task, *play(parties, 4, some_values(parties, rng)))
    release.save(tmp_path / "pooled.json")
    evidence = verify(Release.load(tmp_path / "pooled.json"))
    assert evidence.holders == ("holder 0", "holder 1", "holder 2", "holder 3")
    assert evidence.missing == ("holder 4",)
    assert "secure sum" in release.privacy_statement()


def test_one_round_gives_one_identity(parties, rng) -> None:
    """So that the pooled release of a round can't be fitted twice."""
    agreed, sums = play(parties, 4, some_values(parties, rng))
    assert pool(parties.task, agreed, sums).identity == pool(parties.task, agreed, sums[::-1]).identity


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: replace(r, values=(r.values[0] + 1, *r.values[1:])), "values are not what the nodes"),
        (lambda r: replace(r, scales=tuple(0.5 * s for s in r.scales)), "noise scales are not those"),
        (lambda r: replace(r, identity="0" * 32), "identity is not what"),
        (lambda r: replace(r, unit=31), "unit is not what"),
        (lambda r: replace(r, round=None), "made by one holder alone"),
        (lambda r: replace(r, round={**r.round, "sums": r.round["sums"][:2]}), "Sums of 2 of 3 nodes"),
        (
            lambda r: replace(r, round={**r.round, "sums": [*r.round["sums"][:2], r.round["sums"][0]]}),
            "Sums of 2 of 3 nodes",
        ),
        (lambda r: replace(r, round={**r.round, "holders": r.round["holders"][1:]}), "3 holders were summed"),
        (lambda r: replace(r, round={**r.round, "more": 1}), "unknown key 'more'"),
    ],
)
def test_a_pooled_release_that_was_changed_is_refused(parties, rng, change: Callable, words: str) -> None:
    release = pool(parties.task, *play(parties, 4, some_values(parties, rng)))
    with pytest.raises(RoundError, match=words):
        verify(change(release))


def test_a_changed_sum_or_task_inside_is_a_forgery(parties, rng) -> None:
    release = pool(parties.task, *play(parties, 4, some_values(parties, rng)))
    for path in (("sums", 0, "body", "sum", 3), ("task", "body", "may_drop")):
        evidence = json.loads(json.dumps(release.round))
        place = evidence
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] += 1
        with pytest.raises(ForgeryError, match="signature is not that of key"):
            verify(replace(release, round=evidence))


def test_sums_over_different_sets_are_never_pooled(parties, rng) -> None:
    values = some_values(parties, rng)
    agreed, sums = play(parties, 5, values)
    fewer, others = play(parties, 4, values)
    with pytest.raises(RoundError, match="Node 'node 2' summed another set of holders"):
        pool(parties.task, agreed, [*sums[:2], others[2]])
    with pytest.raises(RoundError, match="summed another set"):
        pool(parties.task, fewer, sums)


def test_too_few_holders_are_never_pooled(parties, rng) -> None:
    with pytest.raises(RoundError, match="3 holders were summed, and at least 4 are needed"):
        pool(parties.task, *play(parties, 3, some_values(parties, rng)))


def test_only_nodes_of_the_round_may_speak(parties, make_parties, rng) -> None:
    stranger = make_parties()
    agreed, _ = play(parties, 4, some_values(parties, rng))
    words = np.zeros(parties.task.length, dtype=np.uint64)
    with pytest.raises(ForgeryError, match="which is no node of the round"):
        read_sum(sign_sum(stranger.nodes[0], parties.task, agreed, words).to_dict(), parties.task)
    with pytest.raises(ForgeryError, match="which is no node of the round"):
        read_manifest(sign_manifest(parties.coordinator, parties.task, agreed).to_dict(), parties.task)
    body = {"task": stranger.task.id, "held": []}
    with pytest.raises(RoundError, match="of another round"):
        read_manifest(Signed.by(parties.nodes[0], "manifest", body).to_dict(), parties.task)


@pytest.mark.parametrize("word", [-1, 2**64, 1.5, "1", None, True])
def test_a_sum_is_of_64_bit_words(parties, word: object) -> None:
    body = {"task": parties.task.id, "set": "0" * 64, "holders": 4, "sum": [word] * parties.task.length}
    with pytest.raises(RoundError, match="10 whole numbers of 64 bits"):
        read_sum(Signed.by(parties.nodes[0], "sum", body).to_dict(), parties.task)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ([["a", "b"]], "64 hexadecimal digits each"),
        ([["f" * 64, "0" * 64]], "not one of the round's holders"),
        ("twice", "named twice"),
    ],
)
def test_a_manifest_names_members_once(parties, held: object, words: str) -> None:
    if held == "twice":
        held = [[parties.holders[0].key, "0" * 64], [parties.holders[0].key, "1" * 64]]
    body = {"task": parties.task.id, "held": held}
    with pytest.raises(RoundError, match=words):
        read_manifest(Signed.by(parties.nodes[0], "manifest", body).to_dict(), parties.task)
