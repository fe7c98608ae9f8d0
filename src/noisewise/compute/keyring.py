"""The keys that open envelopes: one is pending, one is active, the older ones are expired.

    sealing/0001.key   expired: opens the envelopes of rounds that began with it, and takes part in no new round
    sealing/0002.key   active: on the node's card
    sealing/0003.key   pending: the next one. It is on disk, and in the backups, before anything is sealed for it
    sealing/active     the number of the active key; to replace this file is the one step of a rotation

A running node sees a rotation at once: it looks at that file again before it shows its card or takes a task.
"""

import os
import secrets
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from noisewise.errors import OutputError, RoundError
from noisewise.privacy.chain import sync_folder
from noisewise.protocol.keys import SealingKey

ACTIVE = "active"


class Validity(StrEnum):
    PENDING = "pending"
    ACTIVE = "active"
    EXPIRED = "expired"


@dataclass(frozen=True)
class Entry:
    """One key of the ring, by its number; it prints without its secret."""

    number: int
    validity: Validity
    key: SealingKey


class Keyring:
    """The keys of a folder. Read afresh by ``refresh`` when another process rotated them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: tuple[int, int] | None = None
        self.entries: tuple[Entry, ...] = ()
        self.refresh()

    @classmethod
    def create(cls, folder: Path) -> Self:
        """A first key, active, and the next one, pending."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in (1, 2):
            SealingKey.create(_file(folder, number))
        _choose(folder, 1)
        return cls(folder)

    def refresh(self) -> None:
        status = self._status()
        if status == self._seen:
            return
        active = self._active()
        numbers = sorted(int(path.stem) for path in self.folder.glob("*.key") if path.stem.isdecimal())
        if active not in numbers:
            raise RoundError(f"{_file(self.folder, active)}: the active sealing key is missing; restore it.")
        self.entries = tuple(
            Entry(number, _validity(number, active), SealingKey.load(_file(self.folder, number))) for number in numbers
        )
        self._seen = status

    def rotate(self) -> Entry:
        """Make the pending key active, the active one expired, and a new pending one."""
        self.refresh()
        number = self.active.number + 1
        for needed in (number, number + 1):
            if not _file(self.folder, needed).exists():
                SealingKey.create(_file(self.folder, needed))
        _choose(self.folder, number)
        self.refresh()
        return self.active

    @property
    def active(self) -> Entry:
        return next(entry for entry in self.entries if entry.validity is Validity.ACTIVE)

    def find(self, public: str) -> Entry | None:
        """The key with this public half."""
        return next((entry for entry in self.entries if entry.key.key == public), None)

    def _status(self) -> tuple[int, int]:
        try:
            status = (self.folder / ACTIVE).stat()
        except OSError:
            raise RoundError(f"{self.folder / ACTIVE}: the file with the active key's number is missing.") from None
        return status.st_mtime_ns, status.st_ino

    def _active(self) -> int:
        text = (self.folder / ACTIVE).read_text(encoding="ascii", errors="replace").strip()
        if not text.isdecimal() or len(text) > 9:
            raise RoundError(f"{self.folder / ACTIVE}: this names no key; it holds a number such as 1.")
        return int(text)


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:04}.key"


def _validity(number: int, active: int) -> Validity:
    if number == active:
        return Validity.ACTIVE
    return Validity.PENDING if number > active else Validity.EXPIRED


def _choose(folder: Path, number: int) -> None:
    partial = folder / f".{ACTIVE}.{secrets.token_hex(4)}.partial"
    try:
        with partial.open("w", encoding="ascii") as file:
            file.write(f"{number}\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / ACTIVE)
        sync_folder(folder)
    except OSError as error:
        raise OutputError(f"{folder}: the active key can't be changed ({error.strerror}).") from None
    finally:
        partial.unlink(missing_ok=True)
