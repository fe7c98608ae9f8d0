"""An envelope opens for its node, in its round, from its holder, unchanged; and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noisewise.errors import ForgeryError, RoundError
from noisewise.protocol.envelope import Envelope, largest, seal
from noisewise.protocol.keys import Identity, SealingKey
from noisewise.protocol.shares import split


def values_of(parties) -> np.ndarray:
    return np.arange(parties.task.length, dtype=np.int64) - 3


def accept(parties, content: bytes, node: int) -> bytes:
    envelope = Envelope.read(content)
    envelope.check(parties.task, node)
    return envelope.open(parties.sealing[node], parties.task.length)


def test_shares_come_through_and_add_up(parties) -> None:
    envelopes = parties.contribute(0, values_of(parties))
    totals = [parties.add_up(node, [content])[0].words for node, content in enumerate(envelopes)]
    np.testing.assert_array_equal(sum(totals).view(np.int64), values_of(parties))


def test_envelopes_of_one_sharing_have_one_bundle_and_another_sharing_another(parties) -> None:
    first, second = (parties.contribute(0, values_of(parties)) for _ in range(2))
    bundles = [{Envelope.read(content).bundle for content in sharing} for sharing in (first, second)]
    assert len(bundles[0]) == len(bundles[1]) == 1
    assert bundles[0] != bundles[1]


@pytest.mark.parametrize("features", [2, 25])
def test_no_sound_envelope_is_larger_than_announced(make_parties, features: int) -> None:
    parties = make_parties(features=features)
    envelopes = parties.contribute(0, values_of(parties))
    assert max(len(content) for content in envelopes) == largest(parties.task)


def test_every_changed_byte_is_noticed(parties) -> None:
    """One flipped bit in each byte: the head, the digests, the sealed share and the signature are all covered."""
    content = parties.contribute(0, values_of(parties))[1]
    for at in range(len(content)):
        changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        with pytest.raises(RoundError):
            accept(parties, changed, 1)


def test_an_envelope_for_another_node_is_refused(parties) -> None:
    content = parties.contribute(0, values_of(parties))[0]
    with pytest.raises(RoundError, match="for node 1, and this is node 2"):
        accept(parties, content, 1)


def test_an_envelope_of_another_round_is_refused(parties, make_parties) -> None:
    content = parties.contribute(0, values_of(parties))[0]
    with pytest.raises(RoundError, match="is of round"):
        Envelope.read(content).check(make_parties().task, 0)


def test_a_stranger_is_refused(parties) -> None:
    content = seal(parties.task, Identity.generate(), split(values_of(parties), 3))[0]
    with pytest.raises(ForgeryError, match="not one of the round's holders"):
        accept(parties, content, 0)


def test_a_member_cannot_send_in_the_name_of_another(parties) -> None:
    """The head names holder 1, holder 0 signs."""
    content = parties.contribute(1, values_of(parties))[0]
    forged = content[:-64] + parties.holders[0].sign(b"noisewise/1/envelope\n" + content[:-64])
    with pytest.raises(ForgeryError, match="someone else sent it"):
        accept(parties, forged, 0)


def test_a_share_that_was_sealed_for_another_holder_or_key_does_not_open(parties) -> None:
    envelope = Envelope.read(parties.contribute(0, values_of(parties))[0])
    with pytest.raises(ForgeryError, match="can't be opened"):
        envelope.open(SealingKey.generate(), parties.task.length)
    with pytest.raises(ForgeryError, match="can't be opened"):
        replace(envelope, holder=parties.holders[1].key).open(parties.sealing[0], parties.task.length)
    with pytest.raises(ForgeryError, match="can't be opened"):
        replace(envelope, task="00" * 32).open(parties.sealing[0], parties.task.length)


def test_a_share_of_the_wrong_length_is_refused_on_arrival(parties) -> None:
    content = seal(parties.task, parties.holders[0], split(np.arange(4), 3))[0]
    with pytest.raises(RoundError, match="not a share of 10 entries"):
        accept(parties, content, 0)


def test_shares_have_to_be_one_a_node(parties) -> None:
    with pytest.raises(RoundError, match="2 shares for 3 nodes"):
        seal(parties.task, parties.holders[0], split(values_of(parties), 2))


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bytes_from_anywhere_are_refused_with_an_error_of_ours(parties, data: st.DataObject) -> None:
    sound = parties.contribute(0, values_of(parties))[0]
    noise = st.binary(max_size=300)
    content = data.draw(st.one_of(noise, noise.map(lambda tail: b"nwe1" + tail), noise.map(lambda tail: sound + tail)))
    content = content[: data.draw(st.integers(0, len(content)))]
    if content != sound:
        with pytest.raises(RoundError):
            accept(parties, content, 0)
