"""Real ``noisewise node serve`` processes on loopback: killed, restarted, starved of disk, spoken to over TLS.

What was acknowledged is there afterwards, whatever happened; what was refused says why; no secret is in any log.
"""

import json
import os
import resource
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest

from noisewise.compute.keyring import Validity
from noisewise.protocol.envelope import Envelope
from noisewise.protocol.pooled import pool, read_sum
from noisewise.protocol.task import Task
from tests.protocol.conftest import Site, draft

SECONDS = 60  # after which a process that should have started or ended is taken for hung

SERVE = "import sys; from noisewise.cli import main; sys.argv[0] = 'noisewise'; {before}; main()"


class Served:
    """A node's process. Its log is a file; its port is in the first line."""

    def __init__(self, folder: Path, *options: str, before: str = "pass", limit: int = 0) -> None:
        self.log = folder.with_name(f"{folder.name}-{time.monotonic_ns()}.log")
        command = [sys.executable, "-c", SERVE.format(before=before), "node", "serve", str(folder), "--port", "0"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *options],
                stdout=log,
                stderr=log,
                preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None,
            )
        scheme = "https" if "--tls-key" in options else "http"
        self.url = f"{scheme}://127.0.0.1:{self._port()}"

    def _port(self) -> int:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for line in self.lines():
                if line.get("event") == "listening":
                    return line["port"]
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        raise AssertionError(f"the node did not start:\n{self.log.read_text()}")

    def lines(self) -> list[dict]:
        whole = self.log.read_text().rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in whole if line.startswith("{")]

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(SECONDS)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    running: list[Served] = []

    def start(folder: Path, *options: str, **more) -> Served:
        running.append(Served(folder, *options, **more))
        return running[-1]

    yield start
    for served in running:
        served.stop(signal.SIGKILL)


def put(served: Served, path: str, body) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    return httpx.put(
        served.url + path, content=content, headers={"content-type": kind}, timeout=SECONDS, trust_env=False
    )


def get(served: Served, path: str) -> httpx.Response:
    return httpx.get(served.url + path, timeout=SECONDS, trust_env=False)


def opened(served: Served, site: Site) -> str:
    at = f"/rounds/{site.parties.task.id}"
    assert put(served, at, site.parties.task.signed.to_dict()).status_code == 201
    return at


def unlimited(site: Site) -> None:
    for folder in site.folders:
        file = folder.path / "node.toml"
        file.write_text(file.read_text().replace("_per_second = 200.0", "_per_second = 0"))


