"""The ledger: no overspend by any number of processes, nothing forgotten by a crash, no edit that does not show."""

import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from noisewise.errors import LedgerError, OutputError, OverspendError
from noisewise.privacy import chain as chain_module
from noisewise.privacy.accounting import Event, composed_epsilon
from noisewise.privacy.calibration import gaussian_multiplier
from noisewise.privacy.chain import GENESIS, Chain, entry_hash
from noisewise.privacy.ledger import Ledger

STUDY = "ab" * 32
RELEASE = "cd" * 32
CHILDREN = Path(__file__).with_name("ledger_children.py")


def laplace(epsilon: float = 1.0) -> Event:
    return Event("laplace", 1 / epsilon, epsilon, 0.0)


def gaussian(epsilon: float = 1.0, delta: float = 1e-6) -> Event:
    return Event("gaussian", gaussian_multiplier(epsilon, delta), epsilon, delta)


def reserve(ledger: Ledger, event: Event | None = None) -> str:
    return ledger.reserve(
        event or laplace(), adjacency=ledger.adjacency, study_digest=STUDY, study_name="pressure", holder="city"
    )


def child(command: str, *arguments: object) -> dict[str, Any]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, str(CHILDREN), command, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    out: dict[str, Any] = json.loads(done.stdout)
    return out


