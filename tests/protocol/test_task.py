"""A task is checked against itself: whoever wrote it, the noise, the parties and the study have to be right."""

from copy import deepcopy
from datetime import datetime
from typing import Any

import pytest

from noisewise.column import Column
from noisewise.errors import ForgeryError, RoundError
from noisewise.protocol.keys import Identity
from noisewise.protocol.signed import Signed, canonical, parse
from noisewise.protocol.task import Card, Member, Task
from noisewise.study import Study


def changed(parties, **changes: Any) -> Task:
    """The task with some of its body changed, signed again by its coordinator."""
    body = deepcopy(parties.task.signed.body)
    for key, value in changes.items():
        body[key] = value(body[key]) if callable(value) else value
    return Task.of(Signed.by(parties.coordinator, "task", body))


def test_a_task_survives_its_journey(parties) -> None:
    raw = parse(canonical(parties.task.signed.to_dict()), "task")
    again = Task.of(Signed.from_dict(raw, "task", parties.coordinator.key))
    assert again == parties.task
    assert again.id == parties.task.id


def test_two_tasks_alike_are_two_rounds(parties) -> None:
    task = parties.task
    again = Task.draft(
        parties.coordinator, task.study, task.members, task.nodes, may_drop=1, may_collude=1, deadline=task.deadline
    )
    assert again.id != task.id


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "format 2; this package reads 1"),
        ({"scales": lambda scales: [0.5 * scale for scale in scales]}, "noise is not what its study"),
        ({"scales": lambda scales: [scale or 1.0 for scale in scales]}, "noise is not what its study"),
        ({"scales": lambda scales: scales[:-1]}, "noise is not what its study"),
        ({"scales": lambda scales: ["1e9" for _ in scales]}, "noise is not what its study"),
        ({"scales": lambda scales: [*scales[:-1], 10**400]}, "noise is not what its study"),
        ({"may_collude": 0}, "noise is not what its study"),
        ({"may_drop": 9}, "leave nobody to hide behind: at least 12 holders"),
        ({"may_drop": -1}, "may_drop is -1"),
        ({"may_drop": True}, "wrong type"),
        ({"study_digest": "0" * 64}, "not the one that its study_digest names"),
        ({"study": {"format": "other"}}, "this is not a study"),
        ({"holders": lambda holders: [holders[0], *holders[:-1]]}, "Two holders of the task have one name"),
        (
            {"holders": lambda holders: [["x", holders[1][1]], *holders[1:]]},
            "Two holders of the task have one key",
        ),
        ({"holders": [["only one", "0" * 64]]}, "2 to 1,000,000 holders"),
        ({"holders": [["a", "b"], ["c", "d"]]}, "a name and a key of 64"),
        ({"holders": lambda holders: [["\n", holders[0][1]], *holders[1:]]}, "printable characters"),
        ({"nodes": lambda nodes: nodes[:1]}, "2 to 100 compute nodes; got 1. One alone would see the data"),
        ({"nodes": lambda nodes: [nodes[0], *nodes[:2]]}, "a node that counts twice protects nobody"),
        ({"deadline": "soon"}, "not a time such as"),
        ({"deadline": "2027-01-01T00:00:00"}, "needs a time zone"),
    ],
)
def test_a_task_that_contradicts_itself_is_refused(parties, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RoundError, match=words):
        changed(parties, **changes)


def test_a_task_has_its_keys_and_no_others(parties) -> None:
    body = dict(parties.task.signed.body)
    with pytest.raises(RoundError, match="unknown key 'extra'"):
        Task.of(Signed.by(parties.coordinator, "task", {**body, "extra": 1}))
    del body["nonce"]
    with pytest.raises(RoundError, match="lacks 'nonce'"):
        Task.of(Signed.by(parties.coordinator, "task", body))


def test_two_nodes_with_one_sealing_key_are_one_node(parties) -> None:
    twin = Card.issue(Identity.generate(), name="twin", url="https://twin", sealing_key=parties.sealing[0].key)
    with pytest.raises(RoundError, match="one sealing key"):
        changed(parties, nodes=lambda nodes: [*nodes[:2], twin.signed.to_dict()])


def test_a_node_card_that_the_node_did_not_sign_is_refused(parties) -> None:
    """A coordinator that puts its own sealing key into a node's card would read what is sealed for the node."""

    def swap(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        nodes[0]["body"]["sealing_key"] = "1" * 64
        return nodes

    with pytest.raises(ForgeryError, match="The node-card: the signature is not that of key"):
        changed(parties, nodes=swap)


def test_a_laplace_study_is_refused_with_the_remedy(parties) -> None:
    study = Study([Column("x", 0, 1)], Column("y", 0, 1), epsilon=1.0, mechanism="laplace")
    with pytest.raises(RoundError, match="Laplace noise does not split over holders.*mechanism = 'gaussian'"):
        Task.draft(
            parties.coordinator,
            study,
            parties.task.members,
            parties.task.nodes,
            may_drop=0,
            may_collude=0,
            deadline=parties.task.deadline,
        )


def test_a_deadline_without_a_zone_is_refused(parties) -> None:
    with pytest.raises(RoundError, match="needs a time zone"):
        Task.draft(
            parties.coordinator,
            parties.task.study,
            [Member("a", "0" * 64), Member("b", "1" * 64), Member("c", "2" * 64)],
            parties.task.nodes,
            may_drop=0,
            may_collude=0,
            deadline=datetime(2027, 1, 1),
        )


@pytest.mark.parametrize("url", ["ftp://node", "node.example", "https://node.example/", "https://a\nb", ""])
def test_a_node_address_is_checked(url: str) -> None:
    with pytest.raises(RoundError, match="address"):
        Card.issue(Identity.generate(), name="node", url=url, sealing_key="1" * 64)


def test_a_document_of_one_kind_is_not_taken_for_another(parties) -> None:
    raw = parties.task.signed.to_dict()
    with pytest.raises(RoundError, match="kind 'task' where a manifest belongs"):
        Signed.from_dict(raw, "manifest")
    with pytest.raises(ForgeryError, match="signature is not that of key"):
        Signed.from_dict({**raw, "kind": "abort"}, "abort")
    with pytest.raises(ForgeryError, match="is signed by key .* where that of"):
        Signed.from_dict(raw, "task", parties.nodes[0].key)


@pytest.mark.parametrize("raw", [None, [], {}, {"kind": "task"}, {"kind": 1, "body": 2, "signer": 3, "signature": 4}])
def test_what_is_no_document_is_refused(raw: object) -> None:
    with pytest.raises(RoundError):
        Signed.from_dict(raw, "task")


@pytest.mark.parametrize("content", [b"", b"{", b"NaN", b'{"a": Infinity}', b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(content: bytes) -> None:
    with pytest.raises(RoundError, match="not JSON"):
        parse(content, "body")