@pytest.mark.slow
def test_a_killed_node_has_every_envelope_that_it_acknowledged(make_site, serve) -> None:
    """SIGKILL again and again while four senders upload; then every 201 or 200 is found in the store."""
    site = make_site(holders=300)
    unlimited(site)
    folder = site.folders[0].path
    values = np.zeros(site.parties.task.length, dtype=np.int64)
    sent = [site.parties.contribute(holder, values)[0] for holder in range(300)]
    served = serve(folder)
    at = opened(served, site)
    acknowledged: dict[str, bytes] = {}
    left = list(range(300))

    def upload(url: str) -> None:
        with httpx.Client(trust_env=False, timeout=SECONDS) as client:
            while left:
                holder = left.pop()
                key = site.parties.holders[holder].key
                try:
                    answer = client.put(f"{url}{at}/envelopes/{key}", content=sent[holder])
                except httpx.TransportError:
                    left.append(holder)
                    return
                assert answer.status_code in (200, 201)
                acknowledged[key] = sent[holder]

    for part in range(1, 5):
        senders = [threading.Thread(target=upload, args=(served.url,)) for _ in range(4)]
        for sender in senders:
            sender.start()
        while len(acknowledged) < 60 * part and any(sender.is_alive() for sender in senders):
            time.sleep(0.002)
        served.stop(signal.SIGKILL)
        for sender in senders:
            sender.join(SECONDS)
        assert len(acknowledged) >= 60 * part
        served = serve(folder)
        assert set(acknowledged) <= set(get(served, at).json()["holders"])
    served.stop()
    with sqlite3.connect(folder / "node.sqlite") as connection:
        stored = dict(connection.execute("SELECT holder, content FROM envelopes"))
    assert {key: stored[key] for key in acknowledged} == acknowledged


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_round_survives_a_restart_after_every_step(make_site, serve, number: int) -> None:
    site = make_site(holders=4)
    nodes = [serve(folder.path) for folder in site.folders]

    def restart() -> None:
        codes = [node.stop(number) for node in nodes]
        assert codes == [0 if number == signal.SIGTERM else -signal.SIGKILL] * 2
        nodes[:] = [serve(folder.path) for folder in site.folders]

    for node in nodes:
        at = opened(node, site)
    restart()
    for holder, identity in enumerate(site.parties.holders):
        for node, content in zip(nodes, site.envelopes(holder), strict=True):
            assert put(node, f"{at}/envelopes/{identity.key}", content).status_code == 201
    restart()
    manifests = [put(node, f"{at}/freeze", site.word("freeze")).json() for node in nodes]
    restart()
    assert [get(node, f"{at}/manifest").json() for node in nodes] == manifests
    sums = [put(node, f"{at}/manifests", {"manifests": manifests}).json() for node in nodes]
    restart()
    assert [get(node, f"{at}/sum").json() for node in nodes] == sums
    read = [read_sum(raw, site.parties.task)[1] for raw in sums]
    agreed = frozenset((holder, bundle) for holder, bundle in manifests[0]["body"]["held"])
    release = pool(site.parties.task, agreed, read)
    assert release.values[:4] == (1, 1, 1, 1)
    assert put(nodes[0], f"{at}/release", release.to_dict()).json()["phase"] == "released"
    restart()
    assert get(nodes[0], at).json()["phase"] == "released"
    assert get(nodes[1], at).json()["phase"] == "summed"


def test_a_node_killed_between_agreeing_and_summing_sums_when_it_is_back(make_site, serve) -> None:
    """The process kills itself where the sum would begin; after the restart the sum is there unasked."""
    site = make_site(holders=4)
    dying = "import os; import noisewise.compute.node as n; n.total_of = lambda *_: os.kill(os.getpid(), 9)"
    nodes = [serve(site.folders[0].path, before=dying), serve(site.folders[1].path)]
    for node in nodes:
        at = opened(node, site)
    for holder, identity in enumerate(site.parties.holders):
        for node, content in zip(nodes, site.envelopes(holder), strict=True):
            put(node, f"{at}/envelopes/{identity.key}", content)
    manifests = [put(node, f"{at}/freeze", site.word("freeze")).json() for node in nodes]
    with pytest.raises(httpx.TransportError):
        put(nodes[0], f"{at}/manifests", {"manifests": manifests})
    assert nodes[0].process.wait(SECONDS) == -signal.SIGKILL
    again = serve(site.folders[0].path)
    end = time.monotonic() + SECONDS
    while (answer := get(again, f"{at}/sum")).status_code != 200 and time.monotonic() < end:
        time.sleep(0.05)
    sums = [answer.json(), put(nodes[1], f"{at}/manifests", {"manifests": manifests}).json()]
    assert put(again, f"{at}/manifests", {"manifests": manifests}).json() == sums[0]
    agreed = frozenset((holder, bundle) for holder, bundle in manifests[0]["body"]["held"])
    release = pool(site.parties.task, agreed, [read_sum(raw, site.parties.task)[1] for raw in sums])
    assert release.values[:4] == (1, 1, 1, 1)


