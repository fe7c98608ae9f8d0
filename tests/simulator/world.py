"""Rounds that go wrong: who does what when, and what has to be true in the end."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from noisewise.errors import NoisewiseError, RoundError
from noisewise.protocol.envelope import Envelope
from noisewise.protocol.pooled import sign_manifest
from noisewise.protocol.round import Phase
from noisewise.protocol.signed import Signed
from noisewise.protocol.task import Task
from noisewise.release import Release
from tests.simulator.parties import STUDY, Clock, CoordinatorParty, HolderParty, NodeParty, Party
from tests.simulator.weather import CALM, Tally, Weather
from tests.simulator.wire import PowerCutError, Wire
from tests.simulator.witness import Witness

# Steps of a holder's or the coordinator's act within which an armed crash strikes.
ACT_STEPS = (10, 30, 100)
ROUND = timedelta(hours=1)
DRILL, NO_RELEASE = "a drill", "no release came of it"

AnyParty = TypeVar("AnyParty", bound=Party)
Result = TypeVar("Result")


class World:
    """Some holders, some nodes, a coordinator; rounds are played one after another with what the last one left."""

    def __init__(self, seed: str, tally: Tally, base: Path) -> None:
        self.chance = Random(seed)
        self.tally = tally
        self.witness = Witness(tally)
        self.clock = Clock()
        self.wire = Wire(self.chance, tally, self.witness.see)
        self.coordinator = CoordinatorParty("board", self.wire, self.clock, base)
        identity = self.coordinator.command().identity.key
        self.nodes = [
            NodeParty(f"node-{k}", self.wire, self.clock, base, identity) for k in range(self.chance.randint(2, 3))
        ]
        self.holders = [
            HolderParty(k, self.wire, self.clock, base, relay=self.chance.random() < 0.2)
            for k in range(self.chance.randint(3, 6))
        ]
        self.parties: list[Party] = [self.coordinator, *self.nodes, *self.holders]
        self._enrol(identity)

    def play(self) -> str:
        """One round: 'released' or 'aborted' and why; what should never be is in ``witness.broken``."""
        self.wire.sent.clear()
        for party in self.parties:
            party.skew = (
                timedelta(seconds=self.chance.uniform(-120, 120)) if self.chance.random() < 0.5 else timedelta()
            )
            self.tally["clock_skewed"] += bool(party.skew)
        self.wire.weather = Weather.of(self.chance)
        may_drop = self.chance.randint(0, len(self.holders) - 2)
        task = self._open(may_drop)
        away = self.chance.sample(self.holders, self.chance.choice((0, 0, may_drop, may_drop + 1)))
        self.tally["holder_stays_away"] += len(away)
        willing = [holder for holder in self.holders if holder not in away]
        self.equivocates = self.chance.random() < 0.2
        for _ in range(self.chance.randint(0, 20)):
            self._something(task, willing)
        return self._end(task, willing)

    def close(self) -> None:
        for host in self.wire.hosts.values():
            host.close()
        for party in self.parties:
            party.disk.remove()

    def _enrol(self, identity: str) -> None:
        nodes = "\n".join(f'{node.name} = "{node.key}"' for node in self.nodes)
        self.wire.weather = Weather.of(self.chance)
        for holder in self.holders:
            relay = str(holder.relay).lower()
            trust = f'board = "https://board"\ncoordinator = "{identity}"\nrelay = {relay}\n[nodes]\n{nodes}\n'
            invite = partial(CoordinatorParty.invite, name=holder.name)
            token = self._surely(self.coordinator, invite)
            self._surely(holder, partial(HolderParty.enrol, token=token, trust=trust))

    def _open(self, may_drop: int) -> Task:
        most = len(self.holders) - may_drop - 2
        deadline = self.clock.now + ROUND

        def act(coordinator: CoordinatorParty) -> Task:
            return coordinator.command().open(
                STUDY,
                [f"https://{node.name}" for node in self.nodes],
                may_drop=may_drop,
                may_collude=self.chance.randint(0, most),
                deadline=deadline,
            )

        task = self._surely(self.coordinator, act)
        self.witness.deadlines[task.id] = task.deadline
        return task

    def _something(self, task: Task, willing: list[HolderParty]) -> None:
        """One act, drawn at random."""
        self.clock.tick(self.chance)
        acts: list[tuple[int, Callable[[], object]]] = [
            (8, lambda: self._contribute(task, self._one_of(willing))),
            (2, lambda: self._try(self.coordinator, lambda p: p.command().standing(task.id))),
            (2, lambda: self._collect(task, early=self.chance.random() < 0.1)),
            (5, lambda: self._restart(self._some_server())),
            (1, self._kill_idle),
            (1, self._full_disk),
            (1, self._rotate),
        ]
        if self.chance.random() < 0.05:
            acts.append((3, lambda: self._try(self.coordinator, lambda p: p.command().abort(task.id, DRILL))))
        weights, options = zip(*acts, strict=True)
        self.chance.choices(options, weights)[0]()

    def _contribute(self, task: Task, holder: HolderParty) -> None:
        pays_again = self._maybe()
        self._try(holder, lambda p: p.contribute(task, pays_again))
        holder.remember(task.id)

    def _collect(self, task: Task, early: bool) -> None:
        self._try(self.coordinator, lambda p: p.command().collect(task.id, early=early))

    def _end(self, task: Task, willing: list[HolderParty]) -> str:
        """The weather clears: everyone is up again and does what is left to do. Then nothing may be half done."""
        self._calm()
        if self._maybe():
            self.wire.settle()
        too_late = self.chance.random() < 0.15
        if too_late:  # by the clocks of some, and not by those of others
            self.clock.now = max(self.clock.now, task.deadline + timedelta(seconds=self.chance.uniform(-100, 100)))
        for holder in willing:
            self._contribute(task, holder)
        if not too_late and self._maybe():
            self.clock.now += ROUND
        if self.equivocates:
            self._two_faces(task)
        self._collect(task, early=True)
        release = self.coordinator.command().notebook.release(task.id)
        if release is None:
            self._stopped(task)
        self.wire.settle()
        self._check(task, release)
        return "released" if release else self._why(task)

    def _why(self, task: Task) -> str:
        """The reason of an abort, for the tally."""
        reason = self.coordinator.command().notebook.get(task.id).reason
        words = {DRILL: "by the coordinator's order", NO_RELEASE: "after two-faced manifests"}
        return f"aborted, {words.get(reason, 'too few holders')}"

    def _stopped(self, task: Task) -> None:
        """A round without a release: everyone has to agree that it is over."""
        record = self.coordinator.command().notebook.get(task.id)
        if record.phase is not Phase.ABORTED and not self.equivocates:
            self.witness.broken.append(f"the round is neither released nor aborted: {record.phase}")
        self._try(self.coordinator, lambda p: p.command().abort(task.id, NO_RELEASE))

    def _check(self, task: Task, release: Release | None) -> None:
        names = [node.name for node in self.nodes]
        network = self.coordinator.network
        phases = {network.remote(f"https://{name}", name).get(f"/rounds/{task.id}")["phase"] for name in names}
        allowed = {"released"} if release else {"aborted", "summed"}
        if not phases <= allowed:
            self.witness.broken.append(f"the nodes are left {sorted(phases)} after the round's end")
        values = {holder.key: holder.values[task.id] for holder in self.holders if task.id in holder.values}
        self.witness.check_sums(task, names, values)
        if release:
            self.witness.check_release(release, task, values)
        for node in self.nodes:
            self.witness.check_audit(node.host)
        for holder in self.holders:
            sent = {
                Envelope.read(message.body).bundle
                for message in self.wire.sent
                if message.path.endswith(f"/rounds/{task.id}/envelopes/{holder.key}")
            }
            hosts = [node.host for node in self.nodes]
            self.witness.check_spending(task, holder.key, holder.folder, hosts, sent)

    def _try(self, party: AnyParty, act: Callable[[AnyParty], object]) -> bool:
        """An act that may fail, or be cut short by a crash; whoever did it is back on its feet afterwards."""
        name = "coordinator_killed" if party is self.coordinator else "holder_killed"
        if self.chance.random() < getattr(self.wire.weather, name):
            party.disk.crash_after(self.chance.randint(1, self.chance.choice(ACT_STEPS)))
        try:
            act(party)
            return not party.disk.crashed
        except PowerCutError:
            return False
        except NoisewiseError as error:
            self.tally.tell(f"{party.name}: {error}")
            return False
        finally:
            if party.disk.crashed:
                self.tally.strike(name, party.name)
            party.disk.disarm()
            self._revive(party)

    def _surely(self, party: AnyParty, act: Callable[[AnyParty], Result]) -> Result:
        """An act that is repeated until it is done; in the end the weather clears."""
        done: list[Result] = []
        for _ in range(6):
            if self._try(party, lambda p: done.append(act(p))):
                return done[-1]
            self._restart(self._some_server())
        self._calm()
        return act(party)

    def _revive(self, party: Party) -> None:
        if isinstance(party, NodeParty | CoordinatorParty):
            self._restart(party)
        elif party.disk.crashed:
            party.disk.reborn()

    def _restart(self, party: NodeParty | CoordinatorParty) -> None:
        """Start a server that is down; it may be killed again while it starts."""
        while not party.host.up:
            if self.chance.random() < self.wire.weather.node_killed:
                party.disk.crash_after(self.chance.randint(1, 100))
            try:
                party.host.start()
            except NoisewiseError:
                party.disk.fill(False)
            if party.disk.crashed:
                self.tally["killed_while_starting"] += 1
            party.disk.disarm()

    def _calm(self) -> None:
        self.wire.weather = CALM
        for party in self.parties:
            party.disk.fill(False)
            party.disk.disarm()
            self._revive(party)

    def _full_disk(self) -> None:
        """A disk fills up, or someone makes room on those that are full."""
        party = self._one_of(self.parties)
        full = not party.disk.full and self.chance.random() < 10 * self.wire.weather.disk_full
        self.tally["disk_filled"] += full
        party.disk.fill(full)

    def _kill_idle(self) -> None:
        node = self._one_of(self.nodes)
        node.disk.crash()
        self.tally.strike("node_killed_between_messages", node.name)

    def _rotate(self) -> None:
        node = self._one_of(self.nodes)
        if node.host.up:
            self.tally["sealing_key_rotated"] += 1
            self._try_rotation(node)

    def _try_rotation(self, node: NodeParty) -> None:
        try:
            node.rotate()
        except NoisewiseError:
            self.tally["rotation_refused"] += 1

    def _two_faces(self, task: Task) -> None:
        """The coordinator and the first node are liars, and try to get sums over two sets out of the others."""
        order = Signed.by(self.coordinator.command().identity, "freeze", {"task": task.id}).to_dict()
        honest = self.nodes[1:]
        for node in self.nodes:
            self._tell(node, "freeze", order, task)
        shown = [self.witness.shown.get((node.name, task.id, "manifest")) for node in self.nodes]
        if shown[0] is None or None in shown:
            return  # one of them has aborted
        held = frozenset((holder, bundle) for holder, bundle in shown[0]["body"]["held"])
        lies = [sign_manifest(self.nodes[0].identity, task, held - {pair}).to_dict() for pair in sorted(held)]
        for _ in range(self.chance.randint(4, 8)):
            node = self._one_of(honest)
            if self._maybe():
                node.disk.crash()
                self.tally.strike("node_killed_between_messages", node.name)
                self._restart(node)
            first = self.chance.choice([shown[0], *lies])
            self.tally.strike("second_manifest", node.name)
            self._tell(node, "manifests", {"manifests": [first, *shown[1:]]}, task)

    def _tell(self, node: NodeParty, what: str, body: dict[str, Any], task: Task) -> None:
        with suppress(RoundError), self.coordinator.network.remote(f"https://{node.name}", node.name) as remote:
            remote.send("PUT", f"/rounds/{task.id}/{what}", body)

    def _some_server(self) -> NodeParty | CoordinatorParty:
        servers: list[NodeParty | CoordinatorParty] = [*self.nodes, self.coordinator]
        return self.chance.choice(servers)

    def _one_of(self, choices: list[AnyParty]) -> AnyParty:
        return self.chance.choice(choices)

    def _maybe(self) -> bool:
        return self.chance.random() < 0.5
