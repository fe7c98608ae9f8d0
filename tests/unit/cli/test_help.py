"""Every command explains itself, with an example, and help loads nothing heavy."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from noisewise.cli import app

COMMANDS = {
    "demo",
    "study",
    "study new",
    "study check",
    "study radius",
    "study show",
    "study spread",
    "study project",
    "ledger",
    "ledger create",
    "ledger show",
    "ledger verify",
    "ledger raise",
    "release",
    "fit",
    "predict",
    "join",
    "join enrol",
    "join send",
    "join status",
    "round",
    "round init",
    "round invite",
    "round serve",
    "round open",
    "round status",
    "round collect",
    "round abort",
    "round verify",
    "node",
    "node init",
    "node serve",
    "node card",
    "node audit",
    "node keys",
    "node keys show",
    "node keys rotate",
}


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, child in getattr(command, "commands", {}).items():
        yield (*path, name)
        yield from walk(child, (*path, name))


def test_the_commands_are_the_documented_ones() -> None:
    assert {" ".join(path) for path in walk(typer.main.get_command(app))} == COMMANDS


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_has_an_example_command_line(run: Any, command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"noisewise {command}" in result.stdout


GROUPS = {"study", "ledger", "join", "round", "node", "node keys"}
SERVERS = {"round serve", "node serve"}


@pytest.mark.parametrize("command", sorted(COMMANDS - GROUPS - SERVERS - {"study new"}))
def test_every_command_with_a_result_has_json(run: Any, command: str) -> None:
    assert "--json" in run(*command.split(), "--help").stdout


def test_the_overview_gives_the_exit_codes_and_an_example(run: Any) -> None:
    result = run("--help")
    assert "Exit codes" in result.stdout
    assert "noisewise demo" in result.stdout


def test_version_is_the_package_version(run: Any) -> None:
    import noisewise

    assert run("--version").stdout == f"noisewise {noisewise.__version__}\n"


def test_a_wrong_option_is_refused_with_code_2(run: Any) -> None:
    result = run("study", "check", "study.toml", "--nonsense")
    assert result.exit_code == 2
    assert "--nonsense" in result.stderr


def test_help_imports_no_numerical_package() -> None:
    code = (
        "import sys; from noisewise.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'pyarrow', 'opendp', 'dp_accounting', 'arviz', 'matplotlib', 'pandas'}\n"
        "sys.exit(','.join(sorted(heavy & set(sys.modules))) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
