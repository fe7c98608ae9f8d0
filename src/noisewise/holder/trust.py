"""trust.toml: whose keys a holder believes, as it heard them from their owners and not from the coordinator's server.

    board = "https://coordinator.example.org"
    coordinator = "5f0c..."          # the coordinator's signing key, 64 hexadecimal digits
    relay = false                    # true: send everything through the board, where the firewall allows one address

    [nodes]                          # the compute nodes of a round have to be exactly these
    north = "a91b..."
    south = "07de..."

    [holders]                        # may be left out; if it is there, a round has no other holders than these
    "City hospital" = "c3d4..."

The nodes are the heart of it: as long as one of them is honest, nobody sees what a holder sent. A coordinator that
could name nodes of its own would need no honest one.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from noisewise.errors import ForgeryError, RoundError
from noisewise.protocol.keys import is_key
from noisewise.protocol.task import Task

_KEYS: Mapping[str, type] = {"board": str, "coordinator": str, "nodes": dict, "relay": bool, "holders": dict}
_NEEDED = ("board", "coordinator", "nodes")


@dataclass(frozen=True)
class Trust:
    """The keys that a holder believes, by the names it gives them."""

    board: str
    coordinator: str
    nodes: Mapping[str, str]
    relay: bool = False
    holders: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            return cls.parse(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            raise RoundError(
                f"{path}: there is no such file; it names the board and the keys of the coordinator and the nodes "
                "(docs/secure-sum.md shows one)."
            ) from None
        except (OSError, UnicodeDecodeError):
            raise RoundError(f"{path}: can't be read.") from None

    @classmethod
    def parse(cls, text: str, where: str = "trust.toml") -> Self:
        try:
            raw: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise RoundError(f"{where}: this is not TOML ({error}).") from None
        if missing := [key for key in _NEEDED if key not in raw]:
            raise RoundError(f"{where}: {missing[0]!r} is missing; {', '.join(_NEEDED)} are needed.")
        for key, value in raw.items():
            if key not in _KEYS or not isinstance(value, _KEYS[key]):
                raise RoundError(f"{where}: {key!r} is unknown or of the wrong kind; there are {', '.join(_KEYS)}.")
        pinned = {"coordinator": raw["coordinator"], **raw["nodes"], **raw.get("holders", {})}
        for name, key in pinned.items():
            if not is_key(key):
                raise RoundError(f"{where}: the key of {name!r} is not 64 lower-case hexadecimal digits.")
        if len(raw["nodes"]) < 2 or len(set(raw["nodes"].values())) != len(raw["nodes"]):
            raise RoundError(
                f"{where}: name at least 2 nodes, each with a key of its own; one alone would see the data."
            )
        return cls(**raw)

    def check(self, task: Task) -> None:
        """Raise unless the task is of this coordinator, with these nodes, and with these holders if any are named."""
        if task.coordinator != self.coordinator:
            raise ForgeryError(
                f"The task is signed by key {task.coordinator[:16]}..., which is not the coordinator's of trust.toml."
            )
        for card in task.nodes:
            if card.key not in self.nodes.values():
                raise ForgeryError(
                    f"The round's node {card.name!r} has key {card.key[:16]}..., which trust.toml does not name. Don't "
                    "take part unless its operator tells you this key; then add it under [nodes]."
                )
        if left_out := [name for name, key in self.nodes.items() if key not in task.node_keys]:
            raise RoundError(
                f"The round does without node {left_out[0]!r} of trust.toml. If you trust the others without it, "
                "remove it there; one of those that remain has to be honest."
            )
        strangers = [member for member in task.members if member.key not in self.holders.values()]
        if self.holders and strangers:
            raise ForgeryError(
                f"The round has a holder {strangers[0].name!r} with key {strangers[0].key[:16]}..., which trust.toml "
                "does not name under [holders]."
            )

    def node_name(self, key: str) -> str:
        return next(name for name, pinned in self.nodes.items() if pinned == key)
