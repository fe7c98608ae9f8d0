"""Options that all commands of a secure sum share: how to reach the others, and how to say when."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisewise.errors import RoundError

if TYPE_CHECKING:
    from noisewise.protocol.remote import Network

AllowHttp = Annotated[
    bool, typer.Option("--allow-http", help="Allow unencrypted addresses, where something else encrypts the way.")
]
Authority = Annotated[
    Path | None, typer.Option("--ca", help="Certificates (PEM) to trust instead of the system's.", show_default=False)
]

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def network(allow_http: bool, authority: Path | None) -> "Network":
    from noisewise.protocol.remote import Network

    return Network(allow_http=allow_http, authority=authority)


def moment(text: str) -> datetime:
    """A time from now, such as 90m, 12h or 7d, or a date and time with its zone."""
    if span := re.fullmatch(r"(\d{1,4})([mhd])", text):
        return datetime.now(UTC) + timedelta(**{_UNITS[span[2]]: int(span[1])})
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise RoundError(f"{text!r:.60} is not a time; give 90m, 12h, 7d, or 2027-01-31T18:00+01:00 with its zone.")
    return time
