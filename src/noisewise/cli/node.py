"""``noisewise node init | serve | card | keys | audit``: a compute node of a secure sum, run by its operator."""

from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise.cli.show import Json, count, out, print_facts, print_json, print_table

app = typer.Typer(
    no_args_is_help=True,
    help="Run a compute node: it takes one share of every holder, worthless alone, and sums.\n\n"
    "\b\nExample:\n"
    "  noisewise node init node-a --name 'Node A' \\\n      --url https://a.example.org --coordinator KEY\n"
    "  noisewise node serve node-a",
)
keys_app = typer.Typer(
    no_args_is_help=True,
    help="Look at the keys that open envelopes, and change to the next one.\n\n"
    "\b\nExample:\n  noisewise node keys show node-a",
)
app.add_typer(keys_app, name="keys")

FolderPath = Annotated[Path, typer.Argument(metavar="FOLDER", help="The node's folder.", show_default=False)]
Database = Annotated[
    str,
    typer.Option(
        envvar="NOISEWISE_DATABASE",
        help="Such as postgresql://user@host/name; by default an SQLite file in the folder. A password is safer in "
        "the variable NOISEWISE_DATABASE, or in PostgreSQL's own password file, than on the command line.",
        show_default=False,
    ),
]


@app.command()
def init(
    folder: FolderPath,
    name: Annotated[str, typer.Option(help="The node's public name.", show_default=False)],
    url: Annotated[str, typer.Option(help="Where holders and coordinators reach it.", show_default=False)],
    coordinator: Annotated[
        list[str], typer.Option(help="Signing key of a coordinator whose tasks are taken; may be repeated.")
    ],
    as_json: Json = False,
) -> None:
    """Make a node: its settings, a signing key, and sealing keys, in a folder for its operator's eyes.

    \b
    Example:
      noisewise node init node-a --name 'Node A' \\
          --url https://a.example.org --coordinator KEY
    """
    from noisewise.compute.folder import Folder

    made = Folder.create(folder, name=name, url=url, coordinators=coordinator)
    if as_json:
        print_json(_card(made))
        return
    out().print(f"made {folder}: node {name!r} with key {made.identity.key}", soft_wrap=True)
    out().print(f"settings are in {folder / 'node.toml'}; 'noisewise node serve {folder}' starts it", soft_wrap=True)


@app.command()
def serve(
    folder: FolderPath,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.", min=0, max=65535)] = 8470,
    database: Database = "",
    tls_certificate: Annotated[
        Path | None, typer.Option(help="The certificate (PEM, with its chain); with --tls-key.", show_default=False)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).", show_default=False)] = None,
    behind_proxy: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address of the reverse proxy before it, such as 127.0.0.1: only what comes from there may say "
            "in X-Forwarded-For who sent a request.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Serve a node until SIGTERM or Ctrl-C. Logs are JSON lines on stderr; the first one says where it listens.

    \b
    Example:
      noisewise node serve node-a --host 0.0.0.0 --port 443 \\
          --tls-certificate node.pem --tls-key node.key
    """
    import os

    from noisewise.compute.folder import Folder
    from noisewise.compute.node import Node
    from noisewise.compute.node_http import application
    from noisewise.compute.service import Listening, serve

    os.umask(0o077)
    node_folder = Folder.load(folder)
    node_folder.lock()
    listening = Listening(host, port, tls_certificate, tls_key, behind_proxy)
    serve(lambda: application(Node(node_folder, node_folder.store(database))), listening)


@app.command()
def card(folder: FolderPath, as_json: Json = False) -> None:
    """Show the node's public keys, to hand to holders and coordinators by a way that they trust.

    \b
    Example:
      noisewise node card node-a
    """
    from noisewise.compute.folder import Folder

    found = Folder.load(folder)
    if as_json:
        print_json(_card(found))
        return
    body = found.card()
    print_facts(
        [
            ("name", body.name),
            ("address", body.url),
            ("signing key", f"{body.key} (holders pin this one)"),
            ("sealing key", f"{body.sealing_key} (active; signed by the key above)"),
        ]
    )


@keys_app.command("show")
def show_keys(folder: FolderPath, as_json: Json = False) -> None:
    """Show the public halves of the sealing keys: pending, active, expired.

    \b
    Example:
      noisewise node keys show node-a
    """
    from noisewise.compute.folder import Folder

    entries = Folder.load(folder).keyring.entries
    if as_json:
        print_json({"keys": [_key(entry) for entry in entries]})
        return
    print_table(
        ["number", "state", "sealing key"], ([str(e.number), e.validity, e.key.key] for e in entries), align="lll"
    )


@keys_app.command("rotate")
def rotate_keys(folder: FolderPath, as_json: Json = False) -> None:
    """Make the pending sealing key active. Rounds that are open go on with the key they began with.

    A node that is running sees it at once; no restart is needed.

    \b
    Example:
      noisewise node keys rotate node-a
    """
    from noisewise.compute.folder import Folder

    active = Folder.load(folder).keyring.rotate()
    if as_json:
        print_json(_key(active))
        return
    out().print(f"sealing key {active.number} is active: {active.key.key}", soft_wrap=True)
    out().print("the one before it opens the envelopes of its rounds and takes part in no new one", soft_wrap=True)


@app.command()
def audit(
    folder: FolderPath,
    database: Database = "",
    head: Annotated[str, typer.Option(help="A head that this command printed earlier.", show_default=False)] = "",
    last: Annotated[int, typer.Option(help="How many of the newest lines to show.", min=0)] = 20,
    as_json: Json = False,
) -> None:
    """Check that no line of the audit log was changed or removed, and show the newest ones.

    \b
    Example:
      noisewise node audit node-a
    """
    from collections import deque

    from noisewise.compute import audit as log
    from noisewise.compute.folder import Folder
    from noisewise.privacy.chain import GENESIS

    node_folder = Folder.load(folder)
    store = node_folder.reader(database)
    try:
        total, newest, found = 0, deque[Any](maxlen=last), GENESIS
        for entry in log.entries(store, head):
            total, found = total + 1, entry.hash
            newest.append(entry)
    finally:
        store.close()
    if as_json:
        lines = [{"position": e.position, "kind": e.kind, "hash": e.hash, **e.payload} for e in newest]
        print_json({"ok": True, "entries": total, "head": found, "newest": lines})
        return
    out().print(f"the chain is whole ({count(total, 'entry', 'entries')}); head {found}", soft_wrap=True)
    print_table(["entry", "what", "when (UTC)", "about"], (_line(entry) for entry in newest), align="rlll")


def _line(entry: Any) -> list[str]:
    facts = {key: value for key, value in entry.payload.items() if key != "created"}
    about = ", ".join(f"{key} {value[:16] + '...' if len(str(value)) == 64 else value}" for key, value in facts.items())
    return [str(entry.position), entry.kind, entry.created, about]


def _card(folder: Any) -> dict[str, Any]:
    body = folder.card()
    return {
        "name": body.name,
        "url": body.url,
        "signing_key": body.key,
        "sealing_key": body.sealing_key,
        "card": body.signed.to_dict(),
    }


def _key(entry: Any) -> dict[str, Any]:
    return {"number": entry.number, "state": entry.validity.value, "sealing_key": entry.key.key}
