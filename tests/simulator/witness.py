"""The witness: it sees every answer that a party gives, and at the end of a round looks at every disk.

What it holds the parties to:

* what a node showed once, its manifest and its sum, never changes, and was on its disk when it was shown;
* an acknowledged envelope is on the node's disk, and came before its freeze, and the deadline by its clock;
* a node that aborted shows no sum, and a node that showed a sum does not abort;
* a holder's bundle for a round is one and the same wherever it is found, and its ledger has a reservation for it;
* a release verifies, and its numbers are the exact sum over the holders that it names: the number of rows of holder k
  is 2^k, so a holder that is left out, or counted twice, shows;
* so are the nodes' sums, whether or not a release came of them;
* no server answers with an error of its own, and every audit log holds together.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from noisewise.compute.folder import DATABASE
from noisewise.holder.outbox import Outbox
from noisewise.holder.share import OUTBOX
from noisewise.privacy.chain import Row, follow
from noisewise.privacy.ledger import Ledger
from noisewise.protocol.envelope import Envelope
from noisewise.protocol.pooled import verify
from noisewise.protocol.round import set_digest
from noisewise.protocol.shares import combine
from noisewise.protocol.task import Task
from noisewise.release import Release
from tests.simulator.disk import real_connect
from tests.simulator.weather import Tally
from tests.simulator.wire import Answer, Host, Message

# What a server may answer when its disk is full or another server is away; any other 5xx is an error of its own.
EXCUSED = {502, 503, 507}


class BrokenChainError(AssertionError):
    """A node's audit log does not hold together."""


