r"""The envelope: one share, sealed for one node, signed by its holder.

    "nwe1" | task 32 | holder 32 | node u16 | nodes u16 | nodes x digest 32 | ciphertext | signature 64     (big-endian)

The share is sealed by HPKE (RFC 9180: X25519, HKDF-SHA256, AES-128-GCM) with the task, the holder and the node's place
bound into ``info``, so it opens nowhere else. The digests are the SHA-256 hashes of all the ciphertexts of one
sharing; their hash is the *bundle*. Nodes agree on pairs of holder and bundle, so shares of two different sharings of
one holder can never meet in a sum, even if the holder was restored from an old backup.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from noisewise.errors import ForgeryError, RoundError
from noisewise.protocol.keys import SIGNATURE_BYTES, Identity, SealingKey, verify
from noisewise.protocol.shares import Share, check
from noisewise.protocol.task import Task

MAGIC = b"nwe1"
SEAL_BYTES = 48  # HPKE's encapsulated key and authentication tag
_HEAD = struct.Struct(">4s32s32sHH")
_SIGNED = b"noisewise/1/envelope\n"


@dataclass(frozen=True)
class Envelope:
    """An envelope taken apart; nothing in it is secret to its readers but what is sealed."""

    task: str
    holder: str
    node: int
    digests: tuple[bytes, ...]
    ciphertext: bytes
    signature: bytes
    content: bytes

    @classmethod
    def read(cls, content: bytes) -> "Envelope":
        """Take the bytes apart; whether they are genuine is for ``check`` to say."""
        if len(content) < _HEAD.size or content[:4] != MAGIC:
            raise RoundError("This is not an envelope; one begins with 'nwe1'.")
        _, task, holder, node, nodes = _HEAD.unpack_from(content)
        body = _HEAD.size + 32 * nodes
        if nodes < 2 or node >= nodes or len(content) < body + SEAL_BYTES + SIGNATURE_BYTES:
            raise RoundError("This envelope is malformed or cut off; send the bytes of the outbox again.")
        digests = tuple(content[at : at + 32] for at in range(_HEAD.size, body, 32))
        sealed, signature = content[body:-SIGNATURE_BYTES], content[-SIGNATURE_BYTES:]
        return cls(task.hex(), holder.hex(), node, digests, sealed, signature, content)

    @property
    def bundle(self) -> str:
        return hashlib.sha256(b"".join(self.digests)).hexdigest()

    @property
    def digest(self) -> str:
        """SHA-256 of the whole envelope: same again, or different?"""
        return hashlib.sha256(self.content).hexdigest()

    def check(self, task: Task, node: int) -> None:
        """Raise unless a member of this task made it for this node."""
        if self.task != task.id:
            raise RoundError(f"This envelope is of round {self.task[:16]}..., not of {task.id[:16]}...")
        if self.node != node or len(self.digests) != len(task.nodes):
            raise RoundError(f"This envelope is for node {self.node + 1}, and this is node {node + 1} of the round.")
        if self.holder not in task.keys:
            raise ForgeryError(f"Key {self.holder[:16]}... is not one of the round's holders.")
        verify(self.holder, _SIGNED + self.content[:-SIGNATURE_BYTES], self.signature, "The envelope")
        if hashlib.sha256(self.ciphertext).digest() != self.digests[node]:
            raise ForgeryError("The sealed share is not the one that the envelope's digests name.")

    def open(self, key: SealingKey, length: int) -> bytes:
        """The share inside, if it was sealed for this key and is a share of ``length`` entries."""
        from cryptography.exceptions import InvalidTag

        info = _info(self.task, self.holder, self.node)
        try:
            content = bytes(_suite().decrypt(self.ciphertext, key.private, info=info))
        except (InvalidTag, ValueError):
            raise ForgeryError(
                "The share can't be opened: it was sealed for another key, another round or another holder, or changed."
            ) from None
        check(content, length)
        return content


def seal(task: Task, holder: Identity, shares: Sequence[Share]) -> tuple[bytes, ...]:
    """The envelopes of one sharing, one for each node of the task, in its order."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    if len(shares) != len(task.nodes):
        raise RoundError(f"{len(shares)} shares for {len(task.nodes)} nodes; every node gets one.")
    sealed = []
    for node, (card, share) in enumerate(zip(task.nodes, shares, strict=True)):
        public = X25519PublicKey.from_public_bytes(bytes.fromhex(card.sealing_key))
        sealed.append(bytes(_suite().encrypt(share.content, public, info=_info(task.id, holder.key, node))))
    digests = b"".join(hashlib.sha256(ciphertext).digest() for ciphertext in sealed)
    out = []
    for node, ciphertext in enumerate(sealed):
        head = _HEAD.pack(MAGIC, bytes.fromhex(task.id), bytes.fromhex(holder.key), node, len(sealed))
        content = head + digests + ciphertext
        out.append(content + holder.sign(_SIGNED + content))
    return tuple(out)


def largest(task: Task) -> int:
    """The size of the largest sound envelope of a task."""
    return _HEAD.size + 32 * len(task.nodes) + SEAL_BYTES + 1 + 8 * task.length + SIGNATURE_BYTES


def _info(task: str, holder: str, node: int) -> bytes:
    return b"noisewise/1/share" + bytes.fromhex(task) + bytes.fromhex(holder) + struct.pack(">H", node)


@lru_cache(maxsize=1)
def _suite() -> Any:
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
