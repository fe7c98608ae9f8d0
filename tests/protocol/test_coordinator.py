"""The coordinator: what it refuses, in which words, and what its board answers."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from noisewise.compute.coordinator import Coordinator
from noisewise.compute.notebook import Notebook
from noisewise.errors import ForgeryError, OutputError, RefusedError, RoundError
from noisewise.evaluation.local import Local
from noisewise.protocol.keys import Identity
from noisewise.protocol.remote import Network
from noisewise.protocol.signed import Signed
from tests.protocol.world import STUDY, make_world, member, send

NODES = ["https://north", "https://south", "https://west"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Local]:
    with make_world(tmp_path) as made:
        yield made


def open_round(world: Local, **changes: Any) -> Any:
    options = {"may_drop": 0, "may_collude": 0, "deadline": datetime.now(UTC) + timedelta(hours=1), **changes}
    return world.coordinator.open(STUDY, options.pop("nodes", NODES), **options)


def test_a_folder_has_one_coordinator(tmp_path: Path) -> None:
    made = Coordinator.create(tmp_path / "c")
    with pytest.raises(OutputError, match="there is a coordinator already"):
        Coordinator.create(tmp_path / "c")
    (tmp_path / "c" / "board.db").unlink()
    with pytest.raises(RoundError, match="no coordinator here; 'noisewise round init' makes one"):
        Coordinator(tmp_path / "c")
    assert Coordinator.create(tmp_path / "c").identity.key == made.identity.key  # stopped between key and notebook


def test_a_notebook_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "board.db").write_bytes(b"not a database at all, but long enough to look like a file" * 20)
    with pytest.raises(OutputError, match="the notebook can't be used"):
        Notebook(tmp_path / "board.db").holders()


WRONG = {
    "nobody by that name": ({"holders": ["h0", "zebra"]}, "'zebra' is not enrolled; enrolled are h0, h1, h2, h3"),
    "a deadline that has passed": ({"deadline": datetime(2020, 1, 1, tzinfo=UTC)}, "deadline 2020-01-01 .* has passed"),
    "nobody to hide behind": ({"may_drop": 3}, "leave nobody to hide behind: at least 5 holders"),
    "one node": ({"nodes": NODES[:1]}, "2 to 100 compute nodes; got 1. One alone would see the data"),
    "a node twice": ({"nodes": [NODES[0], NODES[0]]}, "Two nodes of the task have one name"),
    "no node at all": ({"nodes": [*NODES, "https://absent"]}, "absent can't be reached"),
    "an address without TLS": ({"nodes": ["http://north.example.org", NODES[0]]}, "is not encrypted: use https://"),
    "the board as a node": ({"nodes": [NODES[0], "https://board"]}, "refused: There is nothing here"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_round_that_can_not_be_opened(what: str, world: Local) -> None:
    changes, words = WRONG[what]
    with pytest.raises(RoundError, match=words):
        open_round(world, **changes)
    assert not world.coordinator.notebook.rounds()


def test_a_node_with_another_key_than_the_pinned_ones_is_refused(world: Local) -> None:
    keys = [node.key for node in world.nodes.values()]
    assert open_round(world, node_keys=keys).node_keys == tuple(keys)
    with pytest.raises(ForgeryError, match=f"The node at https://west has key {keys[2]}, which is none of those given"):
        open_round(world, node_keys=keys[:2])


def test_a_round_can_be_of_some_of_the_enrolled(world: Local) -> None:
    task = open_round(world, holders=["h2", "h0"])
    assert [one.name for one in task.members] == ["h2", "h0"]
    with pytest.raises(RoundError, match="is not among the round's holders"):
        member(world, 1).check(task, STUDY)


def test_rounds_are_found_by_the_beginning_of_their_names(world: Local) -> None:
    with pytest.raises(RoundError, match="There is no round ''; the newest are: none yet"):
        world.coordinator.notebook.find()
    first, second = open_round(world), open_round(world)
    assert world.coordinator.notebook.find().task.id == second.id
    assert world.coordinator.notebook.find(first.id[:12]).task.id == first.id
    with pytest.raises(RoundError, match="There is no round 'xyz'; the newest are: "):
        world.coordinator.notebook.find("xyz")


def test_a_node_does_not_take_orders_from_others(world: Local) -> None:
    task = open_round(world)
    stranger = Identity.generate()
    for kind, body in (("freeze", {"task": task.id}), ("abort", {"task": task.id, "reason": "because"})):
        order = Signed.by(stranger, kind, body)  # type: ignore[arg-type]
        node = world.network.remote("https://north", "node 'north'")
        with node, pytest.raises(RefusedError, match="signed by key") as refused:
            node.send("PUT", f"/rounds/{task.id}/{kind}", order.to_dict())
        assert refused.value.status == 403


def test_a_released_round_is_not_aborted(world: Local) -> None:
    task = open_round(world)
    for number in range(4):
        send(member(world, number), task)
    world.coordinator.collect(task.id)
    with pytest.raises(RoundError, match="is released already"):
        world.coordinator.abort(task.id, "too late")


class TestBoard:
    @pytest.fixture
    def board(self, world: Local) -> Iterator[httpx.Client]:
        with httpx.Client(transport=world.switchboard, base_url="https://board") as client:
            yield client

    def test_what_anyone_can_read(self, world: Local, board: httpx.Client) -> None:
        task = open_round(world, holders=["h0", "h1"])
        send(member(world, 0), task)
        listed = board.get("/rounds").json()["rounds"]
        assert [(one["id"], one["phase"], one["holders"]) for one in listed] == [(task.id, "open", 2)]
        stranger = member(world, 3).identity.key
        assert board.get(f"/rounds?holder={stranger}").json() == {"rounds": []}
        status = board.get(f"/rounds/{task.id}").json()
        assert [one["name"] for one in status["missing"]] == ["h1"]
        assert [node["holders"] for node in status["nodes"]] == [1, 1, 1]
        assert board.get(f"/rounds/{task.id}/task").json() == task.signed.to_dict()
        assert board.get("/healthz").status_code == 200
        assert "/relay/{node}/rounds/{round}/envelopes/{holder}" in board.get("/openapi.json").json()["paths"]
        assert "noisewise_requests_total" in board.get("/metrics").text

    def test_bad_requests_are_refused_in_words(self, world: Local, board: httpx.Client) -> None:
        task = open_round(world)
        key = task.node_keys[0]
        relay = f"/relay/{key}/rounds/{task.id}/envelopes"
        octets = {"content-type": "application/octet-stream"}
        stranger = Identity.generate()
        loose = Signed.by(stranger, "enrolment", {"name": "n", "token": "t", "more": 1}).to_dict()
        forged = {**Signed.by(stranger, "enrolment", {"name": "n", "token": "t"}).to_dict(), "signer": "0" * 64}
        answers = {
            404: [board.get("/rounds/xyz"), board.get(f"/rounds/{'0' * 64}"), board.get(f"/rounds/{task.id}/release")],
            400: [board.post("/enrolments", content=b"{", headers={"content-type": "application/json"}),
                  board.post("/enrolments", json={}), board.post("/enrolments", json=loose)],
            403: [board.post("/enrolments", json=forged),
                  board.put(f"{relay}/{stranger.key}", content=b"x", headers=octets)],
            413: [board.post("/enrolments", json={"x": "y" * 5000}),
                  board.put(f"{relay}/{task.members[0].key}", content=b"x" * 100_000, headers=octets)],
            405: [board.delete("/rounds")],
        }  # fmt: skip
        answers[400].append(board.put(f"{relay}/{task.members[0].key}", content=b"nwe1", headers=octets))
        for status, given in answers.items():
            for answer in given:
                assert answer.status_code == status, answer.text
                assert set(answer.json()) == {"error", "kind"}

    def test_the_relay_passes_on_that_a_node_is_down(self, world: Local, board: httpx.Client) -> None:
        task = open_round(world)
        world.switchboard.unplug("north")
        url = f"/relay/{task.node_keys[0]}/rounds/{task.id}"
        answer = board.get(url)
        assert answer.status_code == 502
        assert "node 'north' at https://north can't be reached" in answer.json()["error"]
        status = board.get(f"/rounds/{task.id}").json()
        assert "can't be reached" in status["nodes"][0]["problem"]
        assert status["words"].endswith("no answer from north")


class Answer(httpx.BaseTransport):
    """A server that gives one answer to everything."""

    def __init__(self, status: int, content: bytes) -> None:
        self.status, self.content, self.asked = status, content, 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        return httpx.Response(self.status, content=self.content)


@pytest.mark.parametrize(
    ("status", "content", "kind", "words", "asked"),
    [
        (200, b"<html>", RoundError, "this is not JSON", 1),
        (302, b"", RefusedError, "HTTP status 302", 1),
        (400, b'{"error": "no \\u001b[31m way", "kind": "x"}', RefusedError, "the node refused: no  .31m way", 1),
        (400, b'{"error": 7}', RefusedError, "HTTP status 400", 1),
        (503, b'{"error": "busy"}', OSError, r"fails \(busy\); tried 3 times", 3),
        (429, b"", OSError, "HTTP status 429", 3),
    ],
)
def test_answers_of_other_servers_are_not_believed(
    status: int, content: bytes, kind: type[Exception], words: str, asked: int
) -> None:
    server, pauses = Answer(status, content), []
    network = Network(transport=server, attempts=3, pause=pauses.append)
    with network.remote("https://node.example.org", "the node") as node, pytest.raises(kind, match=words):
        node.get("/card")
    assert (server.asked, len(pauses)) == (asked, asked - 1)
    assert pauses == sorted(pauses)


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisewise.protocol.remote.LARGEST_ANSWER", 1000)
    network = Network(transport=Answer(200, json.dumps("x" * 5000).encode()))
    node = network.remote("https://node.example.org", "the node")
    with node, pytest.raises(RoundError, match="The answer of the node is larger than"):
        node.get("/card")
