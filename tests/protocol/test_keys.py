"""Keys live in files for one pair of eyes, and can't be printed."""

import os
import pickle
import stat
from pathlib import Path

import pytest

from noisewise.errors import ForgeryError, OutputError, RoundError
from noisewise.protocol.keys import Identity, SealingKey, verify


@pytest.mark.parametrize("kind", [Identity, SealingKey])
def test_a_key_survives_its_file(kind, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.key"
    made = kind.create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kind.load(path).key == made.key
    assert [entry.name for entry in path.parent.iterdir()] == ["a.key"]


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    first = Identity.create(tmp_path / "a.key")
    with pytest.raises(OutputError, match="never overwritten"):
        Identity.create(tmp_path / "a.key")
    assert Identity.load(tmp_path / "a.key").key == first.key


def test_a_key_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    Identity.create(tmp_path / "a.key")
    os.chmod(tmp_path / "a.key", 0o644)
    with pytest.raises(RoundError, match="others may read this signing key .*chmod 600"):
        Identity.load(tmp_path / "a.key")


@pytest.mark.parametrize("content", ["", "noisewise signing key\n", "noisewise sealing key\n" + "0" * 64, "\xe9"])
def test_a_damaged_or_foreign_key_is_refused_without_its_content(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    path.write_text(content, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(RoundError, match=r"damaged|can't be read") as caught:
        Identity.load(path)
    assert "0" * 64 not in str(caught.value)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(RoundError, match="there is no signing key here"):
        Identity.load(tmp_path / "none.key")


@pytest.mark.parametrize("kind", [Identity, SealingKey])
def test_keys_cannot_be_printed_or_pickled(kind) -> None:
    key = kind(bytes(range(32)))
    assert bytes(range(32)).hex() not in repr(key) + str(key)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(key)


def test_signatures_hold_for_their_message_and_signer_alone() -> None:
    one, other = Identity.generate(), Identity.generate()
    signature = one.sign(b"message")
    verify(one.key, b"message", signature, "It")
    for key, message, given in (
        (other.key, b"message", signature),
        (one.key, b"massage", signature),
        (one.key, b"message", signature[:-1]),
        ("zz", b"message", signature),
    ):
        with pytest.raises(ForgeryError):
            verify(key, message, given, "It")
