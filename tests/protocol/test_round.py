"""The pure steps of a round, tried in every order."""

from collections import deque

import pytest

from noisewise.errors import RoundError
from noisewise.protocol.round import (
    Abort,
    Agree,
    Event,
    Freeze,
    Open,
    Phase,
    Publish,
    Round,
    Sum,
    intersection,
    set_digest,
    step,
)

A, B, C = ("a" * 64, "1" * 64), ("b" * 64, "2" * 64), ("c" * 64, "3" * 64)
ALL, TWO, ONE = frozenset({A, B, C}), frozenset({A, B}), frozenset({A})
START = Round("0" * 64, nodes=2, least=2)

EVENTS: tuple[Event, ...] = (
    Open(),
    Freeze(ALL),
    Freeze(TWO),
    Agree({0: ALL, 1: ALL}),
    Agree({0: ALL, 1: TWO}),
    Agree({0: ALL, 1: ONE}),
    Agree({0: ALL}),
    Sum("first"),
    Sum("second"),
    Publish(),
    Abort("enough"),
)


def try_step(state: Round, event: Event) -> Round | None:
    try:
        return step(state, event)
    except RoundError:
        return None


def reachable() -> dict[Round, list[tuple[Event, Round | None]]]:
    """Every state that any order of these events leads to, with what each event does there."""
    found: dict[Round, list[tuple[Event, Round | None]]] = {}
    waiting = deque([START])
    while waiting:
        state = waiting.popleft()
        if state in found:
            continue
        found[state] = [(event, try_step(state, event)) for event in EVENTS]
        waiting.extend(after for _, after in found[state] if after is not None)
    return found


def test_the_straight_way() -> None:
    state = START
    for event, phase in (
        (Open(), Phase.OPEN),
        (Freeze(ALL), Phase.FROZEN),
        (Agree({0: ALL, 1: TWO}), Phase.AGREED),
        (Sum("x"), Phase.SUMMED),
        (Publish(), Phase.RELEASED),
    ):
        state = step(state, event)
        assert state.phase is phase
        assert step(state, event) == state  # the same again changes nothing
    assert state.agreed == TWO
    assert state.ended


def test_nothing_that_was_settled_ever_changes() -> None:
    states = reachable()
    assert {state.phase for state in states} == set(Phase)
    for state, after_each in states.items():
        for event, after in after_each:
            if after is None:
                continue
            assert state.agreed in (None, after.agreed), event  # one set, for ever
            assert state.frozen in (None, after.frozen), event
            assert state.sum_digest in ("", after.sum_digest), event
            if state.ended:
                assert after == state, event


def test_a_sum_needs_an_agreed_set_that_is_large_enough() -> None:
    for state in reachable():
        if state.phase in (Phase.AGREED, Phase.SUMMED, Phase.RELEASED):
            assert state.agreed is not None
            assert len(state.agreed) >= state.least
        if state.sum_digest:
            assert state.phase in (Phase.SUMMED, Phase.RELEASED)


def test_a_published_sum_cannot_be_aborted_away() -> None:
    for state, after_each in reachable().items():
        if state.phase in (Phase.SUMMED, Phase.RELEASED):
            assert all(after is None for event, after in after_each if isinstance(event, Abort))


def test_another_set_is_refused_for_ever_in_words() -> None:
    agreed = step(step(step(START, Open()), Freeze(ALL)), Agree({0: ALL, 1: ALL}))
    for state in (agreed, step(agreed, Sum("x")), step(step(agreed, Sum("x")), Publish())):
        with pytest.raises(RoundError, match="agreed on another set of holders; a node sums one set in a round, ever"):
            step(state, Agree({0: ALL, 1: TWO}))


def test_too_few_holders_abort_the_round_in_words() -> None:
    frozen = step(step(START, Open()), Freeze(ALL))
    aborted = step(frozen, Agree({0: ALL, 1: ONE}))
    assert aborted.phase is Phase.ABORTED
    assert aborted.reason == "1 holders reached all nodes and at least 2 are needed for enough noise"
    with pytest.raises(RoundError, match="was aborted .1 holders.*open a new one"):
        step(aborted, Sum("x"))


def test_manifests_of_all_nodes_are_needed() -> None:
    frozen = step(step(START, Open()), Freeze(ALL))
    for manifests in ({}, {0: ALL}, {0: ALL, 1: ALL, 2: ALL}, {0: ALL, 2: ALL}):
        with pytest.raises(RoundError, match="of 2 nodes; all have to publish"):
            step(frozen, Agree(manifests))


def test_one_holder_with_two_bundles_on_two_nodes_is_left_out() -> None:
    other = frozenset({A, B, (C[0], "4" * 64)})
    assert intersection([ALL, other]) == TWO


def test_a_manifest_with_one_holder_twice_is_refused() -> None:
    twice = ALL | {(C[0], "4" * 64)}
    with pytest.raises(RoundError, match="one holder with two bundles"):
        intersection([twice, twice])


def test_the_hash_of_a_set_depends_on_holders_and_bundles_and_not_on_order() -> None:
    assert set_digest([A, B, C]) == set_digest([C, B, A])
    assert len({set_digest(ALL), set_digest(TWO), set_digest([A, B, (C[0], "4" * 64)])}) == 3
