r"""Secret shares: integers modulo 2^64, split over M nodes so that all but one of them together learn nothing.

A vector a is split as a = r_1 + ... + r_M (mod 2^64) with r_2, ..., r_M uniform and r_1 = a - sum of these. Any M - 1
of the shares are uniform whatever a is: without r_1 by construction, and without some r_k because r_1 is then a
constant plus -r_k. Sums of shares are shares of the sum (001, Algorithm 1, whose last blinding vector misses its minus
sign), so nodes add what they hold and the sum of their sums is the sum of all a, exact as long as it fits int64.

Uniform shares need not be sent whole (Prio): r_k is the keystream of AES-128 in counter mode under a fresh 128-bit
seed. A seed is used for one stream only, so the counter starts at zero. Short vectors are sent whole: expanding
a seed then costs a node more than reading the words.
"""

import os
from collections.abc import Callable, Iterable
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from noisewise.errors import RoundError
from noisewise.gram import Integers

Words = NDArray[np.uint64]
Entropy = Callable[[int], bytes]

SEED_BYTES = 16
# Below this many entries shares travel whole.
SHORTEST_SEEDED = 256
# Words that are expanded at a time: the keystream is added while it is still in the core's own cache.
BLOCK = 1 << 14

_WHOLE, _SEED = b"W", b"S"


class Share:
    """One node's share, as bytes to be sealed: a letter for its kind, then words (little-endian) or a seed."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __repr__(self) -> str:
        return "<Share: secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A share is secret and is not pickled.")


def split(values: Integers, nodes: int, entropy: Entropy = os.urandom) -> tuple[Share, ...]:
    """Shares of a vector for ``nodes`` nodes; ``entropy`` is the operating system's but in test vectors."""
    if nodes < 2:
        raise RoundError(f"Shares for {nodes} node would be the values themselves; at least 2 nodes are needed.")
    length = len(values)
    seeded = length >= SHORTEST_SEEDED
    size, letter = (SEED_BYTES, _SEED) if seeded else (8 * length, _WHOLE)
    others = [Share(letter + entropy(size)) for _ in range(nodes - 1)]
    masks = Total(length)
    for share in others:
        masks.add(share.content)
    first = np.ascontiguousarray(values, dtype=np.int64).view(np.uint64) - masks.words
    return (Share(_WHOLE + first.astype("<u8").tobytes()), *others)


def check(content: bytes, length: int) -> None:
    """Raise unless these bytes are a share of a vector of that length."""
    letter, size = content[:1], len(content) - 1
    if (letter, size) not in ((_WHOLE, 8 * length), (_SEED, SEED_BYTES)):
        raise RoundError(
            f"This is not a share of {length} entries: {size} bytes of kind {letter!r}, where {8 * length} bytes of "
            f"kind {_WHOLE!r} or {SEED_BYTES} of kind {_SEED!r} belong. Make the envelopes with the task's own study."
        )


class Total:
    """A running sum of shares modulo 2^64, in memory that does not grow with their number."""

    def __init__(self, length: int) -> None:
        self.words: Words = np.zeros(length, dtype=np.uint64)
        block = min(length, BLOCK)
        zeros = memoryview(bytes(8 * block))
        self._stream = bytearray(8 * block + 15)  # the cipher's interface asks for a block more, less one byte
        words = np.frombuffer(self._stream, dtype="<u8", count=block)
        # cut once and not for every seed: parts of the sum, as many zeros to encrypt, and the keystream's words
        self._parts = tuple(
            (self.words[at : at + block], zeros[: 8 * (length - at)], words[: length - at])
            for at in range(0, length, max(block, 1))
        )

    def add(self, content: bytes) -> None:
        """Add one share."""
        self.add_all((content,))

    def add_all(self, contents: Iterable[bytes]) -> None:
        """Add shares as they come."""
        keystream = _keystream()
        for content in contents:
            check(content, len(self.words))
            if content[:1] == _WHOLE:
                np.add(self.words, np.frombuffer(content, dtype="<u8", offset=1), out=self.words)
                continue
            update_into = keystream(content[1:])
            for part, zeros, words in self._parts:
                update_into(zeros, self._stream)
                np.add(part, words, out=part)

    def __repr__(self) -> str:
        return "<Total: secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A sum of shares is secret until its round is released, and is not pickled.")


def _keystream() -> Callable[[bytes], Callable[[memoryview, bytearray], int]]:
    """From a seed to what writes the next words of its stream (zeros, encrypted)."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    aes, from_zero = algorithms.AES, modes.CTR(bytes(16))
    return lambda seed: Cipher(aes(seed), from_zero).encryptor().update_into


def combine(sums: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """The sum of the nodes' sums as signed 64-bit integers: the pooled statistics."""
    columns = zip(*sums, strict=True)
    return tuple(_signed(sum(column)) for column in columns)


def _signed(value: int) -> int:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return value - (1 << 64) if value >> 63 else value
