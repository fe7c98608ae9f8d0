"""Who is who: Ed25519 keys that sign, X25519 keys that open envelopes, and the files they live in.

A party is known by its signing key, 64 hexadecimal digits. Private keys lie in files that their owner alone may read
(0600), are never printed, pickled or logged, and are made by the operating system's randomness.
"""

import os
import secrets
import stat
from pathlib import Path
from typing import NoReturn, Self

from noisewise.errors import ForgeryError, OutputError, RoundError
from noisewise.protocol.files import write_new

KEY_DIGITS = 64
SIGNATURE_BYTES = 64


def is_key(value: object) -> bool:
    """Whether this can be a public key or a SHA-256 hash: 64 lower-case hexadecimal digits."""
    return isinstance(value, str) and len(value) == KEY_DIGITS and set(value) <= set("0123456789abcdef")


class _Private:
    """What private keys have in common: a file for their owner's eyes, and no way to be printed."""

    what = "key"

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def generate(cls) -> Self:
        return cls(secrets.token_bytes(32))

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new key in a new file, whole or not at all; an existing file is never overwritten."""
        key = cls.generate()
        key.save(path)
        return key

    def save(self, path: Path) -> None:
        try:
            write_new(path, f"noisewise {self.what}\n{self._secret.hex()}\n".encode("ascii"))
        except FileExistsError:
            raise OutputError(f"{path}: there is a file already, and a key is never overwritten.") from None
        except OSError as error:
            raise OutputError(f"{path}: the key can't be written ({error.strerror}); choose another place.") from None

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            text = path.read_text(encoding="ascii")
        except FileNotFoundError:
            raise RoundError(f"{path}: there is no {cls.what} here.") from None
        except (OSError, UnicodeDecodeError):
            raise RoundError(f"{path}: the {cls.what} can't be read.") from None
        if os.name != "nt" and mode & 0o077:
            raise RoundError(
                f"{path}: others may read this {cls.what} (mode {mode:o}); it is not used like this. Run 'chmod 600 "
                f"{path}', and make a new key if someone else could have read it."
            )
        head, _, digits = text.strip().partition("\n")
        if head != f"noisewise {cls.what}" or not is_key(digits):
            raise RoundError(f"{path}: this is not a {cls.what}, or it is damaged.")
        return cls(bytes.fromhex(digits))

    def __repr__(self) -> str:
        return f"<{self.what}: secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A private key is not pickled.")


class Identity(_Private):
    """A signing key. ``key`` is its public half, the name by which the other parties know its owner."""

    what = "signing key"

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        super().__init__(secret)
        self._private = Ed25519PrivateKey.from_private_bytes(secret)
        self.key = self._private.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)


class SealingKey(_Private):
    """The key with which a node opens what was sealed for it; ``key`` is its public half."""

    what = "sealing key"

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        super().__init__(secret)
        self.private = X25519PrivateKey.from_private_bytes(secret)
        self.key = self.private.public_key().public_bytes_raw().hex()


def verify(key: str, message: bytes, signature: bytes, what: str) -> None:
    """Raise unless the owner of ``key`` signed ``message``; ``what`` names it in the error."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not is_key(key):
        raise ForgeryError(f"{what}: the signer is not a key of {KEY_DIGITS} hexadecimal digits.")
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise ForgeryError(
            f"{what}: the signature is not that of key {key[:16]}...; it was changed, or someone else sent it."
        ) from None
