"""The parts below a node: the writer that commits in groups, the store, the keyring, the folder."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noisewise.cli import app
from noisewise.compute.folder import Folder, Settings
from noisewise.compute.keyring import Keyring, Validity
from noisewise.compute.schema import sqlite_url
from noisewise.compute.store import Deposit, Outcome, Store, Transaction
from noisewise.compute.writer import MOST_IN_GROUP, Writer
from noisewise.errors import OutputError, RoundError
from noisewise.protocol.keys import SealingKey
from noisewise.protocol.round import Phase

NODE = "0" * 64
SECONDS = 30


class Committer:
    """Notes the groups; the first one waits until it is let go, so that others queue up behind it."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, group: Sequence[int]) -> list[int]:
        self.begun.set()
        assert self.go.wait(SECONDS)
        self.groups.append(list(group))
        if 13 in group:
            raise ValueError("unlucky")
        return [10 * item for item in group]


def test_writes_that_wait_are_committed_together() -> None:
    commit = Committer()
    writer = Writer(commit)
    first = writer.submit(0)
    assert commit.begun.wait(SECONDS)
    others = [writer.submit(k) for k in range(1, 6)]
    assert not any(done.done() for done in (first, *others))  # nobody hears of it before the commit
    commit.go.set()
    assert [done.result(SECONDS) for done in (first, *others)] == [0, 10, 20, 30, 40, 50]
    assert commit.groups == [[0], [1, 2, 3, 4, 5]]
    writer.close()


def test_one_bad_write_fails_for_itself_alone() -> None:
    commit = Committer()
    writer = Writer(commit)
    writer.submit(0)
    assert commit.begun.wait(SECONDS)
    done: list[Future[int]] = [writer.submit(k) for k in (12, 13, 14)]
    commit.go.set()
    assert done[0].result(SECONDS) == 120
    assert done[2].result(SECONDS) == 140
    with pytest.raises(ValueError, match="unlucky"):
        done[1].result(SECONDS)
    writer.close()


def test_closing_writes_what_waits_and_refuses_more() -> None:
    commit = Committer()
    writer = Writer(commit)
    done = [writer.submit(k) for k in range(14, 14 + 2 * MOST_IN_GROUP)]
    commit.go.set()
    writer.close()
    assert all(item.done() for item in done)
    assert max(map(len, commit.groups)) <= MOST_IN_GROUP
    assert not writer.alive
    with pytest.raises(OutputError, match="closed"):
        writer.submit(1)


@pytest.fixture
def store(tmp_path: Path):
    made = Store(sqlite_url(tmp_path / "node.sqlite"), NODE)
    made.write(lambda transaction: transaction.open("r", "{}", Phase.OPEN))
    yield made
    made.close()


def deposit(holder: str, digest: str = "d", **changes) -> Deposit:
    later = datetime.now(UTC) + timedelta(hours=1)
    return replace(Deposit("r", later, holder, digest, "b", b"sealed"), **changes)


def test_a_group_of_deposits_is_judged_one_by_one(store: Store) -> None:
    """In one transaction: twice the same, then another of the same holder, a late one, one of no round."""
    late = deposit("c", deadline=datetime.now(UTC) - timedelta(seconds=1))
    group = [deposit("a"), deposit("a"), deposit("a", "other"), deposit("b"), late, deposit("a", round="none")]
    expected = [Outcome.NEW, Outcome.SAME, Outcome.DIFFERENT, Outcome.NEW, Outcome.CLOSED, Outcome.UNKNOWN]
    assert store._commit(group) == expected
    assert store.holdings("r") == [("a", "b"), ("b", "b")]
    assert [row.kind for row in store.audit()] == ["envelope", "envelope"]


def test_a_refused_step_in_a_group_undoes_nothing_of_the_others(store: Store) -> None:
    def refuse(transaction: Transaction) -> None:
        raise RoundError("not now")

    results = store._commit([deposit("a"), refuse, deposit("b")])
    assert results[0] is results[2] is Outcome.NEW
    assert isinstance(results[1], RoundError)
    assert len(store.holdings("r")) == 2


