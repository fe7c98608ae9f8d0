"""``noisewise join enrol | send | status``: a holder's part in a secure sum."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisewise.cli.network import AllowHttp, Authority, network
from noisewise.cli.show import (
    REFUSED,
    Dataset,
    IgnoreExtraColumns,
    Json,
    err,
    note,
    out,
    print_facts,
    print_json,
    print_table,
    say,
)

if TYPE_CHECKING:
    from noisewise.holder.publish import Holder
    from noisewise.holder.share import Delivery, Participant
    from noisewise.protocol.task import Task

app = typer.Typer(
    no_args_is_help=True,
    help="Take part in a secure sum: your sums leave this machine noisy, split and sealed, and only their total over "
    "all holders is ever seen.\n\n"
    "\b\nExample:\n"
    '  noisewise join enrol secure --trust trust.toml --name "City hospital"\n'
    "  noisewise join send secure patients.csv --study study.toml \\\n      --ledger patients.ledger\n"
    "  noisewise join status secure",
)

Folder = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="Your folder: key, trust.toml, outbox.", show_default=False),
]
Round = Annotated[str, typer.Option(help="The round's name, where there are several.", show_default=False)]


@app.command()
def enrol(
    folder: Folder,
    trust: Annotated[
        Path, typer.Option(help="The keys you believe: coordinator and nodes (TOML); it is copied.", show_default=False)
    ],
    name: Annotated[str, typer.Option(help="Your name, as you were invited; it is public.", show_default=False)],
    token: Annotated[
        str,
        typer.Option(
            help="The token of your invitation; asked for if it is not given.",
            envvar="NOISEWISE_TOKEN",
            prompt="Token",
            hide_input=True,
            show_default=False,
        ),
    ],
    allow_http: AllowHttp = False,
    ca: Authority = None,
    as_json: Json = False,
) -> None:
    """Enrol with a coordinator: make a key here, and register it with the one-time token.

    If the answer got lost, run it again: it registers the same key.

    \b
    Example:
      noisewise join enrol secure --trust trust.toml --name "City hospital"
    """
    from noisewise.errors import RoundError
    from noisewise.holder.share import Participant

    try:
        text = trust.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise RoundError(f"{trust}: can't be read; it names the keys that you believe (docs/secure-sum.md).") from None
    member = Participant.enrol(folder, trust=text, name=name, token=token.strip(), network=network(allow_http, ca))
    if as_json:
        print_json({"folder": str(folder), "name": name, "key": member.identity.key})
        return
    print_facts([("enrolled", name), ("your key", member.identity.key), ("folder", f"{folder} (keep it to yourself)")])


@app.command()
def send(
    folder: Folder,
    table: Annotated[
        Path | None,
        typer.Argument(metavar="[TABLE]", help="Your table. Left out: send again what is in the outbox."),
    ] = None,
    study: Annotated[Path | None, typer.Option(help="Your copy of the study.", show_default=False)] = None,
    ledger: Annotated[Path | None, typer.Option(help="The ledger of this data set.", show_default=False)] = None,
    round: Round = "",
    dataset: Dataset = None,
    ignore_extra_columns: IgnoreExtraColumns = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and show everything; spend and send nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask; for scripts whose task someone has read.")] = False,
    spend_again: Annotated[
        bool, typer.Option("--spend-again", help="Pay a second time after a try that was stopped midway.")
    ] = False,
    allow_http: AllowHttp = False,
    ca: Authority = None,
    as_json: Json = False,
) -> None:
    """Take part in the open round: shows who is in it and what it costs, asks, spends, seals and sends.

    After a crash or with a node down run it again: the same sealed bytes are sent, and nothing is spent.

    \b
    Example:
      noisewise join send secure patients.csv --study study.toml \\
          --ledger patients.ledger
      noisewise join send secure --ledger patients.ledger
    """
    from noisewise.holder.publish import Holder
    from noisewise.holder.share import Participant
    from noisewise.privacy.ledger import Ledger
    from noisewise.study import Study

    if ledger is None or (table is not None and study is None):
        raise typer.BadParameter("name the ledger, and with a table the study.", param_hint="--ledger, --study")
    member = Participant(folder, network(allow_http, ca))
    opened = Ledger.open(ledger, dataset)
    if table is None or study is None:
        _report(_send_again(member, opened, round), as_json)
        return
    extra = "ignore" if ignore_extra_columns else "refuse"
    holder = Holder(Study.load(study), ledger=opened, name=member.name, extra_columns=extra)  # type: ignore[arg-type]
    task = member.find(holder.study, round or None)
    if member.outbox.get(task.id) is None:
        _show(task, member, holder, table if dry_run else None, as_json)
        if dry_run:
            return
        if not yes:
            typer.confirm("Do you take part?", abort=True, err=True)
    elif dry_run:
        say(f"Round {task.id[:16]}... is in the outbox: it is paid for, and sending it again costs nothing.")
        return
    with err().status("Reading, sealing, sending."):
        delivery = member.contribute(task, holder, table, again=spend_again)
    _report([delivery], as_json)


@app.command()
def status(
    folder: Folder,
    round: Round = "",
    allow_http: AllowHttp = False,
    ca: Authority = None,
    as_json: Json = False,
) -> None:
    """Ask the nodes which of them have what you sent.

    \b
    Example:
      noisewise join status secure
    """
    from noisewise.holder.share import Participant

    member = Participant(folder, network(allow_http, ca))
    deliveries = [member.status(parcel) for parcel in _parcels(member, round)]
    if not deliveries and not as_json:
        say("Nothing was sent yet.")
        return
    _report(deliveries, as_json, fail=False)


def _parcels(member: "Participant", round: str) -> list[Any]:
    names = [name for name in member.outbox.rounds() if name.startswith(round)]
    return [parcel for name in names if (parcel := member.outbox.get(name)) is not None]


def _send_again(member: "Participant", ledger: Any, round: str) -> "list[Delivery]":
    from noisewise.errors import RoundError

    parcels = _parcels(member, round)
    if not parcels:
        raise RoundError("There is nothing in the outbox to send again; name your table and the study.")
    return [member.deliver(parcel, ledger) for parcel in parcels]


def _show(task: "Task", member: "Participant", holder: "Holder", table: Path | None, as_json: bool) -> None:
    """The task in words, and whether the budget (and the table, if given) fits; on stderr where stdout is for JSON."""
    from noisewise.holder.share import describe

    quote = holder.dry_run(table)
    facts = describe(task, member.trust)
    if quote.rows is not None:
        facts.append(
            ("your table", f"{quote.rows.used:,} rows used of {quote.rows.read:,} read, {quote.rows.clipped:,} clipped")
        )
    if quote.left_after is not None:
        fits = f"epsilon {quote.left_after:.4g} is left after this" if quote.fits else "DOES NOT FIT your ledger"
        facts.append(("your budget", fits))
    if as_json:
        for name, value in facts:
            note(f"{name}: {value}")
    else:
        print_facts(facts)


def _report(deliveries: "list[Delivery]", as_json: bool, fail: bool = True) -> None:
    if as_json:
        print_json({"rounds": [_as_dict(delivery) for delivery in deliveries]})
    else:
        for delivery in deliveries:
            print_table(
                ["node", "stored", "in words"],
                ([r.node, "yes" if r.stored else "NO", r.words] for r in delivery.receipts),
                title=f"Round {delivery.round[:16]}...",
                align="lll",
            )
            out().print(delivery.in_words() + ".", soft_wrap=True)
    if fail and not all(delivery.complete for delivery in deliveries):
        raise typer.Exit(REFUSED)


def _as_dict(delivery: "Delivery") -> dict[str, Any]:
    return {
        "round": delivery.round,
        "complete": delivery.complete,
        "nodes": [{"name": r.node, "stored": r.stored, "words": r.words} for r in delivery.receipts],
    }
