"""How commands speak: results to stdout, notes and errors to stderr, numbers with as many digits as they deserve."""

import json
import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer
from typer.core import TyperGroup

from noisewise.errors import NoisewiseError, NoisewiseWarning

if TYPE_CHECKING:
    from rich.console import Console

REFUSED = 2

# which extra of the package brings what
EXTRAS = {
    "holder": ("pyarrow", "opendp", "cryptography", "httpx"),
    "node": ("starlette", "uvicorn", "sqlalchemy", "prometheus_client", "cryptography", "httpx"),
    "postgresql": ("psycopg",),
    "analyst": ("arviz", "xarray", "h5netcdf", "matplotlib", "numba", "nutpie"),
}

Dataset = Annotated[str | None, typer.Option(help="Refuse unless the ledger is of the data set with this name.")]
IgnoreExtraColumns = Annotated[
    bool, typer.Option("--ignore-extra-columns", help="Allow columns that the study does not name; they stay unread.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout and nothing else there.")]


class GuardedGroup(TyperGroup):
    """The commands, with errors of this package told in one line and exit code 2 instead of a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order in which they are used."""
        known = super().list_commands(ctx)
        order = ("demo", "study", "ledger", "release", "fit", "predict", "join", "round", "node")
        return sorted(known, key=lambda name: order.index(name) if name in order else len(order))

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except NoisewiseError as error:
                err().print(f"error: {error}", style="red", soft_wrap=True)
                raise typer.Exit(REFUSED) from None
            except ModuleNotFoundError as error:
                package = (error.name or "").partition(".")[0]
                extras = [f"'noisewise[{extra}]'" for extra, packages in EXTRAS.items() if package in packages]
                if not extras:
                    raise
                text = f"error: this command needs {package}; install it with pip install {' or '.join(extras)}"
                err().print(text, style="red", soft_wrap=True)
                raise typer.Exit(REFUSED) from None


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, NoisewiseWarning):
        note(f"warning: {message}")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def out() -> "Console":
    """Where results go. Made afresh, so that a redirected stdout is the one that is written to."""
    return _console(sys.stdout)


def err() -> "Console":
    """Where progress, notes and errors go."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> "Console":
    from rich.console import Console

    # no markup: names such as smoking[current] are text; a file or pipe has no edge at which to fold a table
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    return console


def say(text: str = "") -> None:
    """A paragraph of the result: folded between words on a terminal, one line in a file."""
    console = out()
    console.print(text, soft_wrap=not console.is_terminal)


def note(text: str) -> None:
    """A remark that is not the result."""
    console = err()
    console.print(text, style="yellow", soft_wrap=not console.is_terminal)


def print_json(body: dict[str, Any]) -> None:
    """The one JSON object of ``--json``; NaN has no place in JSON, so it becomes null."""
    sys.stdout.write(json.dumps(_finite(body), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", align: str = "l") -> None:
    """A table after an empty line. ``align`` has l (text) or r (number) for the first columns; the others are r."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for position, (name, side) in enumerate(zip(columns, align.ljust(len(columns), "r"), strict=True)):
        justify: Literal["left", "right"] = "left" if side == "l" else "right"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=position == 0)
    for row in rows:
        table.add_row(*row)
    console = out()
    console.print()
    if title:
        console.print(title, style="bold", soft_wrap=not console.is_terminal)
    console.print(table)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Lines of 'name   value', aligned."""
    facts = list(facts)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        out().print(f"{name:<{width}}  {value}", soft_wrap=True)


def number(value: float, digits: int = 4) -> str:
    """A number for people: significant digits, thousands apart, no exponent where it can be avoided; NaN is blank."""
    if math.isnan(value):
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    size = math.floor(math.log10(abs(value)))
    if not -5 <= size < 9:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - size)}f}"


def plain(value: float, digits: int = 10) -> str:
    """A number without idle zeros, such as one that someone chose."""
    return f"{value:.{digits}g}"


def count(how_many: int, thing: str, things: str = "") -> str:
    """'1 release', '2,000 releases'."""
    return f"{how_many:,} {thing if how_many == 1 else things or thing + 's'}"


def beside(sd: float, *values: float) -> list[str]:
    """Numbers with as many decimals as their uncertainty has two significant digits."""
    if not math.isfinite(sd) or sd <= 0:
        return [number(value) for value in values]
    decimals = max(0, 1 - math.floor(math.log10(sd)))
    if decimals > 8:
        return [number(value) for value in values]
    return [f"{value:,.{decimals}f}" for value in values]


def budget(epsilon: float, delta: float) -> str:
    """epsilon and delta in words."""
    return f"epsilon {epsilon:g}, delta {delta:g}" if delta else f"epsilon {epsilon:g} (pure)"