def test_a_stopping_node_ends_the_request_that_it_has_begun(make_site, serve) -> None:
    """Half of an envelope, SIGTERM, the other half: the answer is 201, the exit code 0, the envelope on disk."""
    site = make_site()
    served = serve(site.folders[0].path)
    at = opened(served, site)
    content = site.envelopes(0)[0]
    key = site.parties.holders[0].key
    port = int(served.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        head = f"PUT {at}/envelopes/{key} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
        connection.sendall(head.encode() + content[:100])
        time.sleep(0.5)
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        connection.sendall(content[100:])
        assert connection.recv(100).startswith(b"HTTP/1.1 201")
    assert served.process.wait(SECONDS) == 0
    assert served.lines()[-1]["event"] == "stopped"
    with sqlite3.connect(site.folders[0].path / "node.sqlite") as connection:
        assert connection.execute("SELECT holder FROM envelopes").fetchall() == [(key,)]


def test_a_full_disk_refuses_and_loses_nothing(make_site, serve) -> None:
    """A process whose files may not grow beyond 500 kB: at some point 503 or 507; what was acknowledged stays."""
    site = make_site(holders=200, features=22)
    unlimited(site)
    folder = site.folders[0].path
    served = serve(folder, limit=500_000)
    at = opened(served, site)
    values = np.zeros(site.parties.task.length, dtype=np.int64)
    answers = {}
    for holder in range(200):
        content = site.parties.contribute(holder, values)[0]
        key = site.parties.holders[holder].key
        answer = put(served, f"{at}/envelopes/{key}", content)
        answers[key] = answer.status_code
        if answer.status_code != 201:
            assert answer.status_code in (503, 507), answer.text
            assert "The store can't be used" in answer.json()["error"]
            assert answer.headers["retry-after"]
            break
    acknowledged = {key for key, status in answers.items() if status == 201}
    assert 10 < len(acknowledged) < 200
    assert acknowledged <= set(get(served, at).json()["holders"])
    served.stop(signal.SIGKILL)
    again = serve(folder)
    assert acknowledged <= set(get(again, at).json()["holders"])
    assert put(again, f"{at}/envelopes/{key}", content).status_code in (200, 201)


def test_a_database_at_its_size_refuses_with_507(make_net) -> None:
    net = make_net(holders=200, features=22)
    net.open()
    with net.nodes[0].store._write.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 60")
    values = np.zeros(net.task.length, dtype=np.int64)
    statuses = []
    while 507 not in statuses:
        holder = len(statuses)
        answer = net.send(0, holder, net.site.parties.contribute(holder, values)[0])
        statuses.append(answer.status_code)
    assert "the disk is full" in answer.json()["error"]
    assert statuses[:-1] == [201] * (len(statuses) - 1)
    assert len(net.nodes[0].store.holdings(net.task.id)) == len(statuses) - 1
    with net.nodes[0].store._write.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 100000")
    assert net.send(0, holder, net.site.parties.contribute(holder, values)[0]).status_code == 201


def test_no_secret_is_in_logs_audit_or_database(make_site, serve) -> None:
    """Shares, seeds and private keys, as bytes and in digits, in nothing that a node writes but its key files."""
    site = make_site(holders=4, features=22)
    nodes = [serve(folder.path) for folder in site.folders]
    secrets = [identity._secret for identity in (*site.parties.nodes, *site.parties.sealing)]
    for node in nodes:
        at = opened(node, site)
    for holder, identity in enumerate(site.parties.holders):
        for place, (node, content) in enumerate(zip(nodes, site.envelopes(holder), strict=True)):
            share = Envelope.read(content).open(site.parties.sealing[place], site.parties.task.length)
            secrets.append(share[1:17])
            assert put(node, f"{at}/envelopes/{identity.key}", content).status_code == 201
            assert put(node, f"{at}/envelopes/{identity.key}", content[:-1] + b"x").status_code == 403
    put(nodes[0], f"{at}/freeze", {"kind": "freeze", "body": {}, "signer": "0" * 64, "signature": secrets[0].hex()})
    for node in nodes:
        assert node.stop() == 0
    written = [node.log.read_bytes() for node in nodes]
    for folder in site.folders:
        written += [file.read_bytes() for file in folder.path.iterdir() if file.is_file() and file.suffix != ".key"]
    for secret in secrets:
        for form in (secret, secret.hex().encode(), secret.hex().upper().encode(), repr(secret)[2:-1].encode()):
            assert not any(form in content for content in written)
    events = {line["event"] for node in nodes for line in node.lines()}
    assert events == {"listening", "request", "stopped"}
    refused = [line for line in nodes[0].lines() if line.get("status") == 403 and "envelopes" in line["route"]]
    assert refused
    assert all("signature is not that of key" in line["refused"] and line["holder"] for line in refused)


@pytest.mark.parametrize("name", ["signing.key", "sealing/0001.key", "sealing/0002.key"])
def test_a_key_that_others_may_read_is_refused(make_site, name: str) -> None:
    folder = make_site().folders[0].path
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in folder.rglob("*.key"))
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / name).chmod(0o644)
    done = noisewise("node", "serve", str(folder), "--port", "0")
    assert done.returncode == 2
    assert "others may read this" in done.stderr
    assert "chmod 600" in done.stderr