class Witness:
    """``broken`` is what was seen that should never be."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.broken: list[str] = []
        self.deadlines: dict[str, datetime] = {}
        self.shown: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.aborted: set[tuple[str, str]] = set()
        self.bundles: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def see(self, host: Host, message: Message, answer: Answer) -> None:
        """An answer, at the moment it is given."""
        where = f"{host.name} {message.method} {message.path[:40]}"
        if answer.status >= 500 and answer.status not in EXCUSED:
            self.broken.append(f"{where}: answered {answer.status}: {answer.body[:200]!r}")
        if answer.status in EXCUSED and host.disk.full:
            self.tally.strike("disk_full_answered", host.name)
        if answer.status >= 400 or not host.name.startswith("node"):
            return
        match message.path.split("/"):
            case ["", "rounds", round, "envelopes", _]:
                self._acknowledged(host, round, message, answer, where)
            case ["", "rounds", round, *_]:
                self._document(host, round, json.loads(answer.body), where)

    def _acknowledged(self, host: Host, round: str, message: Message, answer: Answer, where: str) -> None:
        envelope = Envelope.read(message.body)
        found = _stored(host, "SELECT digest FROM envelopes WHERE round = ? AND holder = ?", round, envelope.holder)
        if found != envelope.digest:
            self.broken.append(f"{where}: acknowledged an envelope that is not on its disk")
        if answer.status == 201 and host.clock() >= self.deadlines[round]:
            self.broken.append(f"{where}: took an envelope after the deadline")
        if answer.status == 201 and (host.name, round, "manifest") in self.shown:
            self.broken.append(f"{where}: took an envelope after its manifest was out")

    def _document(self, host: Host, round: str, body: Mapping[str, Any], where: str) -> None:
        if body.get("kind") in ("manifest", "sum"):
            kind = str(body["kind"])
            if self.shown.setdefault((host.name, round, kind), dict(body)) != body:
                self.broken.append(f"{where}: its {kind} has changed")
            stored = _stored(host, f"SELECT {kind} FROM rounds WHERE id = ?", round)
            if stored is None or json.loads(stored) != body:
                self.broken.append(f"{where}: showed a {kind} that is not on its disk")
        if body.get("phase") == "aborted":
            self.aborted.add((host.name, round))
        if (host.name, round) in self.aborted and (host.name, round, "sum") in self.shown:
            self.broken.append(f"{where}: both aborted and showed a sum")

    def sums(self, round: str, nodes: Sequence[str]) -> list[dict[str, Any]]:
        found = [self.shown.get((node, round, "sum")) for node in nodes]
        return [signed["body"] for signed in found if signed]

    def check_sums(self, task: Task, nodes: Sequence[str], values: Mapping[str, Sequence[int]]) -> None:
        """If all nodes showed sums over one set, they add up to what its holders have."""
        sums = self.sums(task.id, nodes)
        if len(sums) < len(nodes) or len({body["set"] for body in sums}) > 1:
            return
        agreed = self._set_of(task, nodes, sums[0]["set"])
        if list(combine(body["sum"] for body in sums)) != self._total(agreed, values):
            self.broken.append("the nodes' sums are not the sum over the agreed holders")

    def _set_of(self, task: Task, nodes: Sequence[str], digest: str) -> list[str]:
        """The holders of the set with this digest: what all manifests have in common, or less if one had two faces."""
        manifests = [self.shown[node, task.id, "manifest"]["body"]["held"] for node in nodes]
        common = {tuple(pair) for pair in manifests[0]}.intersection(*({tuple(p) for p in m} for m in manifests[1:]))
        for left_out in [None, *sorted(common)]:
            if set_digest(common - {left_out}) == digest:
                return [holder for holder, _ in common - {left_out}]
        self.broken.append("the nodes summed a set that no manifests give")
        return []

    def check_release(self, release: Release, task: Task, values: Mapping[str, Sequence[int]]) -> None:
        evidence = verify(release)
        keys = {name: key for key, name in task.keys.items()}
        if evidence.task.id != task.id or list(release.values) != self._total(
            [keys[n] for n in evidence.holders], values
        ):
            self.broken.append(f"the release is not the exact sum over {', '.join(evidence.holders)}")

    def check_spending(self, task: Task, holder: str, folder: Path, nodes: Sequence[Host], sent: set[str]) -> None:
        """An envelope anywhere means a reservation, and one bundle; a confirmed one is at every node."""
        entries = Ledger.open(folder / "budget.ledger").entries()
        reserved = {entry.hash for entry in entries if entry.payload.get("round") == task.id}
        parcel = Outbox(folder / OUTBOX).get(task.id)
        query = "SELECT bundle FROM envelopes WHERE round = ? AND holder = ?"
        stored = [_stored(node, query, task.id, holder) for node in nodes]
        bundles = sent | {bundle for bundle in stored if bundle} | ({parcel.bundle} if parcel else set())
        if len(bundles) > 1:
            self.broken.append(f"holder {holder[:8]} sent two different bundles for one round")
        if bundles and (parcel is None or parcel.entry not in reserved):
            self.broken.append(f"holder {holder[:8]} sent an envelope without a reservation on record")
        for entry in entries:
            confirms = entry.kind == "confirm" and entry.payload["entry"] in reserved
            if confirms and {entry.payload["release_digest"]} != set(stored):
                self.broken.append(f"holder {holder[:8]} confirmed what is not at every node")

    def check_audit(self, node: Host) -> None:
        """The chain holds, and tells of every envelope that is stored."""
        with closing(real_connect(node.disk.folder / DATABASE)) as connection:
            rows = [Row(*row) for row in connection.execute("SELECT * FROM audit ORDER BY position")]
            stored = connection.execute("SELECT round, holder, digest FROM envelopes").fetchall()
        told = {
            (entry.payload["round"], entry.payload["holder"], entry.payload["digest"])
            for entry in follow(rows, BrokenChainError)
            if entry.kind == "envelope"
        }
        if set(stored) != told:
            self.broken.append(f"{node.name}: the audit log does not tell of the envelopes that are stored")

    def _total(self, holders: Sequence[str], values: Mapping[str, Sequence[int]]) -> list[int]:
        if unknown := [holder for holder in holders if holder not in values]:
            self.broken.append(f"holder {unknown[0][:8]} was summed, and kept nothing in its outbox")
            return []
        return [sum(column) for column in zip(*(values[holder] for holder in holders), strict=True)]


def _stored(host: Host, query: str, *values: str) -> Any:
    """What a node's disk says, by another connection than its own."""
    with closing(real_connect(host.disk.folder / DATABASE)) as connection:
        row = connection.execute(query, values).fetchone()
    return row[0] if row else None
