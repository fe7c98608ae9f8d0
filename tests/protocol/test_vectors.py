"""The committed test vectors still hold: a change of the wire format is a decision, not an accident."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisewise.protocol.envelope import Envelope
from noisewise.protocol.keys import Identity, SealingKey
from noisewise.protocol.pooled import pool, read_manifest, read_sum, sign_manifest, sign_sum, verify
from noisewise.protocol.round import intersection, set_digest
from noisewise.protocol.shares import Total
from noisewise.protocol.signed import Signed
from noisewise.protocol.task import Task


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("vectors.json").read_text(encoding="ascii"))


@pytest.fixture(scope="module")
def task(vectors: dict[str, Any]) -> Task:
    return Task.of(Signed.from_dict(vectors["task"], "task"))


def test_the_task_has_its_name_and_signer(vectors: dict[str, Any], task: Task) -> None:
    assert task.id == vectors["task_id"]
    assert task.coordinator == Identity(bytes.fromhex(vectors["secrets"]["coordinator"])).key
    assert task.length == 276


def test_envelopes_open_to_the_same_shares(vectors: dict[str, Any], task: Task) -> None:
    for node, secret in enumerate(vectors["secrets"]["sealing"]):
        key = SealingKey(bytes.fromhex(secret))
        for holder in range(3):
            envelope = Envelope.read(bytes.fromhex(vectors["envelopes"][holder][node]))
            envelope.check(task, node)
            assert envelope.open(key, task.length).hex() == vectors["opened"][node][holder]


def test_shares_add_up_to_the_values(vectors: dict[str, Any], task: Task) -> None:
    for holder in range(3):
        total = Total(task.length)
        total.add_all(bytes.fromhex(vectors["opened"][node][holder]) for node in range(2))
        assert total.words.view(np.int64).tolist() == vectors["values"][holder]


def test_documents_are_signed_alike(vectors: dict[str, Any], task: Task) -> None:
    """Ed25519 signatures are deterministic, so the same words signed again are the same bytes."""
    agreed = intersection(read_manifest(raw, task)[1] for raw in vectors["manifests"])
    assert set_digest(agreed) == vectors["set_digest"]
    for node, secret in enumerate(vectors["secrets"]["nodes"]):
        identity = Identity(bytes.fromhex(secret))
        assert sign_manifest(identity, task, agreed).to_dict() == vectors["manifests"][node]
        total = Total(task.length)
        total.add_all(bytes.fromhex(content) for content in vectors["opened"][node])
        assert sign_sum(identity, task, agreed, total.words).to_dict() == vectors["sums"][node]


def test_the_pooled_release_verifies(vectors: dict[str, Any], task: Task) -> None:
    agreed = intersection(read_manifest(raw, task)[1] for raw in vectors["manifests"])
    release = pool(task, agreed, [read_sum(raw, task)[1] for raw in vectors["sums"]])
    assert release.values == tuple(np.sum(vectors["values"], axis=0).tolist())
    assert verify(release).missing == ()
