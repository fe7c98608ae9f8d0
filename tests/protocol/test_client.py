"""A holder's client: what it refuses, in which words, before anything is spent; and that it keeps its secrets."""

import json
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisewise as nw
from noisewise.errors import ForgeryError, OutputError, RefusedError, RoundError
from noisewise.evaluation.local import Local
from noisewise.holder import share
from noisewise.holder.outbox import Parcel
from noisewise.holder.share import Participant, describe
from noisewise.holder.trust import Trust
from noisewise.privacy.noise import SimulatedNoise
from noisewise.protocol.keys import Identity
from noisewise.protocol.remote import Network, check_url
from noisewise.protocol.task import Member, Task
from tests.protocol.world import STUDY, holder, make_world, member, send, spent, table

LATER = datetime.now(UTC) + timedelta(hours=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Local]:
    with make_world(tmp_path) as made:
        yield made


def redraft(world: Local, task: Task, **changes: Any) -> Task:
    """Another task of the same coordinator, signed like any."""
    given: dict[str, Any] = {
        "study": task.study,
        "members": task.members,
        "nodes": task.nodes,
        "may_drop": 0,
        "may_collude": 0,
        "deadline": LATER,
        "coordinator": world.coordinator.identity,
        **changes,
    }
    coordinator, study = given.pop("coordinator"), given.pop("study")
    return Task.draft(coordinator, study, given.pop("members"), given.pop("nodes"), **given)


WRONG_TASKS: dict[str, tuple[Callable[[Local, Task], Task], type[Exception], str]] = {
    "another coordinator": (
        lambda world, task: redraft(world, task, coordinator=Identity.generate()),
        ForgeryError,
        "not the coordinator's of trust.toml",
    ),
    "another study": (
        lambda world, task: redraft(world, task, study=replace(STUDY, epsilon=0.5)),
        RoundError,
        "study is not yours. They differ in .*epsilon",
    ),
    "a node left out": (
        lambda world, task: redraft(world, task, nodes=task.nodes[:2]),
        RoundError,
        "does without node 'west' of trust.toml",
    ),
    "not in the roster": (
        lambda world, task: redraft(world, task, members=task.members[1:]),
        RoundError,
        "is not among the round's holders",
    ),
    "under another name": (
        lambda world, task: redraft(world, task, members=(Member("hx", task.members[0].key), *task.members[1:])),
        RoundError,
        "calls you 'hx', and you enrolled as 'h0'",
    ),
    "after the deadline": (
        lambda world, task: redraft(world, task, deadline=datetime.now(UTC) - timedelta(minutes=1)),
        RoundError,
        "deadline, .* UTC, has passed; nothing was spent",
    ),
}


@pytest.mark.parametrize("what", WRONG_TASKS)
def test_a_wrong_task_is_refused_and_nothing_is_spent(what: str, world: Local) -> None:
    make, kind, words = WRONG_TASKS[what]
    first, task = member(world, 0), world.open(STUDY)
    with pytest.raises(kind, match=words):
        first.contribute(make(world, task), holder(first), table())
    assert spent(first) == (0, 0)
    assert not first.outbox.rounds()


def test_a_node_whose_key_is_not_pinned_is_refused(world: Local) -> None:
    first, task = member(world, 0), world.open(STUDY)
    text = world.trust().replace(world.nodes["west"].key, Identity.generate().key)
    first.trust = Trust.parse(text)
    with pytest.raises(ForgeryError, match="node 'west' has key .* which trust.toml does not name. Don't take part"):
        first.contribute(task, holder(first), table())
    assert spent(first) == (0, 0)


def test_a_roster_can_be_pinned(world: Local) -> None:
    first, task = member(world, 0), world.open(STUDY)
    known = {one.name: one.key for one in task.members}
    first.trust = replace(first.trust, holders=known)
    first.check(task, STUDY)
    del known["h2"]
    with pytest.raises(ForgeryError, match="a holder 'h2' with key .* does not name under .holders"):
        first.check(task, STUDY)


