"""A node's answers over HTTP, in one process and on real stores: every route, and everything it refuses."""

import asyncio
import copy
import json
import re
from typing import get_args

import numpy as np
import pytest

from noisewise.compute.limits import Buckets, Rate, network
from noisewise.compute.node_http import application
from noisewise.compute.node_openapi import DESCRIPTION
from noisewise.compute.web import Limits
from noisewise.protocol import round as rounds
from noisewise.protocol.envelope import largest, seal
from noisewise.protocol.keys import Identity, SealingKey
from noisewise.protocol.pooled import pool, read_sum, sign_manifest
from noisewise.protocol.shares import split
from noisewise.protocol.signed import Kind, Signed
from noisewise.protocol.task import Card, Task


def error(answer, status: int, words: str) -> None:
    """The answer is this refusal, in these words, as JSON, and the description declares it."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error", "kind"}
    assert re.search(words, body["error"]), body["error"]
    assert "Traceback" not in answer.text


def agreed_of(manifests: list[dict]) -> rounds.Holdings:
    sets = [frozenset((holder, bundle) for holder, bundle in manifest["body"]["held"]) for manifest in manifests]
    return rounds.intersection(sets)


def released(net, holders: int):
    """The pooled release of a round with these holders."""
    net.open()
    net.send_all(holders)
    manifests = net.freeze()
    sums = [read_sum(answer.json(), net.task)[1] for answer in net.agree(manifests)]
    return pool(net.task, agreed_of(manifests), sums)


@pytest.mark.parametrize("features", [2, 22])  # whole shares, and seeds
def test_a_round_from_task_to_release(make_net, features: int) -> None:
    net = make_net(features=features, holders=5)
    release = released(net, 4)
    assert release.values[:5] == (1, 1, 1, 1, 0)  # each of four once, the fifth not at all
    assert not np.any(release.values[5:])
    for client in net.clients:
        assert len(list(net.nodes[0].store.contents(net.task.id, 3))) in (0, 4)
        answer = client.put(f"{net.at}/release", json=release.to_dict())
        assert (answer.status_code, answer.json()["phase"]) == (200, "released")
        assert client.put(f"{net.at}/release", json=release.to_dict()).status_code == 200
    # what was sealed is gone, who had sent it is not
    assert not list(net.nodes[0].store.contents(net.task.id, 10))
    assert len(net.clients[0].get(net.at).json()["holders"]) == 4


def test_a_task_is_taken_once_and_shown(net) -> None:
    client, body = net.clients[0], net.task.signed.to_dict()
    error(client.get(net.at), 404, "not known here")
    assert client.put(net.at, json=body).status_code == 201
    assert client.put(net.at, json=body).status_code == 200
    assert client.get(f"{net.at}/task").json() == body
    status = client.get(net.at).json()
    assert status == {
        "id": net.task.id,
        "phase": "open",
        "reason": "",
        "deadline": net.task.deadline.isoformat(),
        "holders": [],
        "needed": 4,
    }


def test_tasks_that_are_not_for_this_node_are_refused(net, clock) -> None:
    client, body = net.clients[0], net.task.signed.to_dict()
    stranger = Signed.by(Identity.generate(), "task", net.task.signed.body)
    error(client.put(net.at, json=stranger.to_dict()), 403, "no coordinator that this node takes tasks from")
    error(client.put(net.at, json={**body, "signature": "0" * 128}), 403, "signature is not that of key")
    error(client.put(f"/rounds/{'0' * 64}", json=body), 400, "not of 0000")
    coordinator = net.site.parties.coordinator
    for change, words in (
        ({"may_drop": 0}, "noise is not what"),
        ({"nonce": 3}, "wrong type"),
        ({"deadline": "soon"}, "is not a time"),
    ):
        other = Signed.by(coordinator, "task", {**net.task.signed.body, **change})
        error(client.put(f"/rounds/{other.digest}", json=other.to_dict()), 400, words)
    clock.skew = net.task.deadline - clock()
    error(client.put(net.at, json=body), 400, "has passed")


def test_a_task_with_another_key_than_the_nodes_own_is_refused(net) -> None:
    parties = net.site.parties
    cards = [Card.issue(parties.nodes[0], name="a", url="http://a", sealing_key=SealingKey.generate().key)]
    cards.append(net.site.folders[1].card())
    task = _task(net, cards)
    error(net.clients[0].put(f"/rounds/{task.id}", json=task.signed.to_dict()), 400, "a sealing key that it has not")
    others = [Card.issue(Identity.generate(), name=n, url="http://b", sealing_key=n * 64) for n in "ab"]
    task = _task(net, others)
    error(net.clients[0].put(f"/rounds/{task.id}", json=task.signed.to_dict()), 400, "not among the nodes")


def _task(net, cards: list[Card]) -> Task:
    task = net.task
    return Task.draft(
        net.site.parties.coordinator,
        task.study,
        task.members,
        cards,
        may_drop=task.crowd.may_drop,
        may_collude=task.crowd.may_collude,
        deadline=task.deadline,
    )


def test_an_envelope_is_stored_once(net) -> None:
    net.open()
    first, second = net.site.envelopes(0), net.site.envelopes(0)
    assert net.send(0, 0, first[0]).status_code == 201
    assert net.send(0, 0, first[0]).status_code == 200
    error(net.send(0, 0, second[0]), 409, "Another envelope of this holder")
    assert len(net.nodes[0].store.holdings(net.task.id)) == 1
    net.freeze()
    assert net.send(0, 0, first[0]).status_code == 200  # its sender may not have heard the first answer
    error(net.send(0, 1, net.site.envelopes(1)[0]), 410, "takes no envelopes any more")


def test_envelopes_of_strangers_and_forgers_are_refused(net, make_net) -> None:
    net.open()
    parties, sound = net.site.parties, net.site.envelopes(0)
    stranger = Identity.generate()
    shares = split(np.zeros(net.task.length, dtype=np.int64), 2)
    forged = seal(net.task, stranger, shares)[0]
    put = net.clients[0].put
    error(put(f"{net.at}/envelopes/{stranger.key}", content=forged), 403, "not one of the round's holders")
    error(net.send(0, 0, forged), 400, "is of holder")
    error(net.send(0, 1, sound[0]), 400, "is of holder")
    error(net.send(0, 0, sound[1]), 400, "is for node 2, and this is node 1")
    # another round with the same holders and nodes: an envelope replayed into it does not belong there
    other = _task(net, [folder.card() for folder in net.site.folders])
    assert put(f"/rounds/{other.id}", json=other.signed.to_dict()).status_code == 201
    replayed = put(f"/rounds/{other.id}/envelopes/{parties.holders[0].key}", content=sound[0])
    error(replayed, 400, "is of round")
    error(put(f"/rounds/{'0' * 64}/envelopes/{parties.holders[0].key}", content=sound[0]), 404, "not known here")
    assert not net.nodes[0].store.holdings(net.task.id)


def test_any_changed_byte_of_an_envelope_is_noticed(net) -> None:
    net.open()
    sound = bytearray(net.site.envelopes(0)[0])
    for at in range(0, len(sound), 7):
        sound[at] ^= 1
        answer = net.send(0, 0, bytes(sound))
        assert answer.status_code in (400, 403), (at, answer.text)
        sound[at] ^= 1
    for short in (0, 3, 100, len(sound) - 1):
        assert net.send(0, 0, bytes(sound[:short])).status_code in (400, 403)
    assert net.send(0, 0, bytes(sound)).status_code == 201


def test_an_envelope_whose_share_is_of_another_length_is_refused(net) -> None:
    net.open()
    short = split(np.zeros(net.task.length - 1, dtype=np.int64), 2)
    error(net.send(0, 0, seal(net.task, net.site.parties.holders[0], short)[0]), 400, "not a share of")


def test_bodies_have_a_size_and_a_type(net) -> None:
    net.open()
    most = largest(net.task)
    error(net.send(0, 0, bytes(most + 1)), 413, f"larger than the {most:,} bytes")
    at = f"{net.at}/envelopes/{net.site.parties.holders[0].key}"
    parts = (bytes(100) for _ in range(most))  # sent in chunks, with no length told
    error(net.clients[0].put(at, content=parts), 413, "larger than")
    answer = net.clients[0].put(at, content=b"{}", headers={"content-type": "application/json"})
    error(answer, 415, "application/octet-stream is taken here")
    answer = net.clients[0].put(net.at, content=b"{}", headers={"content-type": "text/plain"})
    error(answer, 415, "application/json is taken here")


def test_after_the_deadline_a_node_freezes_by_itself(net, clock) -> None:
    net.open()
    net.send_all(4)
    error(net.clients[0].get(f"{net.at}/manifest"), 409, "is open; it has no manifest now")
    clock.skew = net.task.deadline - clock()
    error(net.send(0, 4, net.site.envelopes(4)[0]), 410, "takes no envelopes")
    # a clock that is set back does not open it again
    clock.skew *= 0
    error(net.send(0, 4, net.site.envelopes(4)[0]), 410, "takes no envelopes")
    manifest = net.clients[0].get(f"{net.at}/manifest").json()
    assert manifest["signer"] == net.nodes[0].key
    assert len(manifest["body"]["held"]) == 4
    # the coordinator's word after it changes nothing
    assert net.clients[0].put(f"{net.at}/freeze", json=net.site.word("freeze")).json() == manifest


def test_only_the_coordinator_freezes_and_aborts(net) -> None:
    net.open()
    for kind, facts in (("freeze", {}), ("abort", {"reason": "no longer needed"})):
        body = {"task": net.task.id, **facts}
        stranger = Signed.by(Identity.generate(), kind, body).to_dict()
        error(net.clients[0].put(f"{net.at}/{kind}", json=stranger), 403, "is signed by key")
        other = Signed.by(net.site.parties.coordinator, kind, {**body, "task": "0" * 64}).to_dict()
        error(net.clients[0].put(f"{net.at}/{kind}", json=other), 400, "of another round")
    # a document of one kind is not another
    error(net.clients[0].put(f"{net.at}/abort", json=net.site.word("freeze")), 400, "where a abort belongs")
    assert net.clients[0].get(net.at).json()["phase"] == "open"
    aborted = net.clients[0].put(f"{net.at}/abort", json=net.site.word("abort", reason="no longer needed"))
    assert (aborted.json()["phase"], aborted.json()["reason"]) == ("aborted", "no longer needed")
    error(net.send(0, 0, net.site.envelopes(0)[0]), 410, "takes no envelopes")
    error(net.clients[0].get(f"{net.at}/sum"), 409, "no longer needed")


def test_a_set_is_summed_once_and_no_other_ever(net) -> None:
    net.open()
    net.send_all(5)
    manifests = net.freeze()
    error(net.clients[0].get(f"{net.at}/sum"), 409, "it has no sum now")
    first = net.agree(manifests)
    again = net.agree(manifests[::-1])
    assert [answer.status_code for answer in (*first, *again)] == [200] * 4
    assert [answer.content for answer in first] == [answer.content for answer in again]
    assert net.clients[0].get(f"{net.at}/sum").content == first[0].content
    # node 1 equivocates: a second manifest, without one holder, signed with its own key
    fewer = frozenset(sorted(agreed_of(manifests))[1:])
    other = sign_manifest(net.site.parties.nodes[1], net.task, fewer).to_dict()
    answer = net.clients[0].put(f"{net.at}/manifests", json={"manifests": [manifests[0], other]})
    error(answer, 409, "has agreed on another set of holders; a node sums one set in a round, ever")
    error(net.clients[0].put(f"{net.at}/abort", json=net.site.word("abort", reason="late")), 409, "summed")
    assert net.clients[0].get(f"{net.at}/sum").content == first[0].content


def test_too_few_holders_abort_the_round(net) -> None:
    net.open()
    net.send_all(3)
    manifests = net.freeze()
    error(net.agree(manifests)[0], 409, "3 holders reached all nodes and at least 4 are needed")
    assert net.clients[0].get(net.at).json()["phase"] == "aborted"
    error(net.agree(manifests)[0], 409, "aborted")
    assert not list(net.nodes[0].store.contents(net.task.id, 10))


def test_manifests_have_to_be_those_of_all_nodes(net) -> None:
    net.open()
    net.send_all(4)
    put = lambda body: net.clients[0].put(f"{net.at}/manifests", json=body)  # noqa: E731
    own = sign_manifest(net.site.parties.nodes[0], net.task, frozenset()).to_dict()
    other = sign_manifest(net.site.parties.nodes[1], net.task, frozenset()).to_dict()
    error(put({"manifests": [own, other]}), 409, "is open")
    first, second = net.freeze()
    error(put({"manifests": [first]}), 400, "1 manifests for 2 nodes")
    error(put({"manifests": [first, first]}), 400, "Two manifests are of one node")
    error(put({"manifests": [own, second]}), 409, "not the one that it signed")
    error(put([first, second]), 400, "The body is")
    forged = copy.deepcopy(second)
    forged["body"]["held"].pop()
    error(put({"manifests": [first, forged]}), 403, "signature")
    stranger = Signed.by(Identity.generate(), "manifest", second["body"]).to_dict()
    error(put({"manifests": [first, stranger]}), 403, "which is no node of the round")
    assert net.clients[0].get(net.at).json()["phase"] == "frozen"


def test_a_release_is_checked_before_anything_is_deleted(make_net, net) -> None:
    release = released(net, 4)
    at = f"{net.at}/release"
    body = release.to_dict()
    error(net.clients[0].put(at, json={**body, "values": [0] * len(body["values"])}), 400, "digest")
    error(net.clients[0].put(at, json={}), 400, "not a noisewise release")
    assert len(list(net.nodes[0].store.contents(net.task.id, 3))) == 4


def test_an_envelope_that_was_changed_in_the_store_is_never_summed(net) -> None:
    net.open()
    net.send_all(4)
    manifests = net.freeze()
    with net.nodes[0].store._write.begin() as connection:
        (content,) = connection.exec_driver_sql("SELECT content FROM envelopes LIMIT 1").one()
        connection.exec_driver_sql(
            "UPDATE envelopes SET content = ? WHERE content = ?", (content[:-80] + bytes(16) + content[-64:], content)
        )
    error(net.agree(manifests)[0], 409, "was changed; abort the round")
    error(net.clients[0].get(f"{net.at}/sum"), 409, "has no sum now")
    aborted = net.clients[0].put(f"{net.at}/abort", json=net.site.word("abort", reason="damaged"))
    assert aborted.json()["phase"] == "aborted"


def test_what_fails_inside_stays_inside(net, monkeypatch, caplog) -> None:
    monkeypatch.setattr(net.nodes[0], "status", lambda round_id: {}["a secret in an exception"])
    answer = net.clients[0].get(net.at)
    assert answer.status_code == 500
    assert answer.json() == {"error": "Something unexpected failed; the operator's log says where.", "kind": "Failure"}
    told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.fields["error"] for record in told] == ["KeyError"]
    assert "test_node.py" in told[0].fields["place"]
    assert not any("a secret" in f"{record.getMessage()} {record.fields}" for record in caplog.records)


def test_unanswered_requests_share_one_budget_of_memory(make_net) -> None:
    net = make_net(Limits(address=Rate(0, 0), memory=1000))
    task = json.dumps(net.task.signed.to_dict()).encode()
    answer = net.clients[0].put(net.at, content=task)
    error(answer, 503, "Too many requests are being read")
    assert answer.headers["retry-after"] == "1"
    assert "noisewise_body_bytes 0.0" in net.clients[0].get("/metrics").text


HOSTILE = {
    "nothing": b"",
    "no JSON": b"{",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000,
    "not UTF-8": b'"\xff\xfe\xfd"',
    "a lone surrogate": b'{"kind": "\\ud800", "body": {}, "signer": "\\ud800", "signature": "\\udfff"}',
    "not finite": b'{"kind": NaN}',
    "infinite": b"[Infinity]",
    "a huge number": b"1" * 10_000,
    "a huge exponent": b"1e999999",
    "a list": b"[]",
    "a text": b'"task"',
    "null bytes": b"\x00" * 64,
    "wrong types": b'{"kind": [], "body": [], "signer": 1, "signature": null}',
    "no signature": json.dumps({"kind": "task", "body": {}, "signer": "a" * 64, "signature": "b" * 128}).encode(),
}


@pytest.mark.parametrize("path", ["", "/freeze", "/abort", "/manifests", "/release"])
def test_hostile_json_is_refused(net, path: str) -> None:
    net.open()
    for what, content in HOSTILE.items():
        answer = net.clients[0].put(net.at + path, content=content, headers={"content-type": "application/json"})
        assert 400 <= answer.status_code < 500, (what, answer.text)
        assert set(answer.json()) == {"error", "kind"}


HUGE = 10**4000


@pytest.mark.parametrize("value", [HUGE, -HUGE, 1e308, -1, 0, "x", None, [], {}, [[]], True, "\ud800"], ids=repr)
def test_a_coordinators_hostile_task_is_refused(net, value) -> None:
    """Even with a sound signature of a known coordinator any field may hold anything: no failure, and few words."""
    bodies = [{**net.task.signed.body, field: value} for field in net.task.signed.body]
    for field in net.task.signed.body["study"]:
        bodies.append({**net.task.signed.body, "study": {**net.task.signed.body["study"], field: value}})
    refused = 0
    for body in bodies:
        signed = Signed.by(net.site.parties.coordinator, "task", body)
        content = json.dumps(signed.to_dict())
        answer = net.clients[0].put(f"/rounds/{signed.digest}", content=content)
        # some values are those of the sound task, or as good
        assert answer.status_code in (200, 201, 400, 403), answer.text
        assert len(answer.content) < 2000
        refused += answer.status_code >= 400
    assert refused >= len(bodies) - 6


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/rounds", "/rounds/", "/rounds/..%2f..%2fetc", "/rounds/%00", "/card/", "//card"]
)
def test_paths_that_are_not_there(net, path: str) -> None:
    error(net.clients[0].get(path), 404, "nothing here|64 hexadecimal digits")


def test_methods_that_are_not_taken(net) -> None:
    answer = net.clients[0].delete("/card")
    error(answer, 405, "not taken here")
    assert "GET" in answer.headers["allow"]
    allowed = net.clients[0].options(net.at).headers["allow"]
    assert {method.strip() for method in allowed.split(",")} >= {"GET", "PUT"}


def test_senders_have_a_rate(make_net) -> None:
    net = make_net(Limits(address=Rate(per_second=0.01, burst=3)))
    assert [net.clients[0].get("/healthz").status_code for _ in range(3)] == [200] * 3
    answer = net.clients[0].get("/healthz")
    error(answer, 429, "Too many requests; try again in")
    assert 1 <= int(answer.headers["retry-after"]) <= 100


def test_a_holders_rate_is_used_up_by_the_holder_alone(net) -> None:
    net.open()
    burst = net.nodes[0].settings.holder_rate.burst
    content = net.site.envelopes(0)[0]
    forged = bytes([*content[:-1], content[-1] ^ 1])
    for _ in range(burst + 5):  # others in its name
        assert net.send(0, 0, forged).status_code == 403
    answers = [net.send(0, 0, content).status_code for _ in range(burst + 5)]
    assert answers[:burst] == [201] + [200] * (burst - 1)
    assert 429 in answers[burst:]


def test_buckets_fill_again_and_are_bounded() -> None:
    now = 0.0
    buckets = Buckets(Rate(per_second=2.0, burst=2), lambda: now, most=10)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 1]
    now = 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 1]
    for k in range(1000):
        buckets.take(str(k))
    assert len(buckets) == 10


def test_an_ipv6_network_is_one_sender() -> None:
    assert network("2001:db8::1") == network("2001:db8::ffff:1:2:3")
    assert network("2001:db8::1") != network("2001:db8:0:1::1")
    assert network("::ffff:10.0.0.1") == network("10.0.0.1") == "10.0.0.1"


def test_a_body_that_does_not_end_is_given_up(net) -> None:
    """Some bytes, then silence: 408 after the time that a body has, and its memory is free again."""
    net.open()
    app = application(net.nodes[0], Limits(address=Rate(0, 0), seconds=0.2))
    sent: list[dict] = []

    async def call() -> None:
        parts = iter([{"type": "http.request", "body": b"nwe1", "more_body": True}])

        async def receive() -> dict:
            for part in parts:
                return part
            await asyncio.sleep(60)
            raise AssertionError("nobody waits this long")

        async def send(message: dict) -> None:
            sent.append(message)

        path = f"{net.at}/envelopes/{net.site.parties.holders[0].key}"
        scope = {"type": "http", "method": "PUT", "path": path, "headers": [], "query_string": b"", "client": None}
        await app(scope, receive, send)

    asyncio.run(call())
    assert sent[0]["status"] == 408


def test_numbers_and_health(net) -> None:
    net.open()
    net.send_all(2)
    net.clients[0].get("/no/such/path")
    text = net.clients[0].get("/metrics").text
    assert 'noisewise_envelopes_total{outcome="new"} 2.0' in text
    assert 'route="/rounds/{round}/envelopes/{holder}",status="201"} 2.0' in text
    assert "/no/such/path" not in text
    assert net.task.id not in text
    assert net.clients[0].get("/healthz").json() == {"status": "ok"}
    net.nodes[0].store.close()
    assert net.clients[0].get("/healthz").status_code == 503


def test_every_route_is_described_with_its_answers(net) -> None:
    described = net.clients[0].get("/openapi.json").json()
    assert described == json.loads(json.dumps(DESCRIPTION))
    for name in re.findall(r'#/components/([a-z]+/[a-z0-9]+)"', json.dumps(described)):
        kind, _, key = name.partition("/")
        assert key in described["components"][kind]
    kinds = set(get_args(Kind)) - {"enrolment", "node-card"}
    assert kinds <= set(described["components"]["schemas"])
