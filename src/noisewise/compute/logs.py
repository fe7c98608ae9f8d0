"""Structured logs: one JSON object a line on stderr, of public facts only.

A line is an event in words and fields that its author chose. No line holds a body, a header, an exception's own text
(it may quote what it could not read) or a variable: of an unexpected error its type and place are written.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

LONGEST = 400

_logger = logging.getLogger("noisewise.service")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1]:
            fields = {**fields, **unexpected(record.exc_info[1])}
        line = {"time": time, "level": record.levelname.lower(), "event": record.getMessage()[:LONGEST]}
        return json.dumps({**line, **{name: _short(value) for name, value in fields.items()}}, ensure_ascii=True)


def _short(value: Any) -> Any:
    return value[:LONGEST] if isinstance(value, str) else value


def start(stream: TextIO | None = None) -> None:
    """Send this package's and the server's lines to stderr, or to ``stream``."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines())
    for name, level in (("noisewise.service", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False


def info(event: str, **fields: Any) -> None:
    _logger.info(event, extra={"fields": fields})


def warning(event: str, **fields: Any) -> None:
    _logger.warning(event, extra={"fields": fields})


def error(event: str, **fields: Any) -> None:
    _logger.error(event, extra={"fields": fields})


def unexpected(error: BaseException) -> dict[str, str]:
    """The type and the place of an error that should not have been, without its words."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return {"error": type(error).__name__, "place": places}
