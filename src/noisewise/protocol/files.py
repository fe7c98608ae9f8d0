"""Files that must be whole or not be there at all, and that their owner alone may read."""

import os
import secrets
from pathlib import Path

from noisewise.privacy.chain import sync_folder


def write_new(path: Path, content: bytes) -> None:
    """A new file (0600), durable when this returns; FileExistsError if there is one, which is never overwritten."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)
        sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)
