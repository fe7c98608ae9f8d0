"""A node on PostgreSQL: a private cluster of the test's own, in a folder of its own, on a socket of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from noisewise.compute import audit
from noisewise.compute.reading import Reader
from noisewise.errors import RoundError
from noisewise.protocol.pooled import pool, read_sum

USER = "noisewise"


def _program(name: str) -> str | None:
    """On the path, or where Debian keeps it."""
    found = shutil.which(name)
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return found or (str(places[-1]) if places else None)


class Cluster:
    """A server that listens on a Unix socket alone. It refuses to run as root, so root hands it to another user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._as: list[str] = []
        if os.geteuid() == 0:
            self._as = ["runuser", "-u", "postgres", "--"]
            shutil.chown(folder, "postgres")
        self._run("initdb", "-D", f"{folder}/data", "-U", USER, "--auth=trust", "--no-sync")

    def start(self) -> None:
        options = f"-c listen_addresses= -k {self.folder}"
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-o", options, "-l", f"{self.folder}/log", "-w", "start")

    def stop(self, mode: str) -> None:
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-m", mode, "-w", "stop")

    def database(self, name: str) -> str:
        """The address of a new, empty database."""
        self._run("createdb", "-h", str(self.folder), "-U", USER, name)
        return f"postgresql://{USER}@/{name}?host={self.folder}"

    def _run(self, name: str, *words: str) -> None:
        program = _program(name)
        assert program
        # a server that was started keeps what it inherits, so nothing of it may be a pipe that is waited for
        with (self.folder.parent / f"{self.folder.name}.out").open("a+") as out:
            done = subprocess.run([*self._as, program, *words], stdout=out, stderr=out, cwd="/", timeout=120)
            out.seek(0)
            assert done.returncode == 0, out.read()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if not all(_program(name) for name in ("initdb", "pg_ctl", "createdb")):
        pytest.skip("PostgreSQL's server programs (initdb, pg_ctl) are not installed")
    if os.geteuid() == 0 and not shutil.which("runuser"):
        pytest.skip("PostgreSQL does not run as root, and there is no runuser to hand it to another user")
    with tempfile.TemporaryDirectory(prefix="nwpg") as outer:  # a socket's path has to be short
        os.chmod(outer, 0o755)
        folder = Path(outer, "pg")
        folder.mkdir(mode=0o700)
        made = Cluster(folder)
        made.start()
        yield made
        made.stop("immediate")


def test_a_round_on_postgresql(make_net, cluster: Cluster) -> None:
    addresses = [cluster.database(f"round_{k}") for k in range(2)]
    net = make_net(databases=addresses, holders=5)
    net.open()
    assert net.clients[0].put(net.at, json=net.task.signed.to_dict()).status_code == 200
    net.send_all(4)
    first = net.site.envelopes(4)
    assert net.send(0, 4, first[0]).status_code == 201
    assert net.send(0, 4, first[0]).status_code == 200
    assert net.send(0, 4, net.site.envelopes(4)[0]).status_code == 409
    manifests = net.freeze()  # the fifth holder reached one node only
    assert net.send(1, 4, first[1]).status_code == 410
    sums = [read_sum(answer.json(), net.task)[1] for answer in net.agree(manifests)]
    agreed = frozenset((holder, bundle) for holder, bundle in manifests[1]["body"]["held"])
    release = pool(net.task, agreed, sums)
    assert release.values[:5] == (1, 1, 1, 1, 0)
    assert net.clients[0].put(f"{net.at}/release", json=release.to_dict()).json()["phase"] == "released"
    kinds = [entry.kind for entry in audit.entries(Reader.of(addresses[0]))]
    assert kinds == ["open", *["envelope"] * 5, "frozen", "agreed", "summed", "released"]


def test_a_database_that_is_away_is_503_and_comes_back(make_net, cluster: Cluster) -> None:
    """The server dies without a shutdown of its own: what was acknowledged before is there after its recovery."""
    net = make_net(databases=[cluster.database(f"away_{k}") for k in range(2)])
    net.open()
    net.send_all(2)
    cluster.stop("immediate")
    content = net.site.envelopes(2)[0]
    try:
        assert net.clients[0].get("/healthz").status_code == 503
        answer = net.send(0, 2, content)
        assert answer.status_code == 503
        assert "The store can't be used" in answer.json()["error"]
        assert net.clients[0].get(net.at).status_code == 503
    finally:
        cluster.start()
    assert net.clients[0].get("/healthz").status_code == 200
    assert net.send(0, 2, content).status_code == 201
    assert len(net.clients[0].get(net.at).json()["holders"]) == 3


def test_a_database_belongs_to_one_node(make_site, cluster: Cluster) -> None:
    address = cluster.database("shared")
    first, second = make_site().folders
    first.store(address).close()
    with pytest.raises(RoundError, match="give every node a database of its own"):
        second.store(address)
    with pytest.raises(RoundError, match="holds no node's store"):
        Reader.of(cluster.database("empty"))


@pytest.mark.parametrize(
    ("address", "words"), [("nonsense", "not readable"), ("mysql://a@b/c", "sqlite and postgresql are")]
)
def test_addresses_that_are_no_database(make_site, address: str, words: str) -> None:
    with pytest.raises(RoundError, match=words):
        make_site().folders[0].store(address)
