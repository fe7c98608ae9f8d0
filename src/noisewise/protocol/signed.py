"""Signed documents: JSON that says what it is, who signed it, and that anyone can check.

    {"kind": "task", "body": {...}, "signer": "<64 hex digits>", "signature": "<128 hex digits>"}

The signature covers the kind and the canonical form of the body, so a document of one kind can't be passed off as
another. The canonical form is JSON with sorted keys, no spaces, ASCII only, and no number that isn't finite.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from noisewise.errors import ForgeryError, RoundError
from noisewise.protocol.keys import SIGNATURE_BYTES, Identity, is_key, verify

Kind = Literal["node-card", "enrolment", "task", "freeze", "abort", "manifest", "sum"]

PREFIX = "noisewise/1/"
_FIELDS = {"kind", "body", "signer", "signature"}


def canonical(body: Any) -> bytes:
    try:
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise RoundError("A document holds something that JSON can't say, such as an infinite number.") from None


def digest(body: Any) -> str:
    """SHA-256 of the canonical form: the name of a task, and of a set of holders."""
    return hashlib.sha256(canonical(body)).hexdigest()


@dataclass(frozen=True)
class Signed:
    """A document whose signature holds; there is no other way to make one."""

    kind: Kind
    body: dict[str, Any]
    signer: str
    signature: str

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise RoundError(f"A document of kind {self.kind!r} is not known; one of {', '.join(get_args(Kind))} is.")
        if len(self.signature) != 2 * SIGNATURE_BYTES or not set(self.signature) <= set("0123456789abcdef"):
            raise ForgeryError(f"The {self.kind} has no signature of {2 * SIGNATURE_BYTES} hexadecimal digits.")
        verify(self.signer, _message(self.kind, self.body), bytes.fromhex(self.signature), f"The {self.kind}")

    @classmethod
    def by(cls, identity: Identity, kind: Kind, body: dict[str, Any]) -> Self:
        return cls(kind, body, identity.key, identity.sign(_message(kind, body)).hex())

    @classmethod
    def from_dict(cls, raw: Any, kind: Kind, signer: str | None = None) -> Self:
        """Read a document of this kind, and of this signer if one is named."""
        if not isinstance(raw, dict) or set(raw) != _FIELDS:
            raise RoundError(f"This is not a signed document; one has exactly the keys {', '.join(sorted(_FIELDS))}.")
        if raw["kind"] != kind:
            raise RoundError(f"This is a document of kind {raw['kind']!r:.40} where a {kind} belongs.")
        if not isinstance(raw["body"], dict) or not is_key(raw["signer"]) or not isinstance(raw["signature"], str):
            raise RoundError(f"The {kind} is malformed: body is an object, signer a key, signature a text.")
        if signer is not None and raw["signer"] != signer:
            raise ForgeryError(
                f"The {kind} is signed by key {raw['signer'][:16]}..., where that of {signer[:16]}... belongs."
            )
        return cls(kind, raw["body"], raw["signer"], raw["signature"])

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "body": self.body, "signer": self.signer, "signature": self.signature}

    @property
    def digest(self) -> str:
        return digest(self.body)


def parse(content: bytes, what: str) -> Any:
    """JSON that came from outside, or a RoundError."""
    try:
        return json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise RoundError(f"{what}: this is not JSON, or it was cut off.") from None


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _message(kind: str, body: Any) -> bytes:
    return f"{PREFIX}{kind}\n".encode() + canonical(body)


def check_keys(body: dict[str, Any], expected: dict[str, Any], what: str) -> None:
    """Raise unless the body has exactly these keys with values of these types."""
    if missing := sorted(set(expected) - set(body)):
        raise RoundError(f"The {what} lacks {missing[0]!r}.")
    if unknown := sorted(set(body) - set(expected)):
        raise RoundError(f"The {what} has an unknown key {unknown[0]!r:.40}.")
    for key, kind in expected.items():
        if not isinstance(body[key], kind) or (isinstance(body[key], bool) and kind is not bool):
            raise RoundError(f"The {what}'s {key!r} has the wrong type ({type(body[key]).__name__}).")


def check_text(value: object, what: str, longest: int = 100) -> str:
    """A short printable text such as a name."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > longest:
        raise RoundError(f"{what} is one line of 1 to {longest} printable characters; got {value!r:.60}.")
    return value
