"""``noisewise ledger create | show | verify | raise``: the budget of one data set, kept by its holder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from noisewise.cli.show import REFUSED, Json, budget, count, err, out, plain, print_facts, print_json, print_table

if TYPE_CHECKING:
    from noisewise.privacy.chain import Entry
    from noisewise.privacy.ledger import Ledger

app = typer.Typer(
    no_args_is_help=True,
    help="Keep the budget of a data set: what all its releases together may cost.\n\n"
    "\b\nExample:\n"
    "  noisewise ledger create patients.ledger --dataset patients \\\n      --epsilon 3 --delta 1e-5\n"
    "  noisewise ledger show patients.ledger",
)

LedgerPath = Annotated[Path, typer.Argument(metavar="PATH", help="The ledger's file.", show_default=False)]


@app.command()
def create(
    path: LedgerPath,
    dataset: Annotated[str, typer.Option(help="Name of the data set that the ledger is for.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="Total epsilon of all releases together.", show_default=False)],
    delta: Annotated[float, typer.Option(help="Total delta of all releases together.", show_default=False)],
    adjacency: Annotated[
        Literal["replace-one", "add-remove"], typer.Option(help="The adjacency of the studies that will draw on it.")
    ] = "replace-one",
    as_json: Json = False,
) -> None:
    """Make the ledger of a data set, with a total that can't be overspent.

    \b
    Example:
      noisewise ledger create patients.ledger --dataset patients \\
          --epsilon 3 --delta 1e-5
    """
    from noisewise.privacy.ledger import Ledger

    ledger = Ledger.create(path, dataset=dataset, epsilon=epsilon, delta=delta, adjacency=adjacency)
    summary = ledger.summary()
    if as_json:
        print_json(_summary(ledger))
        return
    out().print(
        f"made {path}: data set {dataset!r} may spend {budget(summary.total_epsilon, summary.total_delta)} "
        f"({adjacency}) in all its releases together",
        soft_wrap=True,
    )


@app.command()
def show(path: LedgerPath, as_json: Json = False) -> None:
    """Show what was spent, on what, and what is left.

    \b
    Example:
      noisewise ledger show patients.ledger
    """
    from noisewise.privacy.ledger import Ledger

    ledger = Ledger.open(path)
    entries = ledger.entries()
    if as_json:
        print_json({**_summary(ledger), "entries": [_entry(entry) for entry in entries]})
        return
    summary = ledger.summary()
    print_facts(
        [
            ("data set", f"{summary.dataset} ({summary.adjacency})"),
            ("total", budget(summary.total_epsilon, summary.total_delta)),
            ("spent", f"epsilon {plain(summary.spent_epsilon, 4)} at that delta, all releases together"),
            ("left", f"epsilon {plain(summary.left_epsilon, 4)}"),
            ("releases", _releases(summary.reservations, summary.unconfirmed)),
            ("head", f"{summary.head} (note it elsewhere; 'ledger verify --head' compares)"),
        ]
    )
    print_table(
        ["entry", "what", "when (UTC)", "epsilon", "delta", "about"],
        ([entry.hash[:12], *_told(entry)] for entry in entries),
        title="Entries, oldest first",
        align="lllrrl",
    )


def _releases(reservations: int, unconfirmed: int) -> str:
    if not unconfirmed:
        return f"{reservations}"
    return f"{reservations}, of which {unconfirmed} never confirmed (stopped midway; counted as spent all the same)"


@app.command()
def verify(
    path: LedgerPath,
    release: Annotated[
        list[Path] | None, typer.Option(help="A release published from this data set; may be repeated.")
    ] = None,
    head: Annotated[str | None, typer.Option(help="A head that 'ledger show' printed earlier.")] = None,
    as_json: Json = False,
) -> None:
    """Check that no entry was changed, and none removed that a release or an earlier head knows of.

    Exit code 0 if all is well, 2 if not.

    \b
    Example:
      noisewise ledger verify patients.ledger --release city.json
    """
    from noisewise.errors import ReleaseError
    from noisewise.privacy.ledger import Ledger
    from noisewise.release import Release

    known = []
    for file in release or []:
        entry = Release.load(file).ledger_entry
        if entry is None:
            raise ReleaseError(f"{file}: this release was made without a ledger, so it can't tell about one.")
        known.append(entry)
    found = Ledger.open(path).verify(known, head)
    if as_json:
        print_json(
            {
                "ok": found.ok,
                "entries": found.entries,
                "reservations": found.reservations,
                "unconfirmed": list(found.unconfirmed),
                "head": found.head,
                "problems": list(found.problems),
            }
        )
    elif found.ok:
        checked = f"; {count(len(known), 'release')} found in it" if known else ""
        out().print(f"{path}: the chain is whole ({count(found.entries, 'entry', 'entries')}){checked}", soft_wrap=True)
        out().print(f"head {found.head}", soft_wrap=True)
    if not found.ok:
        for problem in found.problems:
            err().print(f"error: {path}: {problem}", style="red", soft_wrap=True)
        raise typer.Exit(REFUSED)


@app.command("raise")
def raise_total(
    path: LedgerPath,
    epsilon: Annotated[float, typer.Option(help="The new total epsilon.", show_default=False)],
    delta: Annotated[float, typer.Option(help="The new total delta.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Why; it stays in the ledger for ever.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Set a larger total: a decision of the data's owner, recorded with its reason. It can't be undone.

    \b
    Example:
      noisewise ledger raise patients.ledger --epsilon 5 --delta 1e-5 \\
          --reason "board, 3 May"
    """
    from noisewise.privacy.ledger import Ledger

    ledger = Ledger.open(path)
    ledger.raise_total(epsilon, delta, reason)
    if as_json:
        print_json(_summary(ledger))
        return
    summary = ledger.summary()
    out().print(
        f"{path}: the total is now {budget(summary.total_epsilon, summary.total_delta)}; "
        f"epsilon {plain(summary.left_epsilon, 4)} is left",
        soft_wrap=True,
    )


def _summary(ledger: "Ledger") -> dict[str, Any]:
    return {"path": str(ledger.path), **vars(ledger.summary())}


def _entry(entry: "Entry") -> dict[str, Any]:
    return {"position": entry.position, "kind": entry.kind, "hash": entry.hash, **entry.payload}


def _told(entry: "Entry") -> list[str]:
    """An entry for people: what, when, epsilon, delta, about."""
    payload = entry.payload
    price = payload.get("event", payload)
    numbers = [f"{price[key]:g}" if key in price else "" for key in ("epsilon", "delta")]
    if entry.kind == "open":
        what, about = "total set", payload["dataset"]
    elif entry.kind == "reserve":
        what, about = "spent", " by ".join(text for text in (payload["study_name"], payload["holder"]) if text)
    elif entry.kind == "confirm":
        what, about = "written", f"of {payload['entry'][:12]}"
    else:
        what, about = "total raised", payload["reason"]
    return [what, entry.created[:16].replace("T", " "), *numbers, about]