def noisewise(*words: str) -> subprocess.CompletedProcess:
    code = SERVE.format(before="pass")
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=SECONDS)


def test_one_process_serves_a_folder(make_site, serve) -> None:
    folder = make_site().folders[0].path
    first = serve(folder)
    done = noisewise("node", "serve", str(folder), "--port", "0")
    assert (done.returncode, "another process serves this node" in done.stderr) == (2, True)
    port = first.url.rpartition(":")[2]
    first.stop(signal.SIGKILL)
    with socket.create_server(("127.0.0.1", int(port))):
        done = noisewise("node", "serve", str(folder), "--port", port)
        assert (done.returncode, "can't be listened on" in done.stderr) == (2, True)


@pytest.mark.slow
def test_rotation_keeps_old_rounds_working(make_site, serve) -> None:
    """While the node runs: the card changes at once, the old round goes on, a new round needs the new key."""
    site = make_site(holders=4)
    served = serve(site.folders[0].path)
    at = opened(served, site)
    old = get(served, "/card").json()["body"]["sealing_key"]
    shown = json.loads(noisewise("node", "keys", "show", str(site.folders[0].path), "--json").stdout)["keys"]
    assert [key["state"] for key in shown] == ["active", "pending"]
    rotated = json.loads(noisewise("node", "keys", "rotate", str(site.folders[0].path), "--json").stdout)
    assert rotated["sealing_key"] == shown[1]["sealing_key"]
    assert get(served, "/card").json()["body"]["sealing_key"] == rotated["sealing_key"] != old
    key = site.parties.holders[0].key
    assert put(served, f"{at}/envelopes/{key}", site.envelopes(0)[0]).status_code == 201
    served.stop(signal.SIGKILL)
    served = serve(site.folders[0].path)
    key = site.parties.holders[1].key
    assert put(served, f"{at}/envelopes/{key}", site.envelopes(1)[0]).status_code == 201
    late, _ = draft(site.parties.coordinator, list(site.parties.task.nodes), 4)
    answer = put(served, f"/rounds/{late.id}", late.signed.to_dict())
    assert (answer.status_code, "has expired; fetch its card again" in answer.json()["error"]) == (400, True)
    fresh, _ = draft(site.parties.coordinator, [folder.card() for folder in site.folders], 4)
    assert isinstance(fresh, Task)
    assert put(served, f"/rounds/{fresh.id}", fresh.signed.to_dict()).status_code == 201
    site.folders[0].keyring.refresh()
    states = [entry.validity for entry in site.folders[0].keyring.entries]
    assert states == [Validity.EXPIRED, Validity.ACTIVE, Validity.PENDING]


