"""Shares add up to the values, and all but one of them say nothing."""

import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from noisewise.errors import RoundError
from noisewise.protocol.shares import BLOCK, SHORTEST_SEEDED, Share, Total, check, combine, split


def rebuilt(shares: tuple[Share, ...], length: int) -> np.ndarray:
    total = Total(length)
    total.add_all(share.content for share in shares)
    return total.words.view(np.int64)


@given(
    hnp.arrays(np.int64, st.integers(0, 40), elements=st.integers(-(2**63), 2**63 - 1)),
    st.integers(2, 12),
)
def test_shares_add_up_to_the_values(values: np.ndarray, nodes: int) -> None:
    shares = split(values, nodes)
    assert len(shares) == nodes
    np.testing.assert_array_equal(rebuilt(shares, len(values)), values)


@pytest.mark.parametrize("length", [SHORTEST_SEEDED - 1, SHORTEST_SEEDED, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_long_vectors_travel_as_seeds_and_still_add_up(length: int) -> None:
    values = np.random.default_rng(length).integers(-(2**62), 2**62, length)
    shares = split(values, 3)
    sizes = [len(share.content) for share in shares]
    seeded = length >= SHORTEST_SEEDED
    assert sizes == [1 + 8 * length, *([17] * 2 if seeded else [1 + 8 * length] * 2)]
    np.testing.assert_array_equal(rebuilt(shares, length), values)


def test_a_seed_is_the_key_of_aes_in_counter_mode_from_zero() -> None:
    # the first block under an all-zero key is a known answer of FIPS 197
    total = Total(SHORTEST_SEEDED)
    total.add(b"S" + bytes(16))
    assert total.words[:2].astype("<u8").tobytes().hex() == "66e94bd4ef8a2c3b884cfa59ca342b2e"


def test_a_stream_that_spans_blocks_is_one_stream() -> None:
    length, seed = 2 * BLOCK + 5, bytes(range(16))
    total = Total(length)
    total.add(b"S" + seed)
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update(bytes(8 * length))
    np.testing.assert_array_equal(total.words, np.frombuffer(stream, dtype="<u8"))


@pytest.mark.parametrize("length", [8, SHORTEST_SEEDED])
@pytest.mark.parametrize("secret", [0, -1, 2**40])
def test_all_shares_but_one_together_are_uniform(length: int, secret: int) -> None:
    """Chi-square on every byte of the sum of M - 1 shares, each node left out in turn.

    A share that kept anything of the secret (a missing mask, a repeated seed, a wrong sign) would show in the high
    bytes, which are constant in the secret. The randomness is the operating system's; 3 x 8 tests in each of 6 cases
    at 5e-12 each: below 1e-9 in all.
    """
    nodes, repeats = 3, 40_000 // length
    values = np.full(length, secret, dtype=np.int64)
    seen = np.empty((nodes, repeats, length), dtype=np.uint64)
    for repeat in range(repeats):
        shares = split(values, nodes)
        for left_out in range(nodes):
            total = Total(length)
            total.add_all(share.content for k, share in enumerate(shares) if k != left_out)
            seen[left_out, repeat] = total.words
    for left_out in range(nodes):
        for byte in range(8):
            found = (seen[left_out].ravel() >> np.uint64(8 * byte)) & np.uint64(255)
            assert stats.chisquare(np.bincount(found.astype(int), minlength=256)).pvalue > 5e-12


def test_no_two_sharings_are_alike() -> None:
    values = np.arange(SHORTEST_SEEDED)
    contents = {share.content for _ in range(50) for share in split(values, 3)}
    assert len(contents) == 150


def test_nodes_sums_combine_to_signed_numbers() -> None:
    assert combine([[1, 2**64 - 1, 2**63], [2, 2**64 - 1, 0]]) == (3, -2, -(2**63))
    with pytest.raises(ValueError, match="shorter|longer"):
        combine([[1, 2], [1]])


@settings(max_examples=300)
@given(st.binary(max_size=64), st.integers(0, 6))
def test_what_is_no_share_is_refused_in_words(content: bytes, length: int) -> None:
    sound = (content[:1] == b"W" and len(content) == 1 + 8 * length) or (content[:1] == b"S" and len(content) == 17)
    if sound:
        check(content, length)
    else:
        with pytest.raises(RoundError, match="not a share of .* entries"):
            check(content, length)


def test_one_node_is_refused() -> None:
    with pytest.raises(RoundError, match="at least 2 nodes"):
        split(np.arange(3), 1)


def test_shares_and_sums_cannot_be_printed_or_pickled() -> None:
    share, total = split(np.array([12345678]), 2)[0], Total(1)
    for secret in (share, total):
        assert "secret" in repr(secret)
        with pytest.raises(TypeError, match="secret"):
            pickle.dumps(secret)
