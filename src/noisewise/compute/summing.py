"""The sum of a node over the agreed set: from the stored envelopes, in a stream, the same whenever it is computed."""

import hashlib

from noisewise.compute.store import Store
from noisewise.errors import ForgeryError, RoundError
from noisewise.protocol.envelope import Envelope, largest
from noisewise.protocol.keys import SealingKey
from noisewise.protocol.round import Holdings
from noisewise.protocol.shares import Total, Words
from noisewise.protocol.task import Task

# Bytes of envelopes that are in memory at a time, about.
_AT_ONCE = 16 * 1024 * 1024


def total_of(store: Store, task: Task, place: int, key: SealingKey, agreed: Holdings) -> Words:
    """Add up the shares of the agreed holders, each from the very envelope that was agreed on."""
    due = dict(agreed)
    total = Total(task.length)
    for holder, content in store.contents(task.id, at_once=max(1, min(500, _AT_ONCE // largest(task)))):
        if holder not in due:
            continue
        envelope = Envelope.read(content)
        # the signature was checked on receipt; the agreed bundle names the ciphertext by its hash
        if (
            envelope.bundle != due.pop(holder)
            or hashlib.sha256(envelope.ciphertext).digest() != envelope.digests[place]
        ):
            raise ForgeryError(f"The stored envelope of holder {holder[:16]}... was changed; abort the round.")
        total.add(envelope.open(key, task.length))
    if due:
        raise RoundError(f"{len(due)} agreed envelopes are not in the store any more; abort the round.")
    return total.words
