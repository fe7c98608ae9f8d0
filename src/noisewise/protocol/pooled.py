"""The end of a round: what nodes sign, the pooled Release made of it, and how anyone can check that Release.

A pooled Release carries its evidence in ``round``: the coordinator's signed task, the agreed set of holders with their
bundles, and every node's signed sum. Whoever has the file can add the sums up again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from noisewise.errors import ForgeryError, RoundError
from noisewise.gram import Integers
from noisewise.protocol.keys import Identity, is_key
from noisewise.protocol.round import Holdings, set_digest
from noisewise.protocol.shares import Words, combine
from noisewise.protocol.signed import Signed, check_keys
from noisewise.protocol.task import Task
from noisewise.release import Release


def sign_manifest(identity: Identity, task: Task, held: Holdings) -> Signed:
    """A node's word on which holders' envelopes it has, once it takes no more."""
    body = {"task": task.id, "held": sorted([holder, bundle] for holder, bundle in held)}
    return Signed.by(identity, "manifest", body)


def read_manifest(raw: Any, task: Task) -> tuple[int, Holdings]:
    """The node's place in the task, and what it holds."""
    signed = Signed.from_dict(raw, "manifest")
    node = _place(signed, task)
    check_keys(signed.body, {"task": str, "held": list}, "manifest")
    return node, _holdings(signed.body["held"], task)


def sign_sum(identity: Identity, task: Task, agreed: Holdings, words: Words) -> Signed:
    """A node's sum over the agreed set."""
    body = {"task": task.id, "set": set_digest(agreed), "holders": len(agreed), "sum": [int(word) for word in words]}
    return Signed.by(identity, "sum", body)


def read_sum(raw: Any, task: Task) -> tuple[int, Signed]:
    """The node's place in the task, and its sum."""
    signed = Signed.from_dict(raw, "sum")
    node = _place(signed, task)
    check_keys(signed.body, {"task": str, "set": str, "holders": int, "sum": list}, "sum")
    words = signed.body["sum"]
    if len(words) != task.length or not all(type(word) is int and 0 <= word < 1 << 64 for word in words):
        raise RoundError(f"Node {task.nodes[node].name!r}: a sum is {task.length} whole numbers of 64 bits.")
    return node, signed


def pool(task: Task, agreed: Holdings, sums: Sequence[Signed], *, holder: str = "") -> Release:
    """The pooled Release; RoundError unless all nodes signed sums over the very same holders."""
    evidence = {
        "task": task.signed.to_dict(),
        "holders": sorted([key, bundle] for key, bundle in agreed),
        "sums": [signed.to_dict() for signed in sums],
    }
    values = _values(task, agreed, sums)
    whole = math.sqrt(len(agreed))
    plan = task.plan()
    pooled = replace(plan, scales=tuple(scale * whole for scale in plan.scales))
    name = holder or f"{len(agreed)} holders together"
    release = Release.from_plan(task.study, values, pooled, holder=name)
    # one round has one release: the same evidence gives the same identity, so that it is never counted twice
    return replace(release, identity=task.id[:32], round=evidence)


@dataclass(frozen=True)
class Evidence:
    """What a verified pooled Release rests on."""

    task: Task
    holders: tuple[str, ...]
    missing: tuple[str, ...]


def verify(release: Release) -> Evidence:
    """Check a pooled Release by its own evidence: every signature, the set, the sum, the noise."""
    if release.round is None:
        raise RoundError("This release was made by one holder alone; only a pooled one has a round to verify.")
    check_keys(dict(release.round), {"task": dict, "holders": list, "sums": list}, "release's round")
    task = Task.of(Signed.from_dict(release.round["task"], "task"))
    agreed = _holdings(release.round["holders"], task)
    sums = [read_sum(raw, task)[1] for raw in release.round["sums"]]
    again = pool(task, agreed, sums, holder=release.holder)
    if release.study != task.study:
        raise ForgeryError("The release's study is not the one of its round.")
    for what, mine, theirs in (
        ("values are", again.values, release.values),
        ("unit is", again.unit, release.unit),
        ("identity is", again.identity, release.identity),
        ("privacy statement is", again.guarantee, release.guarantee),
        ("noise law is", again.law, release.law),
    ):
        if mine != theirs:
            raise ForgeryError(f"The release's {what} not what the nodes' signed sums give.")
    if not all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(again.scales, release.scales, strict=True)):
        raise ForgeryError("The release's noise scales are not those of its round.")
    present = {key for key, _ in agreed}
    return Evidence(
        task,
        holders=tuple(member.name for member in task.members if member.key in present),
        missing=tuple(member.name for member in task.members if member.key not in present),
    )


def _values(task: Task, agreed: Holdings, sums: Sequence[Signed]) -> Integers:
    import numpy as np

    if len(agreed) < task.crowd.least:
        raise RoundError(f"{len(agreed)} holders were summed, and at least {task.crowd.least} are needed.")
    signers = [signed.signer for signed in sums]
    if sorted(signers) != sorted(task.node_keys):
        raise RoundError(f"Sums of {len(set(signers))} of {len(task.nodes)} nodes; one of each is needed.")
    expected = set_digest(agreed)
    for signed in sums:
        if signed.body["task"] != task.id or signed.body["set"] != expected or signed.body["holders"] != len(agreed):
            name = task.nodes[task.node_keys.index(signed.signer)].name
            raise RoundError(f"Node {name!r} summed another set of holders than the agreed one; nothing is released.")
    return np.array(combine(signed.body["sum"] for signed in sums), dtype=np.int64)


def _place(signed: Signed, task: Task) -> int:
    if signed.signer not in task.node_keys:
        raise ForgeryError(
            f"The {signed.kind} is signed by key {signed.signer[:16]}..., which is no node of the round."
        )
    if signed.body.get("task") != task.id:
        raise RoundError(f"The {signed.kind} is of another round than {task.id[:16]}...")
    return task.node_keys.index(signed.signer)


def _holdings(raw: list[Any], task: Task) -> Holdings:
    pairs = []
    for item in raw:
        if not isinstance(item, list) or len(item) != 2 or not is_key(item[0]) or not is_key(item[1]):
            raise RoundError("A holding is a pair of a holder's key and a bundle, 64 hexadecimal digits each.")
        if item[0] not in task.keys:
            raise ForgeryError(f"Key {item[0][:16]}... is not one of the round's holders.")
        pairs.append((item[0], item[1]))
    if len({holder for holder, _ in pairs}) != len(pairs):
        raise RoundError("A holder is named twice; each counts once.")
    return frozenset(pairs)
