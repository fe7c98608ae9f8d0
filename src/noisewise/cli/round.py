"""``noisewise round init | invite | serve | open | status | collect | abort | verify``: the coordinator's commands."""

from pathlib import Path
from typing import Annotated

import typer

from noisewise.cli.network import AllowHttp, Authority, moment, network
from noisewise.cli.round_show import evidence_dict, evidence_facts, factor, facts, who_has_it
from noisewise.cli.round_show import watch as keep_watching
from noisewise.cli.show import Json, count, err, note, out, print_facts, print_json, print_table, say

app = typer.Typer(
    no_args_is_help=True,
    help="Coordinate a secure sum: many holders, one pooled release, and nobody who sees what one of them sent.\n\n"
    "\b\nExample:\n"
    "  noisewise round init coordinator\n"
    '  noisewise round invite coordinator "City hospital"\n'
    "  noisewise round serve coordinator --port 8400\n"
    "  noisewise round open coordinator --study study.toml \\\n"
    "      --node https://north.example.org --node https://south.example.org \\\n"
    "      --may-drop 1 --may-collude 1 --deadline 7d\n"
    "  noisewise round status coordinator --watch\n"
    "  noisewise round collect coordinator --output pooled.json",
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The coordinator's folder.", show_default=False)]
Which = Annotated[
    str,
    typer.Argument(metavar="[ROUND]", help="The beginning of its name; the newest if left out.", show_default=False),
]


@app.command()
def init(folder: Folder, as_json: Json = False) -> None:
    """Make a coordinator: a signing key and a notebook of holders and rounds.

    \b
    Example:
      noisewise round init coordinator
    """
    from noisewise.compute.coordinator import Coordinator

    key = Coordinator.create(folder).identity.key
    if as_json:
        print_json({"folder": str(folder), "key": key})
        return
    print_facts([("made", str(folder)), ("key", key)])
    say("Tell this key to the nodes' operators and to the holders, by a way that nobody else can write to.")


@app.command()
def invite(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The holder's name; it is public.", show_default=False)],
    days: Annotated[float, typer.Option(help="For how many days the token is good.")] = 14.0,
    as_json: Json = False,
) -> None:
    """Invite a holder: a token with which it can enrol one key, once.

    \b
    Example:
      noisewise round invite coordinator "City hospital"
    """
    from noisewise.compute.coordinator import Coordinator

    token = Coordinator(folder).invite(name, days)
    if as_json:
        print_json({"name": name, "token": token, "days": days})
        return
    out().print(token, soft_wrap=True)
    note(f"Give this token to {name} alone; it enrols one key, once, within {days:g} days, and is not shown again.")


@app.command()
def serve(
    folder: Folder,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8400,
    tls_certificate: Annotated[Path | None, typer.Option(help="Certificate (PEM), if no proxy does TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    behind_proxy: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The reverse proxy before it, whose X-Forwarded-For is believed.")
    ] = "",
    relay: Annotated[bool, typer.Option(help="Pass envelopes on to nodes, for holders that reach one address.")] = True,
    allow_http: AllowHttp = False,
    ca: Authority = None,
) -> None:
    """Serve the board: enrolment, the list of rounds, tasks, releases, and the relay.

    \b
    Example:
      noisewise round serve coordinator --host 0.0.0.0 --port 8400 \\
          --tls-certificate board.pem --tls-key board.key
    """
    from noisewise.compute.board import Board
    from noisewise.compute.coordinator import Coordinator
    from noisewise.compute.service import Listening
    from noisewise.compute.service import serve as run

    board = Board(Coordinator(folder, network(allow_http, ca)), relay=relay)
    run(board.application, Listening(host, port, tls_certificate, tls_key, behind_proxy))


@app.command("open")
def open_(
    folder: Folder,
    study: Annotated[Path, typer.Option(help="The study that all agreed on.", show_default=False)],
    node: Annotated[list[str], typer.Option(help="Address of a compute node; repeat it.", show_default=False)],
    deadline: Annotated[str, typer.Option(help="Until when: 12h, 7d, or 2027-01-31T18:00+01:00.", show_default=False)],
    may_drop: Annotated[int, typer.Option(help="How many holders may fail to come.", min=0)] = 0,
    may_collude: Annotated[int, typer.Option(help="How many holders may work together against another.", min=0)] = 0,
    holder: Annotated[
        list[str] | None, typer.Option(help="A holder that takes part; repeat it. All enrolled if left out.")
    ] = None,
    node_key: Annotated[
        list[str] | None, typer.Option(help="A key that a node may have; repeat it. Any if left out.")
    ] = None,
    allow_http: AllowHttp = False,
    ca: Authority = None,
    as_json: Json = False,
) -> None:
    """Open a round: sign its task and give it to every node.

    If it is stopped midway, or a node is down, run it again: the same round is opened.

    \b
    Example:
      noisewise round open coordinator --study study.toml \\
          --node https://north.example.org --node https://south.example.org \\
          --may-drop 1 --may-collude 1 --deadline 7d
    """
    from noisewise.compute.coordinator import Coordinator
    from noisewise.study import Study

    task = Coordinator(folder, network(allow_http, ca)).open(
        Study.load(study),
        node,
        may_drop=may_drop,
        may_collude=may_collude,
        deadline=moment(deadline),
        holders=holder or (),
        node_keys=node_key or (),
    )
    if as_json:
        print_json({"round": task.id, "deadline": task.deadline.isoformat(), "holders": len(task.members)})
        return
    crowd = task.crowd
    print_facts(
        [
            ("round", task.id),
            ("holders", f"{count(crowd.holders, 'holder')}, at least {crowd.least} have to come"),
            ("nodes", ", ".join(f"{card.name} ({card.key[:16]}...)" for card in task.nodes)),
            ("noise", f"{factor(crowd.least, crowd.hidden_by)} to {factor(crowd.holders, crowd.hidden_by)} times the "
             "variance of one release"),
            ("deadline", f"{task.deadline:%Y-%m-%d %H:%M} UTC"),
        ]
    )  # fmt: skip


@app.command()
def status(
    folder: Folder,
    round: Which = "",
    watch: Annotated[bool, typer.Option("--watch", help="Keep looking until all are there or the round ends.")] = False,
    allow_http: AllowHttp = False,
    ca: Authority = None,
    as_json: Json = False,
) -> None:
    """Show who is missing, at which node.

    \b
    Example:
      noisewise round status coordinator --watch
    """
    from noisewise.compute.coordinator import Coordinator

    coordinator = Coordinator(folder, network(allow_http, ca))
    name = coordinator.notebook.find(round).task.id
    if watch and not as_json:
        keep_watching(coordinator, name)
        return
    standing = coordinator.standing(name)
    if as_json:
        print_json({"round": name, "phase": str(standing.phase), "reason": standing.reason, **standing.to_dict()})
        return
    print_facts(facts(standing))
    columns, rows = who_has_it(standing)
    print_table(columns, rows, align="l" * len(columns))


@app.command()
def collect(
    folder: Folder,
    round: Which = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the pooled release.")] = Path(
        "pooled.json"
    ),
    early: Annotated[bool, typer.Option("--early", help="Don't wait for missing holders until the deadline.")] = False,
    allow_http: AllowHttp = False,
    ca: Authority = None,
    as_json: Json = False,
) -> None:
    """Collect the sum: nodes freeze, agree on who is in it, and sum once; the pooled release goes on the board.

    It can be run again at any time and gives the same release.

    \b
    Example:
      noisewise round collect coordinator --output pooled.json
    """
    from noisewise.compute.coordinator import Coordinator
    from noisewise.errors import OutputError
    from noisewise.protocol.pooled import verify as check
    from noisewise.release import Release

    coordinator = Coordinator(folder, network(allow_http, ca))
    name = coordinator.notebook.find(round).task.id
    if output.exists() and Release.load(output).identity != name[:32]:
        raise OutputError(f"{output}: this is another release, and is not overwritten; choose another name.")
    with err().status("Collecting."):
        release = coordinator.collect(name, early=early)
    release.save(output)
    evidence = check(release)
    if as_json:
        print_json({"output": str(output), "digest": release.digest, **evidence_dict(evidence)})
        return
    print_facts([("pooled release", str(output)), ("digest", release.digest), *evidence_facts(evidence)])
    say(release.privacy_statement())


