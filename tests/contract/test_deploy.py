"""The files in deploy/ agree with the command line and with one another."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from noisewise.cli import app
from noisewise.compute.folder import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = (DEPLOY / "noisewise-node.service").read_text(encoding="utf-8")
NGINX = (DEPLOY / "nginx-node.conf").read_text(encoding="utf-8")


def started() -> dict[str, object]:
    """The options with which the unit starts the node, as the command line reads them."""
    found = re.search(r"^ExecStart=\S*/noisewise (.*)$", UNIT, re.MULTILINE)
    assert found
    command, words = get_command(app), shlex.split(found[1])
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    return dict(command.make_context("serve", words).params)


def test_the_unit_starts_a_node_for_the_proxy_that_nginx_is() -> None:
    options = started()
    assert f"proxy_pass http://{options['host']}:{options['port']};" in NGINX
    assert options["behind_proxy"] == "127.0.0.1"


def test_nginx_replaces_what_senders_claim_to_be() -> None:
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in NGINX
    assert "$proxy_add_x_forwarded_for" not in NGINX  # it would append to what the sender wrote


def test_nginx_lets_the_largest_task_pass(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(f'name = "n"\nurl = "https://n"\ncoordinators = ["{"0" * 64}"]\n')
    allowed = re.search(r"client_max_body_size (\d+)m;", NGINX)
    assert allowed
    assert int(allowed[1]) << 20 >= Settings.load(tmp_path / "node.toml").largest_task


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "noisewise-node.service"
    # neither the user nor the command is on this machine
    standing_in = UNIT.replace("/opt/noisewise/bin/noisewise", shutil.which("true") or "")
    unit.write_text(standing_in.replace("=noisewise\n", "=root\n"))
    read = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert read.returncode == 0, read.stderr
    assert "noisewise-node.service" not in read.stderr, read.stderr
