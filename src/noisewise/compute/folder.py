"""The folder of a node: its settings in node.toml, its keys, its database, and the lock of whoever serves it."""

import json
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from noisewise.compute.keyring import Keyring
from noisewise.compute.limits import Rate
from noisewise.compute.reading import Reader
from noisewise.compute.schema import sqlite_url
from noisewise.compute.store import Clock, Store, utc_now
from noisewise.errors import OutputError, RoundError
from noisewise.privacy.chain import sync_folder
from noisewise.protocol.keys import Identity, is_key
from noisewise.protocol.task import Card

SETTINGS, SIGNING, SEALING, DATABASE = "node.toml", "signing.key", "sealing", "node.sqlite"

_DEFAULTS: dict[str, Any] = {
    "requests_per_second": 200.0,
    "requests_burst": 2000,
    "holder_requests_per_second": 1.0,
    "holder_requests_burst": 60,
    "largest_task": 32 * 1024 * 1024,
    "keep_envelopes": False,
}

_TEMPLATE = """\
# A compute node of noisewise. Change what is here, then restart the node.
name = {name}
url = {url}

# Signing keys of the coordinators whose tasks this node takes.
coordinators = [{coordinators}]

# Requests of one address, and envelopes of one holder: in the long run, and at once. 0 a second is no limit.
requests_per_second = 200.0
requests_burst = 2000
holder_requests_per_second = 1.0
holder_requests_burst = 60

# Bytes of the largest task that is taken (a holder of the roster takes about 170).
largest_task = 33554432

# Whether sealed shares are kept when their round is over.
keep_envelopes = false
"""


@dataclass(frozen=True)
class Settings:
    """node.toml."""

    name: str
    url: str
    coordinators: frozenset[str]
    address_rate: Rate
    holder_rate: Rate
    largest_task: int
    keep_envelopes: bool

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            with path.open("rb") as file:
                raw = tomllib.load(file)
        except FileNotFoundError:
            raise RoundError(
                f"{path}: there is no node here; 'noisewise node init {path.parent} --name NAME --url URL "
                "--coordinator KEY' makes one."
            ) from None
        except (OSError, ValueError):
            raise RoundError(f"{path}: the settings can't be read, or are not TOML.") from None
        return cls._of(raw, path)

    @classmethod
    def _of(cls, raw: dict[str, Any], path: Path) -> Self:
        required = {"name": str, "url": str, "coordinators": list}
        if unknown := sorted(set(raw) - set(required) - set(_DEFAULTS)):
            raise RoundError(f"{path}: {unknown[0]!r:.40} is not a setting.")
        for key, kind in required.items():
            if not isinstance(raw.get(key), kind):
                raise RoundError(f"{path}: {key!r} is missing, or not a {'text' if kind is str else 'list'}.")
        found = {**_DEFAULTS, **raw}
        for key, default in _DEFAULTS.items():
            sound = type(found[key]) is bool if type(default) is bool else type(found[key]) in (int, float)
            if not sound or found[key] < 0:
                raise RoundError(f"{path}: {key!r} is a {'yes or no' if type(default) is bool else 'number from 0'}.")
        return cls(
            name=found["name"],
            url=found["url"],
            coordinators=_keys(found["coordinators"], str(path)),
            address_rate=Rate(float(found["requests_per_second"]), int(found["requests_burst"])),
            holder_rate=Rate(float(found["holder_requests_per_second"]), int(found["holder_requests_burst"])),
            largest_task=int(found["largest_task"]),
            keep_envelopes=found["keep_envelopes"],
        )


@dataclass(frozen=True)
class Folder:
    """A node on disk."""

    path: Path
    settings: Settings
    identity: Identity
    keyring: Keyring

    @classmethod
    def create(cls, path: Path, *, name: str, url: str, coordinators: Sequence[str]) -> Self:
        """A new node: settings, a signing key, two sealing keys. An existing node is never overwritten."""
        keys = _keys(coordinators, "--coordinator")
        if (path / SETTINGS).exists():
            raise OutputError(f"{path}: there is a node already, and its keys are never overwritten.")
        # a card of throw-away keys: what it refuses is refused before anything is written
        Card.issue(Identity.generate(), name=name, url=url, sealing_key="0" * 64)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
            Identity.create(path / SIGNING)
            Keyring.create(path / SEALING)
            listed = ", ".join(json.dumps(key) for key in sorted(keys))
            text = _TEMPLATE.format(name=json.dumps(name), url=json.dumps(url), coordinators=listed)
            (path / SETTINGS).write_text(text, encoding="utf-8")
            sync_folder(path)
        except OSError as error:
            words = str(error) if isinstance(error, OutputError) else f"{path}: {error.strerror}"
            raise OutputError(f"The node can't be made ({words})") from None
        return cls.load(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        settings = Settings.load(path / SETTINGS)
        return cls(path, settings, Identity.load(path / SIGNING), Keyring(path / SEALING))

    def card(self) -> Card:
        """The node's public words about itself, with the sealing key that is active now."""
        self.keyring.refresh()
        key = self.keyring.active.key.key
        return Card.issue(self.identity, name=self.settings.name, url=self.settings.url, sealing_key=key)

    def store(self, database: str = "", clock: Clock = utc_now) -> Store:
        """The node's database: its own SQLite file, or the one of this address."""
        return Store(self._address(database), self.identity.key, clock)

    def reader(self, database: str = "") -> Reader:
        """The same for reading only, beside a node that runs."""
        return Reader.of(self._address(database))

    def _address(self, database: str) -> str:
        return database or sqlite_url(self.path / DATABASE)

    def lock(self) -> int:
        """The right to serve this folder, until the process ends; a second process is refused."""
        import fcntl  # a node is served on Unix; its folder can be made and read anywhere

        handle = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise RoundError(f"{self.path}: another process serves this node; stop it first.") from None
        return handle


def _keys(raw: Sequence[Any], where: str) -> frozenset[str]:
    if not raw or not all(is_key(key) for key in raw):
        raise RoundError(f"{where}: coordinators are known by signing keys of 64 hexadecimal digits; one or more.")
    return frozenset(raw)
