"""What the compute nodes' summing costs: paper 001's Table 1 again, next to the bare cipher in the same run.

Ten nodes each add the shares of N holders of vectors of length d: nine expand a seed a holder, the first reads whole
shares (below 256 entries all do). CPU seconds of all ten together, streamed, so memory does not grow with N; the shares
are opened already (benchmarks/secure_round.py measures a whole round). The paper's numbers are seconds on a Spark
cluster. Targets: N = 100,000, d = 10,000 within 30 CPU seconds, at half the rate of OpenSSL's AES-CTR or more.
"""

import os
import time
from collections.abc import Iterator

from benchmarks import text_table
from noisewise.protocol.shares import SHORTEST_SEEDED, Total

NODES = 10
PAPER = {
    10: (1.72, 1.89, 2.99, 8.58),
    100: (2.03, 2.86, 12.36, 65.64),
    1_000: (3.43, 10.56, 101.2, 610.55),
    10_000: (15.30, 84.95, 994.96, 1592.29),
}
HOLDERS = (100, 1_000, 10_000, 100_000)


def run(quick: bool = False) -> str:
    largest = 10_000 if quick else 100_000
    cipher = aes_rate()
    rows, rate = [], 0.0
    for length, paper in PAPER.items():
        row = [f"{length:,}"]
        for holders, theirs in zip(HOLDERS, paper, strict=True):
            if holders > largest:
                continue
            seconds = all_nodes(holders, length)
            row.append(f"{seconds:.2f} ({theirs:g})")
            rate = (NODES - 1) * holders * 8 * length / seconds  # of the last, largest cell: bytes expanded a second
        rows.append(row)
    cipher = max(cipher, aes_rate())  # before and after: other work on the machine slows either
    return text_table(
        f"CPU seconds of {NODES} nodes' summing (in brackets the paper's seconds)",
        ["d \\ N", *(f"{holders:,}" for holders in HOLDERS if holders <= largest)],
        rows,
        [
            f"OpenSSL's AES-128-CTR: {cipher / 1e9:.2f} GB a CPU second; last cell: {rate / 1e9:.2f} GB expanded and "
            f"added a CPU second, {rate / cipher:.2f} of it (target 0.5)."
        ],
    )


def all_nodes(holders: int, length: int) -> float:
    """CPU seconds; the first node's whole shares, and a seed for every holder on the nine others."""
    seeded = length >= SHORTEST_SEEDED
    seconds = 0.0
    for node in range(NODES):
        shares = _seeds(holders) if seeded and node else _whole(holders, length)
        total = Total(length)
        began = time.process_time()
        total.add_all(shares)
        seconds += time.process_time() - began
    return seconds


def _seeds(holders: int) -> Iterator[bytes]:
    pool = os.urandom(16 * holders)
    return (b"S" + pool[at : at + 16] for at in range(0, len(pool), 16))


def _whole(holders: int, length: int) -> Iterator[bytes]:
    """A few made shares over and over: reading them from disk is not what is measured here."""
    few = [b"W" + os.urandom(8 * length) for _ in range(16)]
    return (few[k % len(few)] for k in range(holders))


def aes_rate() -> float:
    """Bytes of keystream that OpenSSL makes in a CPU second, in blocks of 64 KiB."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    zeros, out = bytes(1 << 16), bytearray((1 << 16) + 15)
    stream = Cipher(algorithms.AES(os.urandom(16)), modes.CTR(bytes(16))).encryptor()
    best = 0.0
    for _ in range(10):
        began = time.process_time()
        for _ in range(2_000):
            stream.update_into(zeros, out)
        best = max(best, 2_000 * len(zeros) / (time.process_time() - began))
    return best