def test_a_table_that_does_not_fit_costs_nothing(world: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    first, task = member(world, 0), world.open(STUDY)
    with pytest.raises(nw.DataError, match="9 rows to release"):
        first.contribute(task, holder(first), table(9))
    monkeypatch.setattr(Task, "most_rows", 30)  # reading 2^28 rows would take too long
    with pytest.raises(nw.DataError, match="40 rows; with 4 holders each may bring 30.*Nothing was spent"):
        first.contribute(task, holder(first), table(40))
    assert spent(first) == (0, 0)


def test_no_budget_no_part(world: Local) -> None:
    first, task = member(world, 0), world.open(STUDY)
    with pytest.raises(nw.OverspendError, match="Nothing was spent"):
        first.contribute(task, holder(first, epsilon=0.5), table())
    assert not first.outbox.rounds()


def test_a_study_with_laplace_noise_can_not_be_summed(world: Local) -> None:
    study = nw.Study(STUDY.features, STUDY.target, epsilon=1.0, mechanism="laplace")
    with pytest.raises(RoundError, match="needs mechanism 'gaussian'"):
        world.open(study)


def test_simulated_noise_does_not_get_into_a_sum(world: Local) -> None:
    first, task = member(world, 0), world.open(STUDY)
    with pytest.raises(RoundError, match="Noise for simulations can't go into a secure sum"):
        first.contribute(task, holder(first, noise=SimulatedNoise(np.random.default_rng(1))), table())
    assert spent(first) == (0, 0)


def test_an_outbox_that_can_not_be_written_is_found_first(world: Local) -> None:
    first, task = member(world, 0), world.open(STUDY)
    (first.folder / "outbox").symlink_to(first.folder / "absent" / "place")
    with pytest.raises(OutputError, match="outbox: can't be written .*; nothing was spent"):
        first.contribute(task, holder(first), table())
    assert spent(first) == (0, 0)


def test_the_task_is_told_in_words(world: Local) -> None:
    world.open(STUDY, may_drop=1, may_collude=1)
    first = member(world, 0)
    facts = dict(describe(first.find(STUDY), first.trust))
    assert facts["holders"].startswith("4: h0 (")
    assert facts["nodes"] == "north (https://north), south (https://south), west (https://west)"
    assert facts["summed"] == "6 numbers, if at least 3 of 4 holders come"
    assert facts["cost"].startswith("epsilon 1, delta 1e-06 (replace-one)")
    assert "no more than 1 of the other holders" in facts["protected"]


def test_the_board_has_to_offer_one_round(world: Local) -> None:
    first = member(world, 0)
    with pytest.raises(RoundError, match="has 0 open rounds of this study with 'h0' in them; ask the coordinator"):
        first.find(STUDY)
    one, other = world.open(STUDY), world.open(STUDY)
    with pytest.raises(RoundError, match=f"has 2 open rounds.*{one.id}.*Name one"):
        first.find(STUDY)
    assert first.find(STUDY, other.id) == other
    with pytest.raises(RefusedError, match="There is no round"):
        first.find(STUDY, "0" * 64)


def test_the_difference_of_studies_is_told(world: Local) -> None:
    world.open(STUDY)
    with pytest.raises(RoundError, match="differ in .*epsilon"):
        member(world, 0).find(replace(STUDY, epsilon=0.25))


def test_tokens_enrol_one_key_once(world: Local, tmp_path: Path) -> None:
    def enrol(folder: str, name: str, token: str) -> Participant:
        home = tmp_path / folder
        return Participant.enrol(home, trust=world.trust(), name=name, token=token, network=world.network)

    token = world.coordinator.invite("new")
    with pytest.raises(RefusedError, match="token is not known") as refused:
        enrol("a", "new", "guessed")
    assert refused.value.status == 403
    with pytest.raises(RefusedError, match="issued for another name than 'other'"):
        enrol("a", "other", token)
    made = enrol("a", "new", token)  # with the key of the tries before
    assert enrol("a", "new", token).identity.key == made.identity.key
    with pytest.raises(RefusedError, match="used already, by another key.*tell the coordinator"):
        enrol("b", "new", token)
    with pytest.raises(RoundError, match="'new' is enrolled already"):
        world.coordinator.invite("new")


def test_an_expired_token_is_refused(world: Local, tmp_path: Path) -> None:
    token = world.coordinator.invite("late", days=1)
    world.coordinator._clock = lambda: datetime.now(UTC) + timedelta(days=2)
    with pytest.raises(RefusedError, match="token expired on"):
        Participant.enrol(tmp_path / "l", trust=world.trust(), name="late", token=token, network=world.network)


def test_two_invitations_for_one_name_enrol_one(world: Local, tmp_path: Path) -> None:
    first, second = world.coordinator.invite("twice"), world.coordinator.invite("twice")
    Participant.enrol(tmp_path / "1", trust=world.trust(), name="twice", token=first, network=world.network)
    with pytest.raises(RefusedError, match="'twice' or the key is enrolled already") as refused:
        Participant.enrol(tmp_path / "2", trust=world.trust(), name="twice", token=second, network=world.network)
    assert refused.value.status == 409


def test_a_folder_is_for_one_coordinator(world: Local, tmp_path: Path) -> None:
    other = world.trust().replace(world.nodes["north"].key, "0" * 64)
    with pytest.raises(OutputError, match="trust.toml: there is another one already"):
        Participant.enrol(world.home("h0"), trust=other, name="h0", token="t", network=world.network)
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "trust.toml").write_text(world.trust())
    Identity.create(tmp_path / "n" / "signing.key")
    with pytest.raises(RoundError, match="you are not enrolled yet; 'noisewise join enrol' does it"):
        Participant(tmp_path / "n")


ADDRESSES = {
    "http://node.example.org": "is not encrypted: use https://",
    "ftp://node.example.org": "is not one such as",
    "node.example.org": "is not one such as",
    "https://": "is not one such as",
    "https://user@node.example.org": "is not one such as",
    "https://node.example.org:99999999": "is not one such as",
    "https://node.example.org/?x=1": "is not one such as",
}


