"""Whole rounds with all parties in one process: the sum, those who are missing, nodes that are away, lost answers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw
from noisewise.errors import RefusedError, RoundError, UnreachableError
from noisewise.evaluation.local import Local
from noisewise.holder.share import Participant
from noisewise.protocol.pooled import verify
from noisewise.protocol.round import Phase
from tests.protocol.world import STUDY, Losing, make_world, member, send, spent, table


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Local]:
    with make_world(tmp_path) as made:
        yield made


def test_the_pooled_release_is_the_sum_with_the_stated_noise(world: Local) -> None:
    task = world.open(STUDY, may_drop=1, may_collude=1)
    for number in range(3):
        assert send(member(world, number), task, rows=40 + number, seed=number).complete
    release = world.coordinator.collect(task.id, early=True)

    exact = [nw.exact_release(STUDY, table(40 + number, number)) for number in range(3)]
    truth = sum(np.array(single.values) for single in exact)
    assert release.n == 40 + 41 + 42  # public, and exact
    # each of 3 holders adds 1/m of one release's variance, with m = 4 - 1 - 1 - 1
    alone = nw.Holder(STUDY, ledger=None).dry_run().scales
    assert release.scales == pytest.approx([scale * 3**0.5 for scale in alone], rel=1e-6)
    grid = np.array(release.scales[1:]) * 2**release.unit
    score = (np.array(release.values) - truth)[1:] / grid
    # real noise: beyond 7 sd with probability 3e-12 an entry; no noise at all would give zeros
    assert np.abs(score).max() < 7
    assert np.abs(score).min() > 0

    evidence = verify(release)
    assert (evidence.holders, evidence.missing) == (("h0", "h1", "h2"), ("h3",))
    assert nw.fit([release], "fixed-s", seed=1).summary().rows[0].name == "intercept"


def test_everyone_reads_the_same_release_afterwards(world: Local) -> None:
    task = world.open(STUDY)
    for number in range(4):
        send(member(world, number), task)
    release = world.coordinator.collect(task.id)  # before the deadline, as all are there
    assert world.coordinator.collect(task.id) == release
    with world.network.remote("https://board", "the board") as board:
        assert nw.Release.from_dict(board.get(f"/rounds/{task.id}/release")) == release
        assert board.get(f"/rounds/{task.id}")["phase"] == "released"
    assert {node.status(task.id)["phase"] for node in world.nodes.values()} == {"released"}
    standing = world.coordinator.standing(task.id)
    assert (standing.phase, standing.missing, standing.in_words()) == (Phase.RELEASED, (), "released")


def test_who_is_missing_is_told_and_waited_for(world: Local) -> None:
    task = world.open(STUDY, may_drop=1)
    send(member(world, 0), task)
    standing = world.coordinator.standing(task.id)
    assert [missing.name for missing in standing.missing] == ["h1", "h2", "h3"]
    assert standing.in_words() == "1 of 4 holders are at all nodes, 3 needed"
    with pytest.raises(RoundError, match=r"3 of 4 holders are still missing \(h1, h2, h3\).*--early"):
        world.coordinator.collect(task.id)
    assert {node.status(task.id)["phase"] for node in world.nodes.values()} == {"open"}


def test_with_too_few_holders_the_nodes_abort_and_the_budget_stays_spent(world: Local) -> None:
    task = world.open(STUDY, may_drop=1)
    send(member(world, 0), task)
    send(member(world, 1), task)
    for _ in range(2):
        with pytest.raises(RoundError, match="aborted.*2 holders reached all nodes and at least 3 are needed"):
            world.coordinator.collect(task.id, early=True)
    assert world.coordinator.standing(task.id).phase is Phase.ABORTED
    assert spent(member(world, 0)) == (1, 0)
    with pytest.raises(RefusedError) as refused, world.network.remote("https://board", "the board") as board:
        board.get(f"/rounds/{task.id}/release")
    assert refused.value.status == 404
    assert {node.status(task.id)["phase"] for node in world.nodes.values()} == {"aborted"}


def test_a_coordinator_can_abort_and_holders_hear_of_it(world: Local) -> None:
    task = world.open(STUDY)
    send(member(world, 0), task)
    world.coordinator.abort(task.id, "wrong study")
    delivery = send(member(world, 1), task)
    assert not delivery.complete
    assert "takes no envelopes any more" in delivery.receipts[0].words
    with pytest.raises(RoundError, match=r"aborted \(wrong study\)"):
        world.coordinator.collect(task.id)
    first = member(world, 0)
    parcel = first.outbox.get(task.id)
    assert parcel is not None
    assert "the round is aborted (wrong study)" in first.status(parcel).receipts[0].words


def test_a_node_that_was_away_gets_the_same_bytes_and_nothing_is_spent_again(world: Local) -> None:
    task = world.open(STUDY)
    first = member(world, 0)
    world.switchboard.unplug("south")
    delivery = send(first, task)
    assert [receipt.stored for receipt in delivery.receipts] == [True, False, True]
    assert "node 'south' at https://south can't be reached" in delivery.receipts[1].words
    assert delivery.in_words().startswith("2 of 3 nodes have it; it counts only when all do")
    kept = first.outbox.path(task.id).read_bytes()
    assert spent(first) == (1, 1)

    world.switchboard.plug("south")
    delivery = send(first, task, rows=77)  # another table is not even looked at
    assert [receipt.words for receipt in delivery.receipts] == ["had it already", "stored now", "had it already"]
    assert first.outbox.path(task.id).read_bytes() == kept
    assert spent(first) == (1, 0)
    for number in (1, 2, 3):
        send(member(world, number), task)
    assert world.coordinator.collect(task.id).n == 160


def test_a_round_waits_for_a_node_that_is_down(world: Local) -> None:
    task = world.open(STUDY)
    for number in range(4):
        send(member(world, number), task)
    world.switchboard.unplug("west")
    with pytest.raises(UnreachableError, match="west"):
        world.coordinator.collect(task.id)
    with pytest.raises(UnreachableError, match="node 'west' at https://west can't be reached"):
        world.coordinator.collect(task.id, early=True)
    assert world.coordinator.standing(task.id).silent == ("west",)
    world.switchboard.plug("west")
    assert verify(world.coordinator.collect(task.id)).missing == ()


def test_opening_again_after_a_node_was_down_opens_the_same_round(world: Local) -> None:
    world.switchboard.unplug("south")
    with pytest.raises(UnreachableError, match="south"):
        world.open(STUDY)
    assert not world.coordinator.notebook.rounds()  # its card was not to be had: nothing was drafted
    world.switchboard.plug("south")

    put = Losing(world.switchboard)
    world.coordinator.network = replace(world.network, transport=put, attempts=1)
    with pytest.raises(UnreachableError):  # cards
        world.open(STUDY)
    with pytest.raises(UnreachableError):  # the nodes have it, and their answers are lost
        world.open(STUDY)
    draft = world.coordinator.notebook.find()
    assert draft.phase is Phase.DRAFT
    assert world.open(STUDY).id == draft.task.id
    assert [record.phase for record in world.coordinator.notebook.rounds()] == [Phase.OPEN]
    world.coordinator.network = world.network
    assert world.open(STUDY).id != draft.task.id  # and the next one is another round


def test_a_round_survives_the_loss_of_every_first_answer(tmp_path: Path) -> None:
    with Local(tmp_path) as world:
        losing = Losing(world.switchboard)
        world.network = replace(world.network, transport=losing, attempts=2)
        world.coordinator.network = world.network
        members = [world.enrol(name) for name in ("a", "b", "c")]
        task = world.open(STUDY, may_collude=1)
        for number, one in enumerate(members):
            assert one.find(STUDY) == task
            assert send(one, task, rows=20 + number).complete
            assert spent(one) == (1, 0)
        release = world.coordinator.collect(task.id)
        assert release.n == 20 + 21 + 22  # a contribution that counted twice would show
        assert len(world.coordinator.notebook.holders()) == 3
    assert losing.lost > 20


def test_a_holder_with_one_address_sends_through_the_board(world: Local) -> None:
    task = world.open(STUDY)
    home = world.home("h0")
    text = (home / "trust.toml").read_text().replace("[nodes]", "relay = true\n[nodes]")
    (home / "trust.toml").write_text(text)
    behind = Participant(home, replace(world.network, transport=OnlyBoard(world.switchboard)))
    delivery = send(behind, behind.find(STUDY))
    assert delivery.complete
    parcel = behind.outbox.get(task.id)
    assert parcel is not None
    assert [receipt.words for receipt in behind.status(parcel).receipts] == ["has it; the round is open"] * 3
    assert all(len(node.status(task.id)["holders"]) == 1 for node in world.nodes.values())


class OnlyBoard(Losing):
    """A firewall that lets requests to the board out and no others."""

    def handle_request(self, request):  # type: ignore[no-untyped-def]
        assert request.url.host == "board"
        return self._inner.handle_request(request)


def test_parties_go_on_in_a_new_process(tmp_path: Path) -> None:
    with make_world(tmp_path) as world:
        task = world.open(STUDY)
        for number in range(4):
            send(member(world, number), task)
    with Local(tmp_path) as again:
        assert again.coordinator.collect(task.id).n == 160