def tamper(path: Path, *statements: str) -> None:
    """What somebody with an SQLite shell could do: take the triggers off, change, put them back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in triggers:
            connection.execute(sql)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger.create(path, dataset="patients", epsilon=3, delta=1e-5)


class TestCreate:
    def test_what_it_says_at_birth(self, ledger: Ledger, path: Path) -> None:
        summary = ledger.summary()
        assert (summary.dataset, summary.adjacency) == ("patients", "replace-one")
        assert (summary.total_epsilon, summary.total_delta) == (3.0, 1e-5)
        assert (summary.spent_epsilon, summary.left_epsilon) == (0.0, 3.0)
        assert (summary.reservations, summary.unconfirmed, summary.raises) == (0, 0, 0)
        assert [entry.kind for entry in ledger.entries()] == ["open"]
        assert summary.head == ledger.entries()[0].hash
        assert repr(ledger) == f"<Ledger of 'patients' at {path}>"

    def test_only_its_owner_may_read_it(self, path: Path) -> None:
        before = os.umask(0)
        try:
            Ledger.create(path, dataset="d", epsilon=1, delta=0)
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o777 == 0o600
        assert [file.name for file in path.parent.iterdir()] == [path.name]  # nothing left beside it

    def test_is_never_overwritten(self, ledger: Ledger, path: Path) -> None:
        entry = reserve(ledger)
        with pytest.raises(
            LedgerError, match=r"ledger\.db: there is a file already, and a ledger is never overwritten"
        ):
            Ledger.create(path, dataset="other", epsilon=100, delta=0)
        assert Ledger.open(path).verify([entry]).ok
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_no_such_folder(self, path: Path) -> None:
        with pytest.raises(OutputError, match=r"can't be created \(No such file or directory\); choose another place"):
            Ledger.create(path.parent / "absent" / "ledger.db", dataset="d", epsilon=1, delta=0)

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"epsilon": 0}, "epsilon above 0"),
            ({"epsilon": -1}, "epsilon above 0"),
            ({"epsilon": math.nan}, "total epsilon is a finite number"),
            ({"epsilon": "1"}, "total epsilon is a finite number"),
            ({"delta": 0.5}, "below 0.5"),
            ({"delta": -1e-9}, "below 0.5"),
            ({"delta": True}, "total delta is a finite number"),
            ({"dataset": " "}, "name of the data set is one line of text that is not empty"),
            ({"dataset": "a\nb"}, "one line"),
            ({"adjacency": "replace"}, "use one of replace-one, add-remove"),
        ],
    )
    def test_wrong_values_make_no_file(self, path: Path, values: dict[str, Any], words: str) -> None:
        with pytest.raises(LedgerError, match=words):
            Ledger.create(path, **{"dataset": "d", "epsilon": 1, "delta": 1e-6, **values})
        assert not path.exists()

    def test_times_come_from_the_clock(self, path: Path) -> None:
        moment = datetime(2031, 5, 3, 12, 0, tzinfo=timezone(timedelta(hours=2)))
        ledger = Ledger.create(path, dataset="d", epsilon=1, delta=0, clock=lambda: moment)
        ledger.confirm(reserve(ledger), release_digest=RELEASE)
        assert [entry.created for entry in ledger.entries()] == ["2031-05-03T10:00:00+00:00"] * 3
        opened = Ledger.open(path, clock=lambda: datetime(2032, 1, 1, tzinfo=UTC))
        opened.raise_total(2, 0, "later")
        assert opened.entries()[-1].created == "2032-01-01T00:00:00+00:00"
        assert opened.summary().created == "2031-05-03T10:00:00+00:00"


class TestSpending:
    def test_reserve_is_spent_before_it_is_confirmed(self, ledger: Ledger, path: Path) -> None:
        entry = reserve(ledger)
        summary = Ledger.open(path).summary()
        assert (summary.reservations, summary.unconfirmed) == (1, 1)
        assert (summary.spent_epsilon, summary.left_epsilon) == (1.0, 2.0)
        ledger.confirm(entry, release_digest=RELEASE)
        summary = Ledger.open(path).summary()
        assert (summary.unconfirmed, summary.spent_epsilon) == (0, 1.0)

    def test_what_an_entry_holds(self, ledger: Ledger) -> None:
        entry = reserve(ledger, gaussian())
        held = ledger.entries()[-1]
        assert held.hash == entry
        assert held.kind == "reserve"
        assert Event(**held.payload["event"]) == gaussian()
        assert (held.payload["study_digest"], held.payload["study_name"]) == (STUDY, "pressure")
        assert held.payload["holder"] == "city"
        assert re.fullmatch("[0-9a-f]{32}", held.payload["nonce"])

    def test_a_round_is_paid_for_once_unless_asked_for_again(self, ledger: Ledger) -> None:
        part = {"adjacency": ledger.adjacency, "study_digest": "a" * 64, "round": "b" * 64}
        small = gaussian(epsilon=0.1)
        first = ledger.reserve(small, **part)
        with pytest.raises(LedgerError, match=f"reserved for round {'b' * 16}.*{first[:16]}.*--spend-again"):
            ledger.reserve(small, **part)
        with pytest.raises(LedgerError, match="stays spent"):
            ledger.check_first("b" * 64)
        ledger.check_first("c" * 64)
        ledger.reserve(small, **{**part, "round": "c" * 64})
        second = ledger.reserve(small, **part, again=True)
        rounds = [entry.payload["round"][0] for entry in ledger.entries() if entry.kind == "reserve"]
        assert (rounds, second != first) == (["b", "c", "b"], True)
        with pytest.raises(LedgerError, match="round is a SHA-256 hash"):
            ledger.reserve(small, **{**part, "round": "a name"})

    def test_the_published_hash_tells_nothing(self, tmp_path: Path) -> None:
        """Two ledgers with the same history have different hashes: nobody can guess a history and compare."""
        moment = datetime(2031, 1, 1, tzinfo=UTC)
        entries = set()
        for name in ("a.db", "b.db"):
            ledger = Ledger.create(tmp_path / name, dataset="d", epsilon=3, delta=0, clock=lambda: moment)
            entries |= {reserve(ledger), reserve(ledger)}
        assert len(entries) == 4

    def test_the_price_is_the_accountants(self, ledger: Ledger) -> None:
        events = [gaussian(0.5), laplace(0.2), gaussian(1.0, 1e-7)]
        for event in events:
            reserve(ledger, event)
        assert ledger.summary().spent_epsilon == composed_epsilon(events, 1e-5)
        assert ledger.summary().spent_epsilon < 1.7

    def test_the_whole_total_can_be_spent(self, path: Path) -> None:
        ledger = Ledger.create(path, dataset="d", epsilon=0.3, delta=0)
        for _ in range(3):
            reserve(ledger, laplace(0.1))
        assert ledger.summary().left_epsilon == 0.0
        with pytest.raises(OverspendError):
            reserve(ledger, laplace(1e-6))

    def test_one_release_may_take_all(self, path: Path) -> None:
        ledger = Ledger.create(path, dataset="d", epsilon=1, delta=1e-6)
        reserve(ledger, gaussian(1, 1e-6))
        assert ledger.summary().left_epsilon == 0.0

    def test_overspend_says_asked_spent_left_total_and_remedies(self, ledger: Ledger, path: Path) -> None:
        reserve(ledger, laplace(2.5))
        before = path.read_bytes()
        with pytest.raises(OverspendError) as caught:
            reserve(ledger, laplace(1.0))
        words = str(caught.value)
        for part in (
            "asks for epsilon 1, delta 0",
            "'patients' has spent 2.5 of a total epsilon of 3 at delta 1e-05, 0.5 is left",
            "with this release it would be 3.5",
            "Nothing was spent",
            "lower the study's epsilon to it",
            f"noisewise ledger raise {path} --epsilon E --delta D --reason TEXT",
        ):
            assert part in words
        assert path.read_bytes() == before

    @pytest.mark.parametrize("asked", [laplace(2), gaussian(4), gaussian(4, 1e-4)])
    def test_the_epsilon_that_the_refusal_names_does_fit(self, ledger: Ledger, asked: Event) -> None:
        reserve(ledger, laplace(1))
        reserve(ledger, gaussian(1.5))
        with pytest.raises(OverspendError) as caught:
            reserve(ledger, asked)
        match = re.search(r"epsilon (\S+) still fits", str(caught.value))
        assert match
        best = float(match[1])

        def of(epsilon: float) -> Event:
            return laplace(epsilon) if asked.law == "laplace" else gaussian(epsilon, asked.delta)

        assert not ledger.would_cost(of(best * 1.02)).fits
        reserve(ledger, of(best))

    def test_a_gaussian_does_not_fit_a_pure_total(self, path: Path) -> None:
        ledger = Ledger.create(path, dataset="d", epsilon=100, delta=0)
        with pytest.raises(
            OverspendError, match=r"no bound would hold.*A total delta of 0 leaves room for Laplace noise"
        ):
            reserve(ledger, gaussian())
        assert ledger.summary().reservations == 0

    def test_nothing_left(self, path: Path) -> None:
        ledger = Ledger.create(path, dataset="d", epsilon=1, delta=0)
        reserve(ledger)
        with pytest.raises(OverspendError, match=r"0 is left.*Not even a thousandth of that epsilon fits"):
            reserve(ledger)

    def test_would_cost_writes_nothing(self, ledger: Ledger, path: Path) -> None:
        reserve(ledger)
        before = path.read_bytes()
        quote = ledger.would_cost(laplace(1.5))
        assert (quote.spent_before, quote.fits) == (1.0, True)
        assert quote.spent_after == composed_epsilon([laplace(1), laplace(1.5)], 1e-5)
        assert quote.left_after == 3.0 - quote.spent_after
        assert not ledger.would_cost(laplace(2.5)).fits
        assert ledger.would_cost(laplace(2.5)).left_after == 0.0
        assert path.read_bytes() == before

    def test_another_adjacency_is_refused(self, ledger: Ledger, path: Path) -> None:
        before = path.read_bytes()
        with pytest.raises(
            LedgerError, match=r"'add-remove' and this ledger counts 'replace-one'.*two steps of add-rem"
        ):
            ledger.reserve(laplace(), adjacency="add-remove", study_digest=STUDY, study_name="", holder="")
        with pytest.raises(LedgerError, match="two steps"):
            ledger.would_cost(laplace(), adjacency="add-remove")
        assert path.read_bytes() == before

    def test_digests_are_checked(self, ledger: Ledger) -> None:
        with pytest.raises(LedgerError, match=r"study_digest is a SHA-256 hash"):
            ledger.reserve(laplace(), adjacency="replace-one", study_digest="abc", study_name="", holder="")
        with pytest.raises(LedgerError, match=r"release_digest is a SHA-256 hash"):
            ledger.confirm(reserve(ledger), release_digest="XY" * 32)


class TestConfirm:
    def test_of_nothing(self, ledger: Ledger) -> None:
        with pytest.raises(LedgerError, match="there is no reservation"):
            ledger.confirm("ef" * 32, release_digest=RELEASE)
        with pytest.raises(LedgerError, match="there is no reservation"):
            ledger.confirm(ledger.summary().head, release_digest=RELEASE)  # an entry, but no reservation

    def test_twice(self, ledger: Ledger) -> None:
        """The same again is no news (a retry after a crash); another release on one reservation is refused."""
        entry = reserve(ledger)
        ledger.confirm(entry, release_digest=RELEASE)
        head = ledger.summary().head
        ledger.confirm(entry, release_digest=RELEASE)
        assert ledger.summary().head == head
        with pytest.raises(LedgerError, match="confirmed for another release already"):
            ledger.confirm(entry, release_digest=STUDY)


class TestRaise:
    def test_is_visible_and_makes_room(self, ledger: Ledger) -> None:
        reserve(ledger, laplace(2.5))
        entry = ledger.raise_total(5, 1e-5, "ethics board, 3 May")
        held = ledger.entries()[-1]
        assert (held.kind, held.hash, held.payload["reason"]) == ("raise", entry, "ethics board, 3 May")
        summary = ledger.summary()
        assert (summary.total_epsilon, summary.raises, summary.left_epsilon) == (5.0, 1, 2.5)
        reserve(ledger, laplace(2.5))

    @pytest.mark.parametrize(("epsilon", "delta"), [(2.9, 1e-5), (3, 1e-6), (10, 0), (3, 1e-5)])
    def test_never_lowers(self, ledger: Ledger, epsilon: float, delta: float) -> None:
        with pytest.raises(LedgerError, match="never lowered"):
            ledger.raise_total(epsilon, delta, "why not")
        assert len(ledger.entries()) == 1

    @pytest.mark.parametrize("reason", ["", "  ", "a\nb"])
    def test_needs_a_reason(self, ledger: Ledger, reason: str) -> None:
        with pytest.raises(LedgerError, match="reason for a larger total"):
            ledger.raise_total(5, 1e-5, reason)


class TestOpen:
    def test_absent(self, path: Path) -> None:
        with pytest.raises(
            LedgerError, match=r"there is no ledger; 'noisewise ledger create .*ledger\.db --dataset NAME"
        ):
            Ledger.open(path)
        assert not path.exists()

    def test_of_another_data_set(self, ledger: Ledger, path: Path) -> None:
        Ledger.open(path, "patients")
        with pytest.raises(LedgerError, match="ledger of data set 'patients', not of 'staff'"):
            Ledger.open(path, "staff")

    def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(LedgerError, match="this is not a file"):
            Ledger.open(tmp_path)

    @pytest.mark.parametrize("content", [b"epsilon,delta\n1,1e-6\n" * 100, b"\x00" * 5000, b"SQLite format 2"])
    def test_not_sqlite(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="not a ledger, or its beginning is damaged"):
            Ledger.open(path)
        assert path.read_bytes() == content

    def test_empty(self, path: Path) -> None:
        path.touch()
        with pytest.raises(
            LedgerError, match=r"the file is empty\. Nothing can be released from it\. Restore a backup"
        ):
            Ledger.open(path)
        assert path.read_bytes() == b""

    def test_of_another_program(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE entries (position, kind, payload, previous, hash)")
        with pytest.raises(LedgerError, match="SQLite file of another program"):
            Ledger.open(path)

    def test_of_another_version(self, ledger: Ledger, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 7")
        with pytest.raises(LedgerError, match="ledger version 7 is not known here; this package reads 1"):
            Ledger.open(path)

    def test_cut_off_anywhere(self, ledger: Ledger, path: Path) -> None:
        for _ in range(3):
            reserve(ledger, laplace(0.1))
        whole = path.read_bytes()
        for length in [1, 50, 99, 100, 512, 2000, *range(4000, len(whole), 1000), len(whole) - 1]:
            path.write_bytes(whole[:length])
            with pytest.raises(LedgerError, match=r"damaged|cut off|not a ledger|empty|can't be read"):
                Ledger.open(path)
        path.write_bytes(whole)
        assert Ledger.open(path).verify().ok

    @given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    @settings(max_examples=150)
    def test_a_flipped_bit_is_seen_or_harmless(self, place: float, bit: int) -> None:
        """Whatever bit of the file is damaged: a LedgerError, or entries that are the same to the last hash."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.db"
            path.write_bytes(SAMPLE_BYTES)
            damaged = bytearray(SAMPLE_BYTES)
            damaged[int(place * len(damaged))] ^= 1 << bit
            expected = Ledger.open(path).entries()
            path.write_bytes(damaged)
            try:
                found = Ledger.open(path).entries()
            except LedgerError:
                return
            assert found == expected


