"""The control over HTTP: each verb on one node and on three, with stock clients, and what is refused."""

from __future__ import annotations

import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs, describe_configs
from kbroker.client.quotas import alter_quotas, describe_quotas
from kbroker.errors import ErrorCode
from kbroker.testing import RunningCluster, running_broker, running_cluster
from kbroker.testing.control.server import ControlServer
from kbroker.wire.compiler import decode, encode
from kbroker.wire.messages.groups import ListGroupsRequest
from kbroker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.control_client import Control, Place
from tests.patience import LONG, eventually

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def one() -> Iterator[Place]:
    with running_broker() as broker, ControlServer(broker, ("127.0.0.1", 0)) as server:
        yield Place(broker, Control(server.url))


@pytest.fixture(scope="module")
def three() -> Iterator[Place]:
    with running_cluster(3) as cluster, ControlServer(cluster, ("127.0.0.1", 0)) as server:
        yield Place(cluster, Control(server.url))


@pytest.fixture(params=["one", "three"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    found.do("POST", "/reset")
    return found


# --- the verbs


def test_status_and_nodes(place: Place) -> None:
    status = place.do("GET", "/")
    assert status["bootstrap_servers"] == place.target.bootstrap_servers
    assert [node["node"] for node in status["nodes"]] == ([1, 2, 3] if place.is_cluster else [1])
    assert place.do("GET", "/nodes")["nodes"] == status["nodes"]
    assert {node["state"] for node in status["nodes"]} == {"running"}


def test_faults_of_requests(place: Place) -> None:
    place.create("orders")
    fault = place.do("POST", "/faults/error", api="Produce", code="POLICY_VIOLATION", topic="orders", times=1)
    assert fault["action"] == "error" and fault["hits"] == 0
    assert place.write("orders", "a") == ["POLICY_VIOLATION"]
    assert place.do("POST", f"/faults/{fault['number']}/wait")["hits"] == 1
    assert place.write("orders", "b") == [None]
    status, late = place.ask("POST", f"/faults/{fault['number']}/wait", hits=2, timeout=0)
    assert status == 504 and late["seen"]["hits"] == 1
    [done] = place.do("GET", "/injections?after=0")["injections"]
    assert (done["api"], done["detail"]) == ("Produce", "POLICY_VIOLATION")
    assert done["partitions"] == [{"topic": "orders", "partition": 0}]
    assert place.do("DELETE", f"/faults/{fault['number']}")["hits"] == 1
    assert place.ask("DELETE", f"/faults/{fault['number']}")[0] == 404

    place.do("POST", "/faults/drop", api="Produce", when="after", topic="orders", times=1)
    assert place.write("orders", "c") == [None]  # twice in the log
    assert place.do("POST", "/wait/end", topic="orders", offset=3)["offset"] == 3
    held = place.do("POST", "/faults/hold", api="Produce", client_id="^slow$")
    narrow = place.do("POST", "/faults/drop", api="Fetch", topic="o", partition=2, nth=3, times=4, node=1)
    assert narrow in place.do("GET", "/faults")["faults"]
    assert [narrow[name] for name in ("topic", "partition", "nth", "times")] == ["o", 2, 3, 4]
    assert narrow["node"] == (1 if place.is_cluster else None) and held["node"] is None
    assert (held["client_id"], held["topic"], held["probability"]) == ("^slow$", None, 1.0)
    place.do("DELETE", f"/faults/{narrow['number']}")
    place.do("POST", "/faults/delay", api="ListOffsets", seconds=0.001, probability=0.5, seed=3)
    place.do("POST", "/faults/stale-latest", topic="orders", behind=2)
    writer = threading.Thread(target=lambda: place.write("orders", "d", **{"client.id": "slow"}))
    writer.start()
    place.do("POST", f"/faults/{held['number']}/wait", timeout=LONG)
    assert len(place.do("GET", "/faults")["faults"]) == 4
    place.do("DELETE", "/faults")
    writer.join()
    assert place.do("GET", "/faults")["faults"] == []


def test_requests_wait_for_a_decision(place: Place) -> None:
    place.create("orders")
    fault = place.do("POST", "/faults/intercept", api="Produce", topic="orders", client_id="^shop$")
    number = fault["number"]
    assert place.do("POST", f"/faults/{number}/take", timeout=0) == {"requests": []}
    told: list[object] = []
    shop = {"client.id": "shop", "acks": "all", "enable.idempotence": False}
    writer = threading.Thread(target=lambda: told.extend(place.write("orders", *"abcd", **shop)))
    writer.start()

    def taken() -> tuple[dict[str, Any], Any]:
        [asked] = place.do("POST", f"/faults/{number}/take", timeout=LONG)["requests"]
        assert (asked["api"], asked["api_key"], asked["client_id"]) == ("Produce", 0, "shop")
        assert asked["node"] == place.target.nodes_seen[0].node or place.is_cluster
        message, end = decode(ProduceRequest, asked["api_version"], b64decode(asked["body"]))
        assert end == len(b64decode(asked["body"]))
        return asked, message

    def decide(asked: dict[str, Any], action: str, message: Any = None) -> None:
        body = "" if message is None else b64encode(encode(message, asked["api_version"])).decode()
        place.do("POST", f"/faults/{number}/decide", request=asked["number"], action=action, body=body)

    asked, message = taken()
    for action, body in (("answer", ""), ("answer", "AAAA"), ("pass", "AA=="), ("close", "AA=="), ("pass", "?")):
        wrong = {"request": asked["number"], "action": action, "body": body}
        assert place.ask("POST", f"/faults/{number}/decide", **wrong)[0] == 400
    assert place.ask("POST", f"/faults/{number}/decide", request=99, action="pass")[0] == 404
    decide(asked, "pass")
    assert place.ask("POST", f"/faults/{number}/decide", request=asked["number"], action="pass")[0] == 404

    asked, message = taken()  # b: answered by the test, and kept nowhere
    [topic] = message.topic_data
    answer = PartitionProduceResponse(index=0, error_code=ErrorCode.POLICY_VIOLATION, base_offset=-1)
    answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
    decide(asked, "answer", ProduceResponse(responses=[answered]))

    asked, message = taken()  # c: never gets there, and comes again
    decide(asked, "close")
    asked, message = taken()
    decide(asked, "pass", message)

    taken()  # d: nobody decides; the fault is undone
    place.do("DELETE", f"/faults/{number}")
    writer.join()
    assert told == [None, "POLICY_VIOLATION", None, None]
    assert place.do("POST", "/wait/end", topic="orders", offset=3)["offset"] == 3
    assert place.ask("POST", f"/faults/{number}/take", timeout=0)[0] == 404
    done = [each["detail"] for each in place.do("GET", "/injections")["injections"]]
    assert done == ["pass", "answer", "close", "pass"]


def test_a_request_waits_at_a_node_that_dies(three: Place) -> None:
    three.do("POST", "/reset")
    three.create("orders")
    number = three.do("POST", "/faults/intercept", api="Produce", topic="orders", client_id="^shop$")["number"]
    told: list[object] = []
    writer = threading.Thread(target=lambda: told.extend(three.write("orders", "a", **{"client.id": "shop"})))
    writer.start()
    [first] = three.do("POST", f"/faults/{number}/take", timeout=LONG)["requests"]
    three.do("POST", f"/nodes/{first['node']}/kill")
    late = {"request": first["number"], "action": "pass"}
    assert three.ask("POST", f"/faults/{number}/decide", **late)[0] == 404
    [again] = three.do("POST", f"/faults/{number}/take", timeout=LONG)["requests"]
    assert again["node"] != first["node"] and again["number"] == first["number"] + 1
    three.do("POST", f"/nodes/{first['node']}/start")
    three.do("POST", f"/faults/{number}/decide", request=again["number"], action="pass")
    writer.join()
    assert told == [None]
    assert three.do("POST", "/wait/end", topic="orders", offset=1)["offset"] == 1
    three.do("POST", "/topics/orders/move-leader", to=first["node"])
    writer = threading.Thread(target=lambda: told.extend(three.write("orders", "b", **{"client.id": "shop"})))
    writer.start()
    [there] = three.do("POST", f"/faults/{number}/take", timeout=LONG)["requests"]  # it has the fault in its next life
    assert there["node"] == first["node"]
    three.do("DELETE", "/faults")
    writer.join()
    assert told == [None, None]


def test_all_requests_wait_until_who_decides_has_gone(place: Place) -> None:
    place.create("orders")
    number = place.do("POST", "/faults/intercept", client_id="^shop$", patience=1)["number"]
    gone = threading.Event()
    seen = set()

    def decide() -> None:
        while not gone.is_set():
            for asked in place.do("POST", f"/faults/{number}/take", timeout=0.1)["requests"]:
                seen.add(asked["api"])
                late = {"request": asked["number"], "action": "pass"}
                assert place.ask("POST", f"/faults/{number}/decide", **late)[0] in (200, 404)

    decider = threading.Thread(target=decide)
    decider.start()
    assert place.write("orders", "a", **{"client.id": "shop"}) == [None]
    gone.set()
    decider.join()
    assert {"ApiVersions", "Metadata", "Produce"} <= seen
    assert place.write("orders", "b", "c", "d", **{"client.id": "shop"}) == [None] * 3
    details = {each["detail"] for each in place.do("GET", "/injections")["injections"]}
    assert "pass" in details and details <= {"pass", "pass, as nobody has decided in time"}
    place.do("DELETE", "/faults")


def test_a_taker_is_told_that_the_fault_is_undone(place: Place) -> None:
    number = place.do("POST", "/faults/intercept", api="Fetch", followers=True, client_id="^nobody$")["number"]
    ended: list[tuple[int, Any]] = []
    taker = threading.Thread(target=lambda: ended.append(place.ask("POST", f"/faults/{number}/take", timeout=LONG)))
    taker.start()
    place.do("DELETE", f"/faults/{number}")
    taker.join()
    assert ended[0][0] == 404
    assert place.ask("POST", "/faults/intercept", followers=True)[0] == 400


def test_topics_are_made(place: Place) -> None:
    place.do("POST", "/topics/made/create", partitions=3, configs={"retention.ms": "1000"})
    with Client(place.target.bootstrap_servers) as client:
        assert client.partitions_of("made") == [0, 1, 2]
        assert {each.name: each.value for each in describe_configs(client, ResourceType.TOPIC, "made")}[
            "retention.ms"
        ] == "1000"
    status, problem = place.ask("POST", "/topics/made/create")
    assert (status, problem["code"]) == (409, "TOPIC_ALREADY_EXISTS")
    assert place.ask("POST", "/topics/other/create", configs={"retention.ms": 1})[0] == 400
    assert place.ask("POST", "/topics/other/create", configs={"retention": "x"})[1]["code"] == "INVALID_CONFIG"
    assert place.ask("POST", "/topics/other/create", replicas=9)[1]["code"] == "INVALID_REPLICATION_FACTOR"


def test_records_and_topics(place: Place) -> None:
    place.create("orders", 2)
    place.write("orders", *"abc")
    assert place.do("POST", "/topics/orders/offset-gap", partition=1, size=4)["partitions"].keys() == {"1"}
    ends = place.do("POST", "/topics/orders/empty")["partitions"]
    assert sum(ends.values()) == 7
    place.write("orders", "d")
    assert sum(place.do("POST", "/topics/orders/expire")["partitions"].values()) == 8
    assert sum(place.do("POST", "/topics/orders/apply-retention")["partitions"].values()) == 8
    place.do("POST", "/topics/orders/recreate", partitions=1)
    assert place.do("POST", "/topics/orders/delete-records", partition=0, before=0)["partitions"] == {"0": 0}
    status, problem = place.ask("POST", "/topics/orders/delete-records", partition=0, before=9)
    assert (status, problem["code"]) == (409, "OFFSET_OUT_OF_RANGE")
    assert place.ask("POST", "/topics/orders/compact")[1]["code"] == "INVALID_CONFIG"
    place.do("POST", "/topics/orders/delete")
    status, problem = place.ask("POST", "/topics/orders/expire")
    assert (status, problem) == (404, {"error": "there is no topic orders", "code": "UNKNOWN_TOPIC_OR_PARTITION"})
    place.create("table", config={"cleanup.policy": "compact"})
    assert list(place.do("POST", "/topics/table/compact")["partitions"]) == ["0"]


def test_the_clock_moves_and_stands(place: Place) -> None:
    place.create("old", config={"retention.ms": "604800000"})
    place.write("old", "a")
    place.do("POST", "/clock/stop")
    before = place.do("GET", "/clock")
    place.do("POST", "/clock/advance", seconds=3600)
    moved = place.do("GET", "/clock")
    assert before["stands"] and moved["stands"]
    assert moved["wall_clock_ms"] - before["wall_clock_ms"] == pytest.approx(3_600_000, abs=2)  # it stands, to the ms
    place.do("POST", "/clock/start")
    assert not place.do("GET", "/clock")["stands"]
    place.do("POST", "/clock/advance", seconds=8 * 86_400)
    place.do("POST", "/topics/old/apply-retention")
    [(_, start)] = place.target.faults.apply_retention("old").items()
    assert start == 1


def test_a_group_is_waited_for(place: Place) -> None:
    place.create("work")
    assert place.do("POST", "/wait/group", group="readers", state="Dead")["coordinator"] == -1
    status, late = place.ask("POST", "/wait/group", group="readers", state="Stable", timeout=0)
    assert status == 504 and late["seen"]["state"] == ""
    with pytest.raises(ValueError, match="Kafka has no group state 'Nonsense'"):
        place.target.wait_for_group("readers", state="Nonsense")
    with place.member("readers", "work"):
        seen = place.do("POST", "/wait/group", group="readers", state="stable", members=1, timeout=LONG)
        assert list(seen["assigned"].values()) == [["work-0"]]
        place.write("work", "a", "b")
        assert place.do("POST", "/wait/drained", topic="work", group="readers", timeout=LONG)["lag"] == {"0": 0}
        assert place.do("POST", "/wait/committed", group="readers", topic="work", offset=2)["offset"] == 2
        status, late = place.ask("POST", "/wait/committed", group="readers", topic="work", offset=3, timeout=0)
        assert (status, late["seen"]["offset"]) == (504, 2)
        assert place.do("POST", "/reset")["kept"] == ["readers"]
        place.create("work")
    assert place.do("POST", "/wait/group", group="readers", members=0)["state"] == "Empty"
    place.write("work", "c")
    status, late = place.ask("POST", "/wait/drained", topic="work", group="nobody", timeout=0)
    assert (status, late["seen"]["lag"]) == (504, {"0": 1})
    assert place.ask("POST", "/wait/end", topic="nowhere", offset=1, timeout=0)[1]["seen"]["offset"] == -1
    assert place.ask("POST", "/wait/drained", topic="nowhere", group="readers", timeout=0)[0] == 404


def test_what_is_drained_ends_with_markers_of_transactions(place: Place) -> None:
    place.create("paid")
    producer = confluent_kafka.Producer(place.client(**{"transactional.id": "t"}))
    producer.init_transactions(LONG)
    producer.begin_transaction()
    producer.produce("paid", "a")
    producer.flush(LONG)
    assert place.ask("POST", "/wait/end", topic="paid", offset=1, timeout=0)[1]["seen"]["offset"] == 0  # it is open
    producer.commit_transaction(LONG)
    assert place.do("POST", "/wait/end", topic="paid", offset=2)["offset"] == 2
    with place.member("accounting", "paid"):
        assert place.do("POST", "/wait/drained", topic="paid", group="accounting", timeout=LONG)["lag"] == {"0": 0}


def test_requests_are_told_and_counted(place: Place) -> None:
    place.create("asked")
    assert place.ask("GET", "/requests")[0] == 409
    place.do("POST", "/requests/record")
    place.write("asked", "a", "b", **{"client.id": "mine"})
    place.write("asked", "c", **{"client.id": "another"})
    seen = place.do("GET", "/requests?api=Produce&topic=asked&client_id=^mine$")
    assert seen["count"] == 2 and seen["lost"] == 0
    assert {each["principal"] for each in seen["requests"]} == {"User:ANONYMOUS"}
    assert all(
        each["request"].startswith("Produce v") and each["topics"] == {"asked": [0]} for each in seen["requests"]
    )
    assert [each["answer"] for each in seen["requests"]] == ["offset 0", "offset 1"]
    place.do("POST", "/faults/error", api="Produce", code="POLICY_VIOLATION", times=1)
    place.write("asked", "d")
    later = place.do("GET", f"/requests?after={seen['next']}&api=Produce")
    assert [each["errors"] for each in later["requests"]] == [["POLICY_VIOLATION"]]
    place.do("POST", "/faults/drop", api="Produce", times=1)
    place.write("asked", "e", **{"client.id": "dropped"})
    dropped = place.do("POST", "/wait/requests", api="Produce", client_id="dropped", count=2)["requests"]
    assert dropped[0]["answer"].startswith("the connection was closed") and dropped[1]["answer"] == "offset 3"
    several: list[dict[str, Any]] = [{"api": "Produze"}, {"error": "NOT_LEADER"}, {"tpoic": "asked"}]
    for wrong in several:  # an answer of none would say that no client has asked so
        with pytest.raises(ValueError, match=r"Kafka has no|there is no"):
            place.target.requests(**wrong)
    status, late = place.ask("POST", "/wait/requests", group="nobody", timeout=0)
    assert status == 504 and late["seen"]["count"] == 0
    place.do("POST", "/requests/record", on=False)
    assert place.ask("GET", "/requests")[0] == 409


def test_reset_leaves_nothing_but_the_time(place: Place) -> None:
    place.create("orders")
    place.write("orders", "a")
    place.do("POST", "/faults/hold", api="Fetch")
    place.do("POST", "/requests/record")
    place.do("POST", "/clock/stop")
    if place.is_cluster:
        place.do("POST", "/nodes/2/pause")
    assert place.do("POST", "/reset", topics=False) == {"topics": [], "groups": [], "kept": []}
    assert not place.do("GET", "/clock")["stands"]
    assert place.do("GET", "/")["faults"] == place.do("GET", "/injections")["injections"] == []
    assert place.write("orders", "b") == [None]
    given = [
        (ResourceType.GROUP, "billing", "consumer.session.timeout.ms", "50000"),
        (ResourceType.BROKER, "", "message.max.bytes", "1000"),
        (ResourceType.BROKER, str(place.target.nodes_seen[0].node), "message.max.bytes", "999"),
    ]

    def values(client: Client) -> list[str | None]:
        return [describe_configs(client, kind, name, keys=[key])[0].value for kind, name, key, _ in given if name]

    with place.target.client() as client:
        before = values(client)
        alter_quotas(client, {"client-id": "slow"}, {"producer_byte_rate": 1.0})
        for kind, name, key, value in given:
            alter_configs(client, kind, name, [ConfigChange(key, Operation.SET, value)])
        eventually(lambda: values(client) == ["50000", "999"])
    assert place.do("POST", "/reset")["topics"] == ["orders"]
    with place.target.client() as client:
        assert values(client) == before and describe_quotas(client, {}) == []
    assert {node["state"] for node in place.do("GET", "/nodes")["nodes"]} == {"running"}


def test_one_node_says_what_it_has_not(one: Place) -> None:
    one.create("alone")
    assert one.ask("POST", "/topics/alone/move-leader")[0] == 409
    assert one.ask("POST", "/topics/alone/move-leader", to=2) == (404, {"error": "there is no node 2 that runs"})
    assert one.do("POST", "/topics/alone/move-leader", to=1)["leader"] == 1
    assert one.do("POST", "/groups/move-coordinator", group="g", to=1)["leader"] == 1
    assert one.ask("POST", "/nodes")[0] == 409
    assert one.ask("POST", "/nodes/1/kill")[0] == 409
    assert one.ask("POST", "/nodes/2/kill")[0] == 404
    assert one.ask("POST", "/faults/hold", api="Fetch", node=2)[0] == 404
    one.do("POST", "/faults/hold", api="Fetch", node=1)
    one.do("DELETE", "/faults")


# --- several nodes


def leader_of(place: Place, topic: str) -> int:
    assert isinstance(place.target, RunningCluster)
    return place.target.leader_of(topic).id


def test_leaders_and_coordinators_move(three: Place) -> None:
    three.do("POST", "/reset")
    three.create("moved", 2)
    before = leader_of(three, "moved")
    after = three.do("POST", "/topics/moved/move-leader")["leader"]
    assert after != before and leader_of(three, "moved") == after
    for node in (1, 2, 3):
        assert three.do("POST", "/topics/moved/move-leader", partition=1, to=node)["leader"] == node
    with three.member("movers", "moved"):
        seen = three.do("POST", "/wait/group", group="movers", state="Stable", timeout=LONG)
        moved = three.do("POST", "/groups/move-coordinator", group="movers")["leader"]
        assert moved != seen["coordinator"]
        seen = three.do("POST", "/wait/group", group="movers", state="Stable", members=1, timeout=LONG)
        assert seen["coordinator"] == moved
        three.write("moved", "a")
        three.do("POST", "/wait/drained", topic="moved", group="movers", timeout=LONG)
    assert three.ask("POST", "/topics/moved/move-leader", partition=7)[0] == 404
    assert three.ask("POST", "/topics/nowhere/move-leader")[0] == 404


@pytest.mark.everything
def test_nodes_end_and_come_while_clients_write(three: Place) -> None:
    three.do("POST", "/reset")
    three.create("orders")
    producer = confluent_kafka.Producer(three.client(**{"enable.idempotence": True}))
    failed: list[Any] = []
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.005):
            producer.produce("orders", "x", on_delivery=lambda error, _: failed.append(error) if error else None)
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for action in ("kill", "stop"):
            node = leader_of(three, "orders")
            assert three.do("POST", f"/nodes/{node}/{action}")["state"] == "down"
            three.do("POST", "/topics/orders/offset-gap", size=2)
            assert three.do("POST", f"/nodes/{node}/start")["state"] == "running"
        three.do("POST", "/nodes/3/pause")
        assert three.ask("POST", "/nodes/3/start")[0] == 409
        assert three.do("POST", "/nodes/3/resume")["state"] == "running"
        three.do("POST", "/reset", topics=False)
    finally:
        ended.set()
        thread.join()
    assert producer.flush(LONG) == 0 and not failed
    three.do("POST", "/nodes/2/kill")
    assert three.ask("POST", "/nodes/2/pause")[0] == 409
    three.do("POST", "/reset")


def test_a_node_is_added_with_what_the_others_have() -> None:
    with running_cluster(1) as cluster, ControlServer(cluster, ("127.0.0.1", 0)) as server:
        place = Place(cluster, Control(server.url))
        place.do("POST", "/faults/error", api="ListGroups", code="GROUP_AUTHORIZATION_FAILED")
        place.do("POST", "/faults/hold", api="Fetch", node=1)
        place.do("POST", "/clock/advance", seconds=3600)
        place.do("POST", "/requests/record")
        added = place.do("POST", "/nodes")
        assert (added["node"], added["state"]) == (2, "running")
        with Client(added["address"]) as client:
            for node in (1, 2):
                assert client.ask_node(node, ListGroupsRequest()).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert {each["node"] for each in place.do("GET", "/requests?api=ListGroups")["requests"]} == {1, 2}
        place.do("DELETE", "/faults")
        place.create("orders", replicas=1)
        assert place.do("POST", "/topics/orders/move-leader", to=2)["leader"] == 2
        place.write("orders", "a")
        place.do("POST", "/nodes/2/kill")
        assert place.do("POST", "/nodes/2/start")["state"] == "running"
        with Client(added["address"]) as client:
            client.ask_node(2, ListGroupsRequest())
        assert place.do("GET", "/requests?api=ListGroups")["count"] == 3  # it was told before it served


def test_waits_outlive_the_nodes_that_they_ask(three: Place) -> None:
    three.do("POST", "/reset")
    three.create("late")
    answers: list[tuple[int, Any]] = []
    asked = [
        ("/wait/end", {"topic": "late", "offset": 1, "timeout": LONG}),
        ("/wait/group", {"group": "late", "state": "Stable", "timeout": LONG}),
    ]
    threads = [
        threading.Thread(target=lambda each=each: answers.append(three.ask("POST", each[0], **each[1])))
        for each in asked
    ]
    for thread in threads:
        thread.start()
    leader = leader_of(three, "late")
    three.do("POST", f"/nodes/{leader}/kill")
    assert three.write("late", "a") == [None]
    three.do("POST", f"/nodes/{leader}/start")
    with three.member("late", "late"):
        for thread in threads:
            thread.join()
    assert [status for status, _ in answers] == [200, 200], answers


def test_without_nodes_it_says_so() -> None:
    with running_cluster(1) as cluster, ControlServer(cluster, ("127.0.0.1", 0)) as server:
        control = Control(server.url)
        control.do("POST", "/nodes/1/kill")
        assert control.ask("POST", "/wait/group", group="g") == (409, {"error": "no node runs"})
        assert control.do("GET", "/nodes")["nodes"][0]["state"] == "down"
        control.do("POST", "/faults/hold", api="Fetch")
        control.do("POST", "/clock/stop")
        control.do("POST", "/nodes/1/start")
        assert control.do("POST", "/reset")["topics"] == []
