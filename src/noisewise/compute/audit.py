"""The audit log of a node: every round, envelope and step, in lines chained by hashes (privacy/chain.py).

A line is written in the transaction of what it tells. An edited, removed or inserted line breaks the chain from there
on. That the newest lines were cut off shows only to who noted a hash elsewhere: compare it with ``head``.
"""

from collections.abc import Iterator

from noisewise.compute.reading import Reader
from noisewise.errors import RoundError
from noisewise.privacy.chain import Entry, follow

_REMEDY = "Someone changed the database; keep it as it is, and restore a backup beside it to compare."


def entries(store: Reader, head: str = "") -> Iterator[Entry]:
    """The lines, oldest first, as long as the chain holds; RoundError where it does not, or lacks ``head``."""
    found = not head
    for entry in follow(store.audit(), lambda words: RoundError(f"The audit log is broken: {words} {_REMEDY}")):
        found = found or entry.hash == head
        yield entry
    if not found:
        raise RoundError(f"The audit log is broken: it has no entry {head[:16]}..., which it had once. {_REMEDY}")