@app.command()
def abort(
    folder: Folder,
    round: Annotated[str, typer.Argument(metavar="ROUND", help="The beginning of its name.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Why, for everyone to read.", show_default=False)],
    allow_http: AllowHttp = False,
    ca: Authority = None,
    as_json: Json = False,
) -> None:
    """End a round without a sum. What holders spent on it stays spent.

    \b
    Example:
      noisewise round abort coordinator 3f9a0c52 --reason "wrong study"
    """
    from noisewise.compute.coordinator import Coordinator

    coordinator = Coordinator(folder, network(allow_http, ca))
    name = coordinator.notebook.find(round).task.id
    coordinator.abort(name, reason)
    print_json({"round": name, "phase": "aborted"}) if as_json else say(f"Round {name[:16]}... is aborted: {reason}")


@app.command()
def verify(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A pooled release.", show_default=False)],
    coordinator: Annotated[str, typer.Option(help="The key that the coordinator has to have.")] = "",
    node: Annotated[
        list[str] | None, typer.Option(help="A key that a node has to have; repeat it, and name all of them.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a pooled release by its own evidence: signatures, who was summed, the sum, the noise.

    \b
    Example:
      noisewise round verify pooled.json
      noisewise round verify pooled.json --coordinator 5f0c... \\
          --node a91b... --node 07de...
    """
    from noisewise.errors import ForgeryError
    from noisewise.protocol.pooled import verify as check
    from noisewise.release import Release

    evidence = check(Release.load(release))
    task = evidence.task
    if coordinator and task.coordinator != coordinator:
        raise ForgeryError(f"The round's coordinator has key {task.coordinator}, not {coordinator!r:.70}.")
    if node and sorted(node) != sorted(task.node_keys):
        other = next((card for card in task.nodes if card.key not in node), None)
        words = f"node {other.name!r} has key {other.key}" if other else "a key is named that no node of it has"
        raise ForgeryError(f"The round's nodes are not those given: {words}.")
    if as_json:
        print_json({"ok": True, **evidence_dict(evidence)})
        return
    print_facts([("verified", str(release)), *evidence_facts(evidence)])
    if not (coordinator and node):
        note(
            "The signatures hold for the keys that the release names. That these are the keys of the parties you trust "
            "is for you to compare, or to check with --coordinator and --node."
        )