@pytest.mark.parametrize("url", ADDRESSES)
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(RoundError, match=ADDRESSES[url]):
        check_url(url, "node 'north'")


def test_addresses_that_are_not() -> None:
    for url in ("https://node.example.org", "http://127.0.0.1:80", "http://[::1]:80", "http://localhost:1/base"):
        assert check_url(url + "/", "node 'north'") == url
    assert check_url("http://10.0.0.1", "node 'north'", allow_http=True)
    trust = (
        f'board = "http://board.example.org"\ncoordinator = "{"0" * 64}"\n[nodes]\na = "{"1" * 64}"\nb = "{"2" * 64}"\n'
    )
    with pytest.raises(RoundError, match="of the board is not encrypted"):
        Participant.enrol(Path("never-made"), trust=trust, name="n", token="t", network=Network())
    assert not Path("never-made").exists()


KEY = "0123456789abcdef" * 4
WRONG_TRUST = {
    "not = [toml": "this is not TOML",
    f'coordinator = "{KEY}"': "'board' is missing",
    f'board = "b"\ncoordinator = "abc"\n[nodes]\na = "{KEY}"\nb = "{KEY}"': "key of 'coordinator' is not 64",
    f'board = "b"\ncoordinator = "{KEY}"\n[nodes]\na = "{KEY}"': "at least 2 nodes",
    f'board = "b"\ncoordinator = "{KEY}"\n[nodes]\na = "{KEY}"\nb = "{KEY}"': "each with a key of its own",
    f'board = "b"\ncoordinator = "{KEY}"\nextra = 1\n[nodes]\n': "'extra' is unknown or of the wrong kind",
    f'board = "b"\ncoordinator = "{KEY}"\nrelay = "yes"\n[nodes]\n': "'relay' is unknown or of the wrong kind",
}


@pytest.mark.parametrize("text", WRONG_TRUST)
def test_a_wrong_trust_file_is_told_in_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "trust.toml").write_text(text)
    with pytest.raises(RoundError, match=f"trust.toml: .*{WRONG_TRUST[text]}"):
        Trust.load(tmp_path / "trust.toml")


def test_secrets_stay_where_they_belong(
    world: Local, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The outbox holds sealed bytes only; nothing else is written, logged or shown."""
    seen: list[bytes] = []
    original = share.split

    def watching(values: Any, nodes: int) -> Any:
        shares = original(values, nodes)
        seen.extend(one.content[1:] for one in shares)
        seen.append(np.asarray(values).tobytes())
        return shares

    monkeypatch.setattr(share, "split", watching)
    first, task = member(world, 0), world.open(STUDY)
    caplog.set_level("DEBUG")
    assert send(first, task).complete
    assert len(seen) == 4

    parcel = first.outbox.get(task.id)
    assert parcel is not None
    written = b"".join(path.read_bytes() for path in first.folder.rglob("*") if path.is_file()) + b"".join(
        parcel.envelopes
    )
    told = (caplog.text + "".join(capfd.readouterr()) + repr(parcel) + repr(first)).encode()
    for secret in seen:
        for piece in (secret[:24], secret[:24].hex().encode()):
            assert piece not in written + told
    key = (first.folder / "signing.key").read_text().split("\n")[1]
    assert key.encode() not in told
    assert stat.S_IMODE(first.outbox.path(task.id).stat().st_mode) == 0o600
    assert stat.S_IMODE((first.folder / "signing.key").stat().st_mode) == 0o600


def test_a_damaged_outbox_is_not_sent(world: Local) -> None:
    first, task = member(world, 0), world.open(STUDY)
    world.switchboard.unplug("north")
    send(first, task)
    path = first.outbox.path(task.id)
    body = json.loads(path.read_text())
    first_envelope, *others = body["envelopes"]
    body["envelopes"] = [others[0], *others]
    path.write_text(json.dumps(body))
    with pytest.raises(RoundError, match="the outbox is damaged .*its budget is spent"):
        send(first, task)
    body["envelopes"] = [first_envelope[:-8] + "AAAAAAA=", *others]
    with pytest.raises(RoundError, match="the outbox is damaged"):
        Parcel.from_bytes(json.dumps(body).encode(), "outbox")
    with pytest.raises(RoundError, match="not an outbox of format 1"):
        Parcel.from_bytes(b"[]", "outbox")


def test_a_second_sharing_is_refused_by_the_nodes(world: Local) -> None:
    """A holder restored from an old backup makes other envelopes for the same round: they never meet the first."""
    first, task = member(world, 0), world.open(STUDY)
    send(first, task)
    first.outbox.path(task.id).unlink()
    with pytest.raises(nw.LedgerError, match="reserved for round .* already.*--spend-again"):
        send(first, task)
    nw.Ledger.open(first.folder / "ledger").raise_total(3.0, 1e-5, "a test")
    delivery = first.contribute(task, holder(first), table(), again=True)
    assert not delivery.complete
    assert "Another envelope of this holder is stored" in delivery.receipts[0].words
    assert spent(first) == (2, 1)
