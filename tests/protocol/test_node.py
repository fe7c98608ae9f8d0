"""A node's logic over HTTP, in one process: every answer of every route, through real stores."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from starlette.testclient import TestClient

from noisewise.compute.limits import Rate
from noisewise.compute.node import Node
from noisewise.compute.node_http import application
from noisewise.compute.web import Limits
from noisewise.protocol.pooled import pool, read_sum

OPEN = Limits(address=Rate(0, 0))
OCTETS = {"content-type": "application/octet-stream"}


class Clock:
    """A clock that tests can turn."""

    def __init__(self) -> None:
        self.skew = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.skew


class Net:
    """All nodes of a site behind their applications."""

    def __init__(self, site, clock: Clock, limits: Limits = OPEN) -> None:
        self.site, self.clock = site, clock
        self.task = site.parties.task
        self.at = f"/rounds/{self.task.id}"
        self.nodes = [Node(folder, folder.store(clock=clock), clock) for folder in site.folders]
        self.clients = [TestClient(application(node, limits), raise_server_exceptions=False) for node in self.nodes]
        for client in self.clients:
            client.__enter__()

    def close(self) -> None:
        for client in self.clients:
            client.__exit__(None, None, None)

    def open(self) -> None:
        for client in self.clients:
            assert client.put(self.at, json=self.task.signed.to_dict()).status_code == 201

    def send(self, node: int, holder: int, content: bytes):
        key = self.site.parties.holders[holder].key
        return self.clients[node].put(f"{self.at}/envelopes/{key}", content=content, headers=OCTETS)

    def send_all(self, holders: int) -> None:
        for holder in range(holders):
            for node, content in enumerate(self.site.envelopes(holder)):
                assert self.send(node, holder, content).status_code == 201

    def freeze(self) -> list[dict]:
        answers = [client.put(f"{self.at}/freeze", json=self.site.word("freeze")) for client in self.clients]
        assert [answer.status_code for answer in answers] == [200] * len(answers)
        return [answer.json() for answer in answers]

    def agree(self, manifests: list[dict]):
        return [client.put(f"{self.at}/manifests", json={"manifests": manifests}) for client in self.clients]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_net(make_site, clock) -> Iterator[Callable[..., Net]]:
    nets: list[Net] = []

    def make(limits: Limits = OPEN, **options) -> Net:
        nets.append(Net(make_site(**options), clock, limits))
        return nets[-1]

    yield make
    for net in nets:
        net.close()


@pytest.fixture
def net(make_net) -> Net:
    return make_net()


@pytest.mark.parametrize("features", [2, 22])  # whole shares, and seeds
def test_a_round_from_task_to_release(make_net, features: int) -> None:
    net = make_net(features=features, holders=5)
    net.open()
    net.send_all(4)
    status = net.clients[0].get(net.at).json()
    assert status["phase"] == "open"
    assert status["needed"] == 4
    assert set(status["holders"]) == {holder.key for holder in net.site.parties.holders[:4]}
    manifests = net.freeze()
    answers = net.agree(manifests)
    sums = [read_sum(answer.json(), net.task)[1] for answer in answers]
    agreed = frozenset((holder, bundle) for holder, bundle in manifests[0]["body"]["held"])
    release = pool(net.task, agreed, sums)
    assert release.values[:5] == (1, 1, 1, 1, 0)  # each of four once, the fifth not at all
    assert not np.any(release.values[5:])
    for client in net.clients:
        answer = client.put(f"{net.at}/release", json=release.to_dict())
        assert (answer.status_code, answer.json()["phase"]) == (200, "released")
        assert client.put(f"{net.at}/release", json=release.to_dict()).status_code == 200
    # what was sealed is gone, who had sent it is not
    assert not list(net.nodes[0].store.contents(net.task.id, 10))
    assert len(net.clients[0].get(net.at).json()["holders"]) == 4