def test_a_step_that_fails_after_it_wrote_is_undone(store: Store) -> None:
    def half(transaction: Transaction) -> None:
        transaction.update("r", phase=Phase.FROZEN.value)
        transaction.audit("frozen", round="r")
        raise RoundError("too late")

    with pytest.raises(RoundError, match="too late"):
        store.write(half)
    record = store.record("r")
    assert record
    assert record.phase is Phase.OPEN
    assert not list(store.audit())


def test_contents_come_in_order_however_many_at_once(store: Store) -> None:
    store._commit([deposit(f"{k:03}", content=bytes([k])) for k in range(25)])
    for at_once in (1, 7, 25, 100):
        assert list(store.contents("r", at_once)) == [(f"{k:03}", bytes([k])) for k in range(25)]


def test_a_store_is_one_nodes(tmp_path: Path, store: Store) -> None:
    with pytest.raises(RoundError, match="give every node a database of its own"):
        Store(sqlite_url(tmp_path / "node.sqlite"), "1" * 64)


def test_a_rotation_that_stops_midway_is_taken_up(tmp_path: Path) -> None:
    """The new pending key is made before the number is changed; a crash between the two changes nothing."""
    ring = Keyring.create(tmp_path / "sealing")
    active = ring.active.key.key
    SealingKey.create(tmp_path / "sealing" / "0003.key")
    ring = Keyring(tmp_path / "sealing")
    assert ring.active.key.key == active
    pending = [entry.key.key for entry in ring.entries if entry.validity is Validity.PENDING]
    assert ring.rotate().key.key == pending[0]
    found = ring.find(active)
    assert found
    assert found.validity is Validity.EXPIRED
    assert "secret" in repr(ring.entries)
    assert ring.active.key._secret.hex() not in repr(ring.entries)


@pytest.mark.parametrize(("text", "words"), [("x", "names no key"), ("7", "active sealing key is missing")])
def test_a_damaged_keyring_is_refused(tmp_path: Path, text: str, words: str) -> None:
    Keyring.create(tmp_path)
    (tmp_path / "active").write_text(text)
    with pytest.raises(RoundError, match=words):
        Keyring(tmp_path)


def test_a_node_is_never_made_twice(tmp_path: Path) -> None:
    made = Folder.create(tmp_path / "n", name="n", url="https://n.example.org", coordinators=[NODE])
    with pytest.raises(OutputError, match="there is a node already"):
        Folder.create(tmp_path / "n", name="n", url="https://n.example.org", coordinators=[NODE])
    assert Folder.load(tmp_path / "n").identity.key == made.identity.key


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("coordinators = []", "one or more"),
        ('coordinators = ["abc"]', "64 hexadecimal digits"),
        ("name = 3", "'name' is missing, or not a text"),
        ("requests_per_second = -1", "'requests_per_second' is a number from 0"),
        ('keep_envelopes = "no"', "'keep_envelopes' is a yes or no"),
        ("colour = 1", "'colour' is not a setting"),
        ("=", "not TOML"),
    ],
)
def test_settings_that_are_wrong_say_so(tmp_path: Path, line: str, words: str) -> None:
    folder = Folder.create(tmp_path / "n", name="n", url="https://n.example.org", coordinators=[NODE])
    file = folder.path / "node.toml"
    key = line.partition(" ")[0]
    kept = [old for old in file.read_text().splitlines() if not old.startswith(f"{key} ")]
    file.write_text("\n".join([*kept, line]))
    with pytest.raises(RoundError, match=words):
        Settings.load(file)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["init", "n", "--name", "n", "--url", "ftp://n", "--coordinator", NODE], "starts with https://"),
        (["init", "n", "--name", "n", "--url", "https://n", "--coordinator", "key"], "64 hexadecimal digits"),
        (["init", "n", "--name", "", "--url", "https://n", "--coordinator", NODE], "A node's name is one line"),
        (["card", "n"], "there is no node here; 'noisewise node init"),
        (["audit", "n"], "there is no node here"),
        (["keys", "rotate", "n"], "there is no node here"),
    ],
)
def test_commands_that_are_refused_say_why(tmp_path: Path, monkeypatch, words: list[str], told: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["node", *words])
    assert done.exit_code == 2
    assert told in done.stderr
    assert not list(tmp_path.iterdir())