@pytest.mark.slow
def test_a_changed_audit_log_shows(make_site, serve) -> None:
    site = make_site(holders=4)
    folder = site.folders[0].path
    served = serve(folder)
    at = opened(served, site)
    for holder in range(3):
        put(served, f"{at}/envelopes/{site.parties.holders[holder].key}", site.envelopes(holder)[0])
    told = json.loads(noisewise("node", "audit", str(folder), "--json").stdout)  # beside the running node
    assert [line["kind"] for line in told["newest"]] == ["open", "envelope", "envelope", "envelope"]
    assert "the chain is whole (4 entries)" in noisewise("node", "audit", str(folder), "--head", told["head"]).stdout
    served.stop()
    original = (folder / "node.sqlite").read_bytes()
    for statement, words in (
        ("UPDATE audit SET payload = replace(payload, 'holder', 'folder') WHERE position = 2", "entry 2 was changed"),
        ("DELETE FROM audit WHERE position = 3", "entry 3 is missing"),
        ("UPDATE audit SET kind = 'abort' WHERE position = 4", "entry 4 was changed"),
        ("DELETE FROM audit WHERE position = 4", "which it had once"),
    ):
        (folder / "node.sqlite").write_bytes(original)
        connection = sqlite3.connect(folder / "node.sqlite")
        with connection:
            connection.execute(statement)
        connection.close()
        done = noisewise("node", "audit", str(folder), "--head", told["head"])
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_tls_with_a_certificate_of_ones_own(make_site, serve, tmp_path: Path) -> None:
    site = make_site()
    certificate, key = self_signed(tmp_path)
    served = serve(site.folders[0].path, "--tls-certificate", str(certificate), "--tls-key", str(key))
    context = ssl.create_default_context(cafile=str(certificate))
    assert httpx.get(f"{served.url}/healthz", verify=context, trust_env=False).json() == {"status": "ok"}
    with pytest.raises(httpx.ConnectError):  # nobody vouches for it
        httpx.get(f"{served.url}/healthz", trust_env=False)
    with pytest.raises(httpx.TransportError):  # unencrypted
        httpx.get(served.url.replace("https", "http") + "/healthz", trust_env=False)
    folder = str(site.folders[1].path)
    for options, words in (
        (["--tls-certificate", str(certificate)], "needs both a certificate and its key"),
        (["--tls-certificate", str(certificate), "--tls-key", str(tmp_path / "none")], "there is no such file"),
        (["--tls-certificate", str(certificate), "--tls-key", str(certificate)], "no certificate and its key"),
    ):
        done = noisewise("node", "serve", folder, "--port", "0", *options)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(private, hashes.SHA256())
    )
    certificate, key = folder / "node.pem", folder / "node.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(private.private_bytes(*pem))
    return certificate, key


def test_forwarded_addresses_are_believed_only_of_the_proxy_that_was_named(make_site, serve) -> None:
    site = make_site()
    for options, expected in (([], "127.0.0.1"), (["--behind-proxy", "10.0.0.1"], "127.0.0.1")):
        assert _client_seen(serve(site.folders[0].path, *options)) == expected
    assert _client_seen(serve(site.folders[0].path, "--behind-proxy", "127.0.0.1")) == "192.0.2.7"


def _client_seen(served: Served) -> str:
    httpx.get(f"{served.url}/card", headers={"x-forwarded-for": "192.0.2.7"}, trust_env=False)
    assert served.stop() == 0
    return next(line["client"] for line in served.lines() if line.get("route") == "/card")


def test_silent_and_endless_connections_are_closed(make_site, serve) -> None:
    """With a patience of one second: connections that say nothing, or never end their head, do not stay."""
    site = make_site()
    served = serve(site.folders[0].path, before="import noisewise.compute.service as s; s.PATIENCE = 1")
    port = int(served.url.rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port), timeout=SECONDS) for _ in range(50)]
    for connection in silent[::2]:
        connection.sendall(b"GET /card HTTP/1.1\r\nhost: x\r\n")
    assert get(served, "/healthz").status_code == 200
    for connection in silent:
        assert connection.recv(100) == b""
        connection.close()


def test_garbage_on_the_wire_is_answered_with_400(make_site, serve) -> None:
    served = serve(make_site().folders[0].path)
    port = int(served.url.rpartition(":")[2])
    for garbage in (
        os.urandom(1000),
        b"GET /card HTTP/1.1\r\nno header\r\n",
        b"PUT /card HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(garbage + b"\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 400")
    assert get(served, "/healthz").status_code == 200
    assert not [line for line in served.lines() if line["level"] == "error"]