def sample_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        ledger = Ledger.create(path, dataset="d", epsilon=3, delta=0)
        for _ in range(8):
            ledger.confirm(reserve(ledger, laplace(0.1)), release_digest=RELEASE)
        return path.read_bytes()


SAMPLE_BYTES = sample_bytes()


class TestTampering:
    @pytest.fixture
    def used(self, ledger: Ledger) -> list[str]:
        return [reserve(ledger, laplace(0.5)) for _ in range(3)]

    @pytest.mark.parametrize(
        "statement",
        ["UPDATE entries SET kind = 'open'", "DELETE FROM entries WHERE position = 2", "DELETE FROM entries"],
    )
    def test_the_file_refuses_changes(self, used: list[str], path: Path, statement: str) -> None:
        with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
        assert Ledger.open(path).verify(used).ok

    @pytest.mark.parametrize(
        ("statement", "words"),
        [
            (
                """UPDATE entries SET payload = replace(payload, 'epsilon":0.5', 'epsilon":0.1') WHERE position = 3""",
                "entry 3 was changed after it was written",
            ),
            ("UPDATE entries SET kind = 'confirm' WHERE position = 2", "entry 2 was changed"),
            ("UPDATE entries SET payload = replace(payload, '3.0', '9.0') WHERE position = 1", "entry 1 was changed"),
            ("UPDATE entries SET hash = previous WHERE position = 4", "entry 4 was changed"),
            ("UPDATE entries SET previous = hash WHERE position = 3", "entry 3 does not follow the one before it"),
            ("DELETE FROM entries WHERE position = 3", "entry 3 is missing; it was removed"),
            ("DELETE FROM entries WHERE position = 1", "entry 1 is missing"),
            ("DELETE FROM entries", "entry 1 is missing"),
            ("UPDATE entries SET position = position + 10 WHERE position > 2", "entry 3 is missing"),
            ("INSERT INTO entries SELECT 5, kind, payload, previous, hash FROM entries WHERE position = 4", "entry 5"),
            ("CREATE TABLE notes (text)", "tables are not those of a ledger"),
        ],
    )
    def test_an_edit_shows(self, used: list[str], path: Path, statement: str, words: str) -> None:
        ledger = Ledger.open(path)
        tamper(path, statement)
        for use in (lambda: Ledger.open(path), ledger.summary, ledger.verify, lambda: reserve(ledger)):
            with pytest.raises(LedgerError, match=words):
                use()

    def test_a_missing_trigger_shows(self, used: list[str], path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TRIGGER no_delete")
        with pytest.raises(LedgerError, match="tables are not those of a ledger"):
            Ledger.open(path)

    def test_an_entry_moved_behind_another_shows(self, used: list[str], path: Path) -> None:
        tamper(
            path,
            "UPDATE entries SET position = 100 WHERE position = 2",
            "UPDATE entries SET position = 2 WHERE position = 3",
            "UPDATE entries SET position = 3 WHERE position = 100",
        )
        with pytest.raises(LedgerError, match="entry 2 does not follow"):
            Ledger.open(path)

    def test_newest_entries_gone_show_by_a_release_or_a_head_alone(self, used: list[str], path: Path) -> None:
        head = Ledger.open(path).summary().head
        tamper(path, "DELETE FROM entries WHERE position >= 4")
        ledger = Ledger.open(path)
        assert ledger.verify().ok  # a chain can't know that it was longer
        assert ledger.summary().spent_epsilon == pytest.approx(1.0, rel=1e-3)
        found = ledger.verify(used)
        assert not found.ok
        assert found.missing == (used[2],)
        assert f"Reservation {used[2]} is named by a release and is not in the ledger" in found.problems[0]
        found = ledger.verify(head=head)
        assert (found.ok, found.head_missing, found.missing) == (False, True, ())
        assert "remembered head is not in the ledger" in found.problems[0]

    def test_a_chain_written_anew_shows_by_a_release(self, used: list[str], path: Path) -> None:
        """Who recomputes all hashes has a sound chain, and not the one whose hashes were published."""
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT position, kind, payload FROM entries ORDER BY position").fetchall()
        previous, statements = GENESIS, []
        for position, kind, payload in rows:
            payload = payload.replace('"epsilon":0.5', '"epsilon":0.01').replace(
                '"multiplier":2.0', '"multiplier":100.0'
            )
            digest = entry_hash(position, kind, payload, previous)
            statements.append(
                f"UPDATE entries SET payload = '{payload}', previous = '{previous}', hash = '{digest}' "
                f"WHERE position = {position}"
            )
            previous = digest
        tamper(path, *statements)
        ledger = Ledger.open(path)
        assert ledger.summary().spent_epsilon == pytest.approx(0.03, rel=1e-2)
        assert ledger.verify(used).missing == tuple(used)

    def test_an_older_copy_shows_by_a_release(self, ledger: Ledger, path: Path) -> None:
        copy = path.read_bytes()
        entry = reserve(ledger)
        path.write_bytes(copy)
        assert Ledger.open(path).verify([entry, entry]).missing == (entry,)

    def test_a_grown_ledger_still_has_an_old_head(self, used: list[str], path: Path) -> None:
        ledger = Ledger.open(path)
        head = ledger.summary().head
        reserve(ledger, laplace(0.1))
        found = ledger.verify(used, head=head)
        assert found.ok
        assert found.problems == ()
        assert (found.entries, found.reservations, found.head != head) == (5, 4, True)
        assert found.unconfirmed[:3] == tuple(used)

    def test_a_hash_of_no_reservation_is_missing(self, used: list[str], path: Path) -> None:
        ledger = Ledger.open(path)
        entry = ledger.raise_total(5, 1e-5, "more")
        assert ledger.verify([entry]).missing == (entry,)

    @pytest.mark.parametrize(
        ("kind", "payload"),
        [("refund", "{}"), ("reserve", "{}"), ("reserve", '{"event":{"law":"x"}}'), ("confirm", "[]"), ("raise", "no")],
    )
    def test_entries_of_another_program(self, ledger: Ledger, path: Path, kind: str, payload: str) -> None:
        """Well chained, and nothing that this version writes: refused, not skipped."""
        head = ledger.summary().head
        digest = entry_hash(2, kind, payload, head)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("INSERT INTO entries VALUES (2, ?, ?, ?, ?)", (kind, payload, head, digest))
        with pytest.raises(LedgerError, match=r"not one that this package writes|entry 2 is not readable"):
            Ledger.open(path)

    def test_the_hash_is_sha256_of_what_the_format_says(self) -> None:
        """Pinned: a ledger outlives the version that wrote it."""
        pinned = "337ca0c4339b2d3cefc1dcc156c574d8c9f144dca8cc6edb642a616ef6e6c6b0"
        assert entry_hash(1, "open", "{}", GENESIS) == pinned


class TestProcesses:
    @pytest.mark.parametrize(("processes", "attempts"), [(2, 6), (8, 2)])
    def test_at_once_they_cannot_overspend(self, path: Path, processes: int, attempts: int) -> None:
        ledger = Ledger.create(path, dataset="d", epsilon=5, delta=0)
        result = child("race", path, processes, attempts)
        assert result["codes"] == [0] * processes
        assert len(set(result["reserved"])) == 5
        assert result["refused"] == processes * attempts - 5
        assert ledger.verify(result["reserved"]).ok
        assert ledger.summary().spent_epsilon == 5.0

    def test_threads_cannot_overspend(self, path: Path) -> None:
        ledger = Ledger.create(path, dataset="d", epsilon=3, delta=0)
        outcomes: list[bool] = []

        def work() -> None:
            for _ in range(2):
                try:
                    reserve(ledger)
                    outcomes.append(True)
                except OverspendError:
                    outcomes.append(False)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == [False] * 5 + [True] * 3
        assert ledger.summary().spent_epsilon == 3.0

    def test_reading_does_not_unlock_a_writer_of_the_same_process(self, ledger: Ledger, path: Path) -> None:
        """POSIX drops a process's locks when it closes any handle of the file; reading must not do that."""
        with Chain(path).writing():
            assert Ledger.open(path).summary().reservations == 0
            result = child("attempt", path)
        assert result["error"] == "LedgerError"
        assert "another process kept the ledger locked; try again when it is done" in result["words"]
        assert child("attempt", path)["result"]

    def test_a_kill_at_any_step(self, tmp_path: Path) -> None:
        """Spent if and only if the reservation was committed; the ledger opens, verifies and works on."""
        for step, result in child("crash", tmp_path).items():
            assert result["killed"], step
            assert result["found"] == result["expected"], step
            assert result["ok"], step
            assert result["usable"], step

    def test_a_kill_at_any_moment(self, path: Path) -> None:
        """Every reservation that a process was told of is there, and at most one more a kill (told to nobody)."""
        result = child("kill_at_random", path, 12)
        assert result["told"] >= 12
        assert result["missing"] == 0
        assert result["told"] <= result["reserved"] <= result["told"] + result["rounds"]

    def test_a_kill_during_creation(self, tmp_path: Path) -> None:
        """Either there is no ledger yet, or a whole one."""
        result = child("crash_in_create", tmp_path)
        assert result == {"signals": [9, 9], "first": False, "second": True, "again": True}


class TestTheDisk:
    def test_no_room(self, ledger: Ledger, path: Path) -> None:
        entry = reserve(ledger)
        before = ledger.entries()
        result = child("no_room", path)
        assert result["error"] == "LedgerError"
        assert re.search(r"the disk (is full|refused)", result["words"])
        assert "Nothing is released" in result["words"]
        assert ledger.entries() == before
        assert ledger.verify([entry]).ok
        reserve(ledger)

    def test_full(self, ledger: Ledger, path: Path) -> None:
        """SQLite's own error for a full disk, by a limit on the pages of the file."""

        class Small(Chain):
            def _connect(self, mode: str) -> sqlite3.Connection:
                connection = super()._connect(mode)
                connection.execute("PRAGMA max_page_count = 3")
                return connection

        small = Ledger(Small(path))
        told: list[str] = []

        def fill() -> None:
            for _ in range(100):
                told.append(reserve(small, laplace(0.01)))

        with pytest.raises(LedgerError, match="the disk is full; make room and try again"):
            fill()
        assert told
        assert ledger.verify(told).ok
        assert ledger.summary().reservations == len(told)

    def test_no_rights(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # another user has to reach the file
            path = Path(folder) / "ledger.db"
            ledger = Ledger.create(path, dataset="d", epsilon=3, delta=0)
            entry = reserve(ledger)
            result = child("no_rights", path)
            assert ledger.verify([entry]).ok
            assert ledger.summary().reservations == 1
            assert list(Path(folder).iterdir()) == [path]
        assert result["reading"]["result"] == 1
        assert result["creating"]["error"] == "OutputError"
        assert "can't be created (Permission denied); choose another place" in result["creating"]["words"]
        for case in ("read-only file", "read-only folder", "folder only"):
            assert result[case]["error"] == "LedgerError", case
            assert re.search(r"is read-only|can't be opened", result[case]["words"]), case
        assert result["no right to read"]["error"] == "LedgerError"
        assert "can't be opened" in result["no right to read"]["words"]

    def test_commits_are_synced_with_the_folder(self, path: Path, ledger: Ledger) -> None:
        """3 is EXTRA; with less a power cut could bring back the journal and undo a commit."""
        with closing(Chain(path)._connect("rw")) as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)

    def test_creation_syncs_the_folder(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        synced: list[Path] = []
        monkeypatch.setattr(chain_module, "sync_folder", synced.append)
        Ledger.create(path, dataset="d", epsilon=1, delta=0)
        assert synced == [path.parent]


class LedgerAgainstModel(RuleBasedStateMachine):
    """Any sequence of calls, against a model that is a list of events and a total."""

    reservations = Bundle("reservations")

    @initialize(epsilon=st.sampled_from([0.5, 1.0, 4.0]), delta=st.sampled_from([0.0, 1e-6, 1e-4]))
    def create(self, epsilon: float, delta: float) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.db"
        self.ledger = Ledger.create(self.path, dataset="d", epsilon=epsilon, delta=delta)
        self.total = (epsilon, delta)
        self.spent: dict[str, Event] = {}
        self.confirmed: dict[str, str] = {}
        self.heads = [self.ledger.summary().head]

    @rule(
        target=reservations,
        event=st.sampled_from([laplace(0.1), laplace(0.5), laplace(2), gaussian(0.3), gaussian(1, 1e-5), gaussian(3)]),
    )
    def reserve(self, event: Event) -> str | None:
        cost = composed_epsilon([*self.spent.values(), event], self.total[1])
        assert self.ledger.would_cost(event).fits == (cost <= self.total[0])
        if cost > self.total[0]:
            with pytest.raises(OverspendError):
                reserve(self.ledger, event)
            return None
        entry = reserve(self.ledger, event)
        assert entry not in self.spent
        self.spent[entry] = event
        return entry

    @rule(entry=reservations, digest=st.sampled_from([RELEASE, RELEASE, STUDY]))
    def confirm(self, entry: str | None, digest: str) -> None:
        if entry is None or self.confirmed.get(entry, digest) != digest:
            with pytest.raises(LedgerError):
                self.ledger.confirm(entry or GENESIS, release_digest=digest)
        else:
            self.ledger.confirm(entry, release_digest=digest)
            self.confirmed[entry] = digest

    @rule(factor=st.sampled_from([0.5, 1.0, 2.0]), more_delta=st.sampled_from([0.0, 1e-6]))
    def raise_total(self, factor: float, more_delta: float) -> None:
        epsilon, delta = self.total[0] * factor, self.total[1] + more_delta
        if factor < 1 or (factor == 1 and more_delta == 0):
            with pytest.raises(LedgerError):
                self.ledger.raise_total(epsilon, delta, "test")
        elif epsilon <= 64:
            self.ledger.raise_total(epsilon, delta, "test")
            self.total = (epsilon, delta)

    @rule()
    def reopen(self) -> None:
        self.ledger = Ledger.open(self.path, "d")

    @rule()
    def lose_the_newest_entry(self) -> None:
        """The releases and heads that were remembered tell; then the file comes back."""
        whole, last = self.path.read_bytes(), self.ledger.entries()[-1]
        if last.position > 1:
            tamper(self.path, f"DELETE FROM entries WHERE position = {last.position}")
            assert self.ledger.verify(head=last.hash).head_missing
            assert self.ledger.verify(self.spent).missing == ((last.hash,) if last.kind == "reserve" else ())
            self.path.write_bytes(whole)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "ledger"):
            return
        summary = self.ledger.summary()
        assert (summary.total_epsilon, summary.total_delta) == self.total
        assert summary.reservations == len(self.spent)
        assert summary.unconfirmed == len(self.spent) - len(self.confirmed)
        assert summary.spent_epsilon == composed_epsilon(self.spent.values(), self.total[1]) <= self.total[0]
        self.heads.append(summary.head)
        assert self.ledger.verify(self.spent, head=self.heads[len(self.heads) // 2]).ok

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


LedgerAgainstModel.TestCase.settings = settings(max_examples=30, stateful_step_count=15)
TestAgainstModel = LedgerAgainstModel.TestCase
