"""The outbox: what a holder made for a round, sealed, kept before any of it is sent.

One file a round. It is written whole or not at all, is for its owner's eyes, and is never overwritten: whatever
happens to the network or the machine, the same bytes are sent again and nothing is spent twice. It holds sealed
envelopes only: not even the holder can open them.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from noisewise.errors import NoisewiseError, OutputError, RoundError
from noisewise.protocol.envelope import Envelope
from noisewise.protocol.files import write_new
from noisewise.protocol.keys import is_key
from noisewise.protocol.signed import Signed, check_keys, parse
from noisewise.protocol.task import Task

FORMAT = 1


@dataclass(frozen=True, repr=False)
class Parcel:
    """A round's task, the sealed envelopes in the order of its nodes, and the ledger's entry that paid for them."""

    task: Task
    envelopes: tuple[bytes, ...]
    entry: str | None

    @property
    def bundle(self) -> str:
        """The hash of all the sealed shares; it stands beside the holder's key in the pooled release."""
        return Envelope.read(self.envelopes[0]).bundle

    def to_bytes(self) -> bytes:
        body = {
            "format": FORMAT,
            "task": self.task.signed.to_dict(),
            "entry": self.entry or "",
            "envelopes": [base64.b64encode(content).decode("ascii") for content in self.envelopes],
        }
        return json.dumps(body, indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Self:
        body = parse(content, where)
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise RoundError(f"{where}: this is not an outbox of format {FORMAT}.")
        check_keys(body, {"format": int, "task": dict, "entry": str, "envelopes": list}, "outbox")
        try:
            task = Task.of(Signed.from_dict(body["task"], "task"))
            envelopes = tuple(base64.b64decode(text, validate=True) for text in body["envelopes"])
            for node, sealed in enumerate(envelopes):
                Envelope.read(sealed).check(task, node)
        except (NoisewiseError, TypeError, ValueError) as error:
            raise RoundError(
                f"{where}: the outbox is damaged ({error}). What it held can't be made again: its budget is spent."
            ) from None
        return cls(task, envelopes, body["entry"] or None)

    def __repr__(self) -> str:
        return f"<Parcel of round {self.task.id[:16]}..., {len(self.envelopes)} sealed envelopes>"


class Outbox:
    """A folder with one file for each round."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rounds(self) -> Sequence[str]:
        """The rounds with something in the outbox, oldest first."""
        files = [path for path in self.folder.glob("*.json") if is_key(path.stem)]
        return [path.stem for path in sorted(files, key=lambda path: path.stat().st_mtime_ns)]

    def path(self, round: str) -> Path:
        return self.folder / f"{round}.json"

    def get(self, round: str) -> Parcel | None:
        try:
            content = self.path(round).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RoundError(f"{self.path(round)}: can't be read ({error.strerror}).") from None
        return Parcel.from_bytes(content, str(self.path(round)))

    def keep(self, parcel: Parcel) -> None:
        """Durable when this returns; only then may anything be sent."""
        path = self.path(parcel.task.id)
        try:
            write_new(path, parcel.to_bytes())
        except FileExistsError:
            raise OutputError(
                f"{path}: this round is in the outbox already; those very bytes are to be sent."
            ) from None
        except OSError as error:
            raise OutputError(
                f"{path}: can't be written ({error.strerror}). Nothing was sent; the reservation stays in the ledger."
            ) from None

    def check_writable(self) -> None:
        """Raise before anything is spent if the outbox can't be written."""
        probe = self.folder / ".probe"
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise OutputError(f"{self.folder}: can't be written ({error.strerror}); nothing was spent.") from None
