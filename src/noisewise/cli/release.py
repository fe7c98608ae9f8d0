"""``noisewise release``: from a holder's table to a Release, under the ledger."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisewise.cli.show import (
    Dataset,
    IgnoreExtraColumns,
    Json,
    budget,
    err,
    note,
    number,
    out,
    plain,
    print_facts,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from noisewise.holder.encode import RowReport
    from noisewise.holder.publish import DryRun, Holder
    from noisewise.privacy.ledger import Summary
    from noisewise.release import Release

PRIVATE = "For your eyes only: these counts are not protected by any noise and are in no release. Don't publish them."


def release(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="The holder's table: CSV, Parquet or Arrow.", show_default=False)
    ],
    study: Annotated[Path, typer.Option(help="The study that all parties agreed on.", show_default=False)],
    ledger: Annotated[Path, typer.Option(help="The ledger of this data set.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write the release; never overwritten.")
    ] = None,
    name: Annotated[str, typer.Option(help="Who releases; it is public.")] = "",
    dataset: Dataset = None,
    ignore_extra_columns: IgnoreExtraColumns = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the table, show cost and noise; spend and write nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Release a table's noisy statistics. The cost is recorded in the ledger before any noise is drawn.

    It asks no question: try --dry-run first. If it is stopped midway the budget may be spent all the same.

    \b
    Example:
      noisewise release patients.csv --study study.toml \\
          --ledger patients.ledger --dry-run
      noisewise release patients.csv --study study.toml \\
          --ledger patients.ledger --name "City hospital" --output city.json
    """
    from noisewise.holder.publish import Holder
    from noisewise.privacy.ledger import Ledger
    from noisewise.study import Study

    if output is None and not dry_run:
        raise typer.BadParameter("name a file for the release, or ask for a --dry-run.", param_hint="--output")
    agreed = Study.load(study)
    opened = Ledger.open(ledger, dataset)
    with _progress(table) as progress:
        holder = Holder(
            agreed,
            ledger=opened,
            name=name,
            extra_columns="ignore" if ignore_extra_columns else "refuse",
            progress=progress,
        )
        if output is None or dry_run:
            quote = holder.dry_run(table)
        else:
            made = _release(holder, table, output)
    if output is None or dry_run:
        print_json(_quote_as_dict(quote)) if as_json else _print_quote(quote)
    elif as_json:
        print_json(_release_as_dict(made, output, opened.summary(), holder.rows_))
    else:
        _print_release(made, output, opened.summary(), holder.rows_)


def _release(holder: "Holder", table: Path, output: Path) -> "Release":
    """Release; where the paid-for result could not be put in its place, save it elsewhere before giving up."""
    from noisewise.errors import NoisewiseError

    try:
        return holder.release(table, output)
    except NoisewiseError:
        _rescue(holder, output)
        raise
    except KeyboardInterrupt:
        _rescue(holder, output)
        note("Stopped. 'noisewise ledger show' tells whether the budget was spent; a reservation counts as spent.")
        raise


def _rescue(holder: "Holder", output: Path) -> None:
    import tempfile

    try:
        paid = holder.unsaved_
    except AttributeError:
        return  # nothing was spent
    if output.exists():
        note(f"{output} is written and sound; only its confirmation in the ledger is missing. The budget is spent.")
        return
    spare = Path(tempfile.gettempdir()) / f"noisewise-{paid.identity}.json"
    paid.save(spare)
    note(f"The release is paid for and was saved as {spare}; move it to a safe place.")


@contextmanager
def _progress(table: Path) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal's stderr: rows read, their share where the file tells, rows a second."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[label]}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} rows"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
    )
    console = err()
    # transient: the bar goes when the table is read, and what is said afterwards stays
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("read", total=_rows_if_known(table), label=table.name, speed="")

        def advance(rows: int) -> None:
            elapsed = bar.tasks[0].elapsed
            bar.update(task, completed=rows, speed=f"{number(rows / elapsed, 3)} rows/s" if elapsed else "")

        yield advance


def _rows_if_known(table: Path) -> int | None:
    """A Parquet file says how many rows it has; others have to be read first."""
    if table.suffix != ".parquet":
        return None
    from pyarrow import ArrowException, parquet

    try:
        return int(parquet.read_metadata(table).num_rows)
    except (OSError, ArrowException):
        return None  # reading the table will tell what is wrong with it


