"""The command line: ``noisewise study | release | ledger | fit | predict | demo | join | round | node``.

Exit codes: 0 all is well; 1 something unexpected failed (a traceback without any variable's value is shown);
2 the request was refused, with a message that says why and what to do.
"""

from typing import Annotated

import typer

from noisewise import __version__
from noisewise.cli import demo, fit, join, ledger, node, predict, project, release, round, study
from noisewise.cli.show import GuardedGroup, out

app = typer.Typer(
    name="noisewise",
    cls=GuardedGroup,
    help="Bayesian linear regression on data that none of its holders may show.\n\n"
    "Plan a study, release noisy statistics under differential privacy with a ledger that can't be overspent, and get "
    "posteriors whose uncertainty counts the privacy noise.\n\n"
    "\b\nExample, the whole story in one minute on made data:\n  noisewise demo\n\n"
    "Exit codes: 0 done, 1 unexpected failure, 2 refused (the message says why and what to do).",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        out().print(f"noisewise {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


study.app.command("spread")(project.spread)
study.app.command("project")(project.project)
app.add_typer(study.app, name="study")
app.command("release")(release.release)
app.add_typer(ledger.app, name="ledger")
app.add_typer(join.app, name="join")
app.add_typer(round.app, name="round")
app.command("fit")(fit.fit)
app.command("predict")(predict.predict)
app.command("demo")(demo.demo)
app.add_typer(node.app, name="node")


def main() -> None:
    """The entry point of the ``noisewise`` command."""
    app()
