"""Test vectors of the secure sum: what another implementation has to reproduce, byte by byte.

    python tests/protocol/vectors.py

writes vectors.json beside this file. Its keys are public and protect nothing. HPKE draws a fresh key for every seal, so
the envelopes differ from run to run; everything that is checked follows from them.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.column import Column
from noisewise.protocol.envelope import Envelope, seal
from noisewise.protocol.keys import Identity, SealingKey
from noisewise.protocol.pooled import sign_manifest, sign_sum
from noisewise.protocol.round import set_digest
from noisewise.protocol.shares import Total, split
from noisewise.protocol.task import Card, Member, Task
from noisewise.study import Study

PATH = Path(__file__).with_name("vectors.json")
FEATURES = 21  # 276 entries: seeds for all nodes but the first


def secret(number: int) -> bytes:
    return bytes([number]) * 32


def make() -> dict[str, Any]:
    columns = [Column(f"x{i}", -1, 1) for i in range(FEATURES)]
    study = Study(columns, Column("y", -1, 1), epsilon=1.0, delta=1e-6, name="vectors")
    coordinator, holders = Identity(secret(1)), [Identity(secret(10 + k)) for k in range(3)]
    nodes, sealing = [Identity(secret(20 + k)) for k in range(2)], [SealingKey(secret(30 + k)) for k in range(2)]
    cards = [
        Card.issue(node, name=f"node {k}", url=f"https://node{k}.example", sealing_key=sealing[k].key)
        for k, node in enumerate(nodes)
    ]
    task = Task.draft(
        coordinator,
        study,
        [Member(f"holder {k}", holder.key) for k, holder in enumerate(holders)],
        cards,
        may_drop=0,
        may_collude=0,
        deadline=datetime(2100, 1, 1, tzinfo=UTC),
    )
    values = [np.arange(task.length, dtype=np.int64) * (-1) ** k * 10**k - 7 for k in range(len(holders))]
    sent = [seal(task, holder, split(own, 2)) for holder, own in zip(holders, values, strict=True)]
    held = frozenset((Envelope.read(envelopes[0]).holder, Envelope.read(envelopes[0]).bundle) for envelopes in sent)
    opened = [[Envelope.read(sent[h][n]).open(sealing[n], task.length) for h in range(3)] for n in range(2)]
    totals = [Total(task.length) for _ in nodes]
    for total, contents in zip(totals, opened, strict=True):
        total.add_all(contents)
    return {
        "secrets": {
            "coordinator": secret(1).hex(),
            "holders": [secret(10 + k).hex() for k in range(3)],
            "nodes": [secret(20 + k).hex() for k in range(2)],
            "sealing": [secret(30 + k).hex() for k in range(2)],
        },
        "task": task.signed.to_dict(),
        "task_id": task.id,
        "values": [own.tolist() for own in values],
        "envelopes": [[content.hex() for content in envelopes] for envelopes in sent],
        "opened": [[content.hex() for content in contents] for contents in opened],
        "set_digest": set_digest(held),
        "manifests": [sign_manifest(node, task, held).to_dict() for node in nodes],
        "sums": [sign_sum(node, task, held, total.words).to_dict() for node, total in zip(nodes, totals, strict=True)],
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(make(), separators=(",", ":")) + "\n", encoding="ascii")