def _print_rows(rows: "RowReport") -> None:
    print_facts([("rows read", f"{rows.read:,}"), ("rows used", f"{rows.used:,}")])
    touched = [
        (rows.dropped, "dropped for a missing value"),
        (rows.missing - rows.dropped, "with a missing value, put at the centre of its bounds"),
        (rows.clipped, "with a value clipped to its bounds"),
        (rows.shrunk, "shrunk onto the study's radius"),
    ]
    for count, what in touched:
        if count:
            out().print(f"  {count:,} ({count / rows.read:.1%}) {what}")
    names = [name for name in rows.clipped_by_column if rows.clipped_by_column[name] or rows.missing_by_column[name]]
    if names:
        print_table(
            ["column", "clipped", "missing"],
            ([name, f"{rows.clipped_by_column[name]:,}", f"{rows.missing_by_column[name]:,}"] for name in names),
        )
    out().print()
    note(PRIVATE)


def _print_release(made: "Release", output: Path, summary: "Summary", rows: "RowReport") -> None:
    _print_rows(rows)
    out().print()
    print_facts(
        [
            ("release", str(output)),
            ("digest", made.digest),
            ("guarantee", made.privacy_statement()),
            ("cost", budget(made.guarantee.epsilon, made.guarantee.delta) if made.guarantee else "none"),
            ("spent", _of_total(summary.spent_epsilon, summary.total_epsilon, summary.total_delta)),
            ("left", f"epsilon {plain(summary.left_epsilon, 4)} for data set {summary.dataset!r}"),
        ]
    )


def _of_total(spent: float, total_epsilon: float, total_delta: float) -> str:
    return f"epsilon {plain(spent, 4)} of a total of {budget(total_epsilon, total_delta)}, all releases together"


def _print_quote(quote: "DryRun") -> None:
    if quote.rows is not None:
        _print_rows(quote.rows)
        out().print()
    word = "standard deviation" if quote.law == "gaussian" else "scale"
    noisy = [scale for scale in quote.scales if scale]
    scales = [number(scale) for scale in sorted(set(noisy))]
    facts = [
        ("dry run", "nothing was spent or written"),
        ("cost", f"{budget(quote.epsilon, quote.delta)}, {quote.adjacency}"),
        ("noise", f"{quote.law}, {word} {' or '.join(scales)} on {len(noisy)} numbers, in scaled units"),
    ]
    if quote.spent_after is not None and quote.left_after is not None:
        total = (quote.total_epsilon or 0.0, quote.total_delta or 0.0)
        verdict = "fits" if quote.fits else "DOES NOT FIT: a release will be refused"
        facts += [
            ("spent before", _of_total(quote.spent_before or 0.0, *total)),
            ("spent after", f"epsilon {plain(quote.spent_after, 4)}, {plain(quote.left_after, 4)} left"),
            ("budget", verdict),
        ]
    print_facts(facts)


def _rows_as_dict(rows: "RowReport") -> dict[str, Any]:
    parts = {key: dict(value) if key.endswith("_by_column") else value for key, value in vars(rows).items()}
    return {"warning": PRIVATE, **parts}


def _release_as_dict(made: "Release", output: Path, summary: "Summary", rows: "RowReport") -> dict[str, Any]:
    return {
        "dry_run": False,
        "release": str(output),
        "digest": made.digest,
        "identity": made.identity,
        "study_digest": made.study.digest if made.study else None,
        "holder": made.holder,
        "n": made.n,
        "privacy": vars(made.guarantee) if made.guarantee else None,
        "ledger_entry": made.ledger_entry,
        "budget": {
            "spent_epsilon": summary.spent_epsilon,
            "left_epsilon": summary.left_epsilon,
            "total_epsilon": summary.total_epsilon,
            "total_delta": summary.total_delta,
        },
        "private_rows": _rows_as_dict(rows),
    }


def _quote_as_dict(quote: "DryRun") -> dict[str, Any]:
    named = zip(quote.entries, quote.scales, strict=True)
    return {
        "dry_run": True,
        "fits": quote.fits,
        "epsilon": quote.epsilon,
        "delta": quote.delta,
        "adjacency": quote.adjacency,
        "sensitivity": quote.sensitivity,
        "norm": quote.norm,
        "law": quote.law,
        "entries": [{"name": name, "scale": scale} for name, scale in named],
        "budget": {
            "spent_before": quote.spent_before,
            "spent_after": quote.spent_after,
            "left_after": quote.left_after,
            "total_epsilon": quote.total_epsilon,
            "total_delta": quote.total_delta,
        },
        "private_rows": _rows_as_dict(quote.rows) if quote.rows else None,
    }
