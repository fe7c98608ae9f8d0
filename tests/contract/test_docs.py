"""The documents tell the truth: their code runs, their commands exist, their links lead somewhere.

Every page is one story, told in an empty folder. Its fenced blocks are taken in order:

- ``python`` runs, all blocks of a page in one namespace;
- ``console`` and ``bash``: every line ``$ noisewise ...`` runs and ends well (in ``bash`` the ``$`` may be missing);
- any block with ``file=NAME`` behind its language is written to that file first;
- ``no-run`` behind the language: Python is compiled only, commands are looked up only.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if page.exists()]
MADE = {"__pycache__", "build", "demo-output", "demo-secure-output", "dist", "site"}


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    @property
    def runs(self) -> bool:
        return "no-run" not in self.marks

    @property
    def file(self) -> str | None:
        return next((mark.removeprefix("file=") for mark in self.marks if mark.startswith("file=")), None)

    @property
    def commands(self) -> list[str]:
        """The calls of noisewise in a block of shell commands, continued lines joined."""
        if self.language not in ("console", "bash", "sh", "shell"):
            return []
        prompt = r"\$ " if self.language == "console" else r"(?:\$ )?"
        joined = re.sub(r"\\\n\s*(?:> )?", " ", self.text)
        return re.findall(rf"^{prompt}(noisewise(?: .*)?)$", joined, re.MULTILINE)

    @property
    def python(self) -> bool:
        return self.language in ("python", "py")


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    fence = r"^(?P<indent> *)(?P<fence>```+|~~~+) *(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)(?P=fence)`*~* *$"
    for match in re.finditer(fence, text, re.MULTILINE | re.DOTALL):
        language, *marks = match["info"].split() or [""]
        body = re.sub(rf"^{match['indent']}", "", match["body"], flags=re.MULTILINE)
        yield Block(text.count("\n", 0, match.start("body")), language, tuple(marks), body)


def prose(page: Path) -> str:
    """The page without its code, where brackets mean something else."""
    text = re.sub(r"^ *(```+|~~~+).*?^ *\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(`+).+?\1", "", text)


def with_code(pages: list[Path]) -> list[Path]:
    return [page for page in pages if any(block.python or block.commands or block.file for block in blocks(page))]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def files() -> Iterator[Path]:
    """Every file that people write in this repository."""
    for folder, inner, names in os.walk(ROOT):
        inner[:] = sorted(name for name in inner if name == ".ci" or (name[0] != "." and name not in MADE))
        for name in names:
            path = Path(folder, name)
            if path.suffix in (".md", ".py", ".toml", ".txt", ".yml", ".json", ".sh", ".ipynb", ""):
                yield path


MARKDOWN = [path for path in files() if path.suffix == ".md"]


def command_line() -> Any:
    import typer.main

    from noisewise.cli import app

    return typer.main.get_command(app)


def commands(node: Any, path: tuple[str, ...] = ("noisewise",)) -> Iterator[tuple[str, Any]]:
    """Every group and every command, with the words that call it."""
    yield " ".join(path), node
    for name, child in getattr(node, "commands", {}).items():
        yield from commands(child, (*path, name))


def look_up(call: str) -> None:
    """Raise unless the call names a command and options that there are."""
    node, words = command_line(), shlex.split(call, comments=True)[1:]
    while words and words[0] in getattr(node, "commands", {}):
        node = node.commands[words.pop(0)]
    options = {"--help", *(name for parameter in node.params for name in (*parameter.opts, *parameter.secondary_opts))}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    assert not hasattr(node, "commands") or (words and words[0] in options), f"{call!r} is no command"
    assert set(given) <= options, f"{call!r} has options that there are not: {sorted(set(given) - options)}"


def run(call: str, where: str) -> None:
    search = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", call],
        env={**os.environ, "PATH": search},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{where}: {call!r} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", with_code(PAGES), ids=relative)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        where = f"{relative(page)}:{block.line}"
        if block.file:
            target = (tmp_path / block.file).resolve()
            assert target.is_relative_to(tmp_path.resolve()), f"{where}: {block.file} leaves the folder"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        if block.python:
            # empty lines in front make a traceback show the line of the page
            code = compile("\n" * block.line + block.text, str(page), "exec")
            if block.runs:
                exec(code, namespace)
        for call in block.commands:
            if block.runs:
                run(call, where)
            else:
                look_up(call)


def test_every_command_shows_an_example_and_is_documented() -> None:
    text = re.sub(r"\s+", " ", " ".join(page.read_text(encoding="utf-8") for page in PAGES))
    for call, node in commands(command_line()):
        assert "Example" in f"{node.help} {node.epilog}", f"'{call} --help' shows no example"
        if not hasattr(node, "commands"):
            assert re.search(rf"{call}\b", text), f"'{call}' is in neither README.md nor docs/"


@pytest.mark.parametrize("page", MARKDOWN, ids=relative)
def test_relative_links_lead_to_files(page: Path) -> None:
    text = prose(page)
    targets = re.findall(r"\]\(\s*<?([^)\s>]+)", text) + re.findall(r"^ *\[[^\]]+\]: *(\S+)", text, re.MULTILINE)
    for target in targets:
        if re.match(r"[a-z][a-z0-9+.-]*:", target) or target.startswith("#"):
            continue
        assert not target.startswith("/"), f"{target} depends on where the page is served"
        assert (page.parent / target.partition("#")[0]).exists(), f"{target} leads nowhere"


def test_make_targets_that_pages_name_are_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in MARKDOWN:
        named = re.findall(r"(?:`|^\$ )make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(named) <= targets, f"{relative(page)} names make targets that there are not"


def test_no_file_speaks_of_one_machine() -> None:
    paths = r"(?<![\w.~])/(?:work|root|home|Users|tmp)/"
    hosts = r"pypi\.org|pythonhosted\.|npmjs\.|crates\.io|anaconda\.(?:org|com)|docker\.io|ghcr\.io|artifactor[y]"
    options = r"--(?:index-url|extra-index-url|find-links|trusted-host)"
    pattern = re.compile("|".join((paths, hosts, options)))
    found = {
        f"{relative(path)}: {match[0]}"
        for path in files()
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    }
    assert not found


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert lines
    assert not [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)]


def test_decisions_are_numbered_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    pages = sorted(page.name for page in folder.glob("*.md") if page.name != "index.md")
    assert pages
    assert not [name for name in pages if not re.fullmatch(r"\d{4}-[a-z0-9]+(-[a-z0-9]+)*\.md", name)]
    assert [int(name[:4]) for name in pages] == list(range(1, len(pages) + 1))
    lists = [page for page in (folder / "index.md", ROOT / "mkdocs.yml") if page.exists()]
    listed = "\n".join(page.read_text(encoding="utf-8") for page in lists)
    assert not [name for name in pages if name not in listed]


def test_the_site_builds(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
