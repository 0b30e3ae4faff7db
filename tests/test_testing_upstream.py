"""Faults before a foreign cluster: what passes, what is changed, what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from kbroker.client import Client, ClientError
from kbroker.client.cluster import parse_bootstrap
from kbroker.testing import RunningBroker, RunningCluster, running_broker, running_cluster
from kbroker.testing.passage import names_a_broker, offered, ways_to_brokers
from kbroker.testing.seen import CannotNow, NotThere
from kbroker.testing.upstream import UpstreamCluster
from kbroker.testing.verbs import Verbs
from kbroker.wire.messages.describe_cluster import DescribeClusterRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.registry import API_KEYS, api_named
from kbroker.wire.schema import struct_spec
from tests.cli_command import kbroker
from tests.control_client import ENVIRONMENT, QUICK, Control, command
from tests.patience import LONG, eventually

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")


def structs_in(declared: type[Any]) -> Iterator[type[Any]]:
    yield declared
    for spec in struct_spec(declared).fields:
        inner = (spec.type.element or spec.type).struct
        if inner is not None:
            yield from structs_in(inner)


def test_every_address_of_a_broker_is_found() -> None:
    found: dict[str, set[str]] = {"brokers": set(), "others": set()}
    for api in API_KEYS.values():
        for declared in structs_in(api.response) if "broker" in api.listeners else ():
            if {"host", "port"} <= {spec.name for spec in struct_spec(declared).fields}:
                found["brokers" if names_a_broker(declared) else "others"].add(f"{api.name}.{declared.__name__}")
    assert {each.partition(".")[0] for each in found["brokers"]} == {
        *("DescribeCluster", "Fetch", "FindCoordinator", "Metadata", "Produce", "ShareAcknowledge", "ShareFetch")
    }
    assert found["others"] == {
        "DescribeQuorum.Listener",  # of controllers, for administrators
        "StreamsGroupDescribe.Endpoint",  # of applications of Kafka Streams
        "StreamsGroupHeartbeat.Endpoint",
    }
    assert ways_to_brokers(api_named("Fetch").response) == ("node_endpoints",)


class Clients:
    """A program of a test, whose doings can be compared."""

    def __init__(self, target: Verbs | RunningBroker, **properties: Any) -> None:
        self.properties = {"bootstrap.servers": target.bootstrap_servers, **QUICK, **properties}

    def create(self, topic: str, partitions: int = 1) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(self.properties)
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(LONG)

    def write(self, topic: str, *values: str, **more: Any) -> list[Any]:
        producer = confluent_kafka.Producer({**self.properties, **more})
        told: list[Any] = []
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: told.append(error and error.name()))
            producer.flush(LONG)
        return told

    def read(self, topic: str, count: int, group: str = "g") -> list[str]:
        more = {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = confluent_kafka.Consumer({**self.properties, **more, "enable.auto.commit": False})
        consumer.subscribe([topic])
        found: list[str] = []
        while len(found) < count:
            message = consumer.poll(LONG)
            assert message is not None and message.error() is None, message and message.error()
            found.append(message.value().decode())
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def ends(self, topic: str) -> list[int]:
        consumer = confluent_kafka.Consumer({**self.properties, "group.id": "ends"})
        partition = confluent_kafka.TopicPartition(topic, 0)
        found = [consumer.get_watermark_offsets(partition, timeout=LONG)[1] for _ in range(2)]
        consumer.close()
        return found

    def copy_in_transactions(self, topic: str) -> None:
        producer = confluent_kafka.Producer({**self.properties, "transactional.id": f"t-{topic}"})
        producer.init_transactions(LONG)
        for value, commits in (("aborted", False), ("committed", True)):
            producer.begin_transaction()
            producer.produce(topic, value)
            (producer.commit_transaction if commits else producer.abort_transaction)(LONG)


def course(target: Verbs) -> list[Any]:
    """Have each fault happen to clients; what they see, and the record."""
    clients, faults = Clients(target), target.faults
    told: list[Any] = []
    clients.create("c")
    told.append(clients.write("c", "a"))
    target.record_requests()
    with faults.drop("Produce", when="after", topic="c", times=1), faults.delay("Produce", 0.01, client_id="rdkafka"):
        told.append(clients.write("c", "twice"))
    with faults.drop("Produce", times=1):
        told.append(clients.write("c", "once", **{"enable.idempotence": True}))
    with faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic="c", times=2):
        told.append(clients.write("c", "in the end"))
    with faults.error("Produce", "POLICY_VIOLATION", topic="c", partition=0):
        told.append(clients.write("c", "never"))
    with faults.error("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="c"):
        told.append(clients.write("c", "never", **{"message.timeout.ms": 5000}))
    with faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="c", times=2), faults.error("JoinGroup", 15, times=1):
        told.append(clients.read("c", 5))
    faults.stale_latest("c", behind=3)
    told.append(clients.ends("c"))
    told.append(target.wait_until_drained("c", "g").lag)
    record = [(each.action, each.api, each.partitions, each.detail) for each in faults.record]
    told.append([each for each, _ in groupby(record)])  # a client asks for Metadata as often as it has time to
    asked = target.requests(api="Produce").requests
    told.append([(each.topics, each.errors, each.request, each.answer) for each in asked])
    told.append(bool(target.requests(api="OffsetCommit", group="g").count))
    faults.clear()
    told.append(faults.delete_records("c", 0, before=2))
    told.append(target.empty_topic("c"))
    faults.recreate_topic("c", partitions=2)
    told.append(clients.write("c", "anew"))
    with Client(target.bootstrap_servers) as client:
        told.append(client.partitions_of("c"))
    faults.delete_topic("c")
    return told


def test_faults_are_those_of_a_node() -> None:
    with running_broker() as broker:
        direct = course(broker)
        with UpstreamCluster(broker.bootstrap_servers) as upstream:
            broker.reset()
            through = course(upstream)
    assert through == direct
    assert ["a", "twice", "twice", "once", "in the end"] in direct


@pytest.mark.slow
def test_nodes_that_go_come_and_are_new() -> None:
    with running_cluster(3) as nodes, UpstreamCluster(nodes.bootstrap_servers) as upstream:
        doors = parse_bootstrap(upstream.bootstrap_servers)
        clients = Clients(upstream)
        clients.create("passed", 3)
        clients.write("passed", "a")
        clients.copy_in_transactions("passed")
        assert sorted(clients.read("passed", 2)) == ["a", "committed"]
        assert upstream.wait_for_group("g", state="Empty").coordinator in (1, 2, 3)
        with upstream.faults_of(2).error("Metadata", "BROKER_NOT_AVAILABLE") as fault:
            assert fault.node == 2 and fault.is_of(upstream.faults_of(2))
        upstream.move_leader("passed", 0, to=2)
        nodes.node(2).kill()
        eventually(lambda: [each.state for each in upstream.nodes_seen] == ["running", "down", "running"])
        assert clients.write("passed", "b", **{"enable.idempotence": True}) == [None]
        nodes.heal()
        eventually(lambda: {each.state for each in upstream.nodes_seen} == {"running"})
        assert parse_bootstrap(upstream.bootstrap_servers) == doors
        upstream.move_leader("passed", 0, to=2)
        upstream.move_coordinator("g", to=2)
        with Client(upstream.bootstrap_servers) as client:
            client.all_nodes()
            told = [(each.host, each.port) for each in client.brokers.values()]
            cluster = client.ask_any(DescribeClusterRequest()).brokers
            coordinator = client.ask_any(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators[0]
        assert sorted(told) == sorted(doors) == sorted((each.host, each.port) for each in cluster)
        assert (coordinator.host, coordinator.port) == doors[1]


@pytest.mark.slow
def test_a_node_that_is_new(tmp_path: Path) -> None:
    with RunningCluster(1) as cluster, UpstreamCluster(cluster.bootstrap_servers) as upstream:
        fault = upstream.faults.delay("Metadata", 0.01)
        added = cluster.add_node()
        with Client(upstream.bootstrap_servers) as client:
            eventually(lambda: client.all_nodes() == [1, added.node])
            new = client.brokers[added.node]
            assert f"{new.host}:{new.port}" in upstream.bootstrap_servers and str(new) != added.address
            hits = fault.hits
            client.ask_node(added.node, DescribeClusterRequest())
            with Client([(new.host, new.port)]) as other:
                other.all_nodes()
        assert fault.hits > hits and fault.injections[-1].node == added.node


def test_a_cluster_that_dies_and_comes_back() -> None:
    with running_broker() as broker, UpstreamCluster(broker.bootstrap_servers) as upstream:
        clients = Clients(upstream)
        clients.create("patient")
        producer = confluent_kafka.Producer({**clients.properties, "enable.idempotence": True})
        told: list[Any] = []
        for value in "ab":
            producer.produce("patient", value, on_delivery=lambda error, _: told.append(error and error.name()))
            producer.flush(LONG)
            broker.restart()
        assert told == [None, None] and clients.read("patient", 2) == ["a", "b"]
    with pytest.raises(ClientError):
        UpstreamCluster(broker.bootstrap_servers).start()


REFUSED: dict[str, Callable[[UpstreamCluster], object]] = {
    "add_node": lambda each: each.add_node(),
    "change_node": lambda each: each.change_node(1, "kill"),
    "advance": lambda each: each.advance(1),
    "stop_clock": lambda each: each.stop_clock(),
    "start_clock": lambda each: each.start_clock(),
    "clock": lambda each: each.clock,
    "reset": lambda each: each.reset(),
    "expire": lambda each: each.faults.expire("kept"),
    "apply_retention": lambda each: each.faults.apply_retention("kept"),
    "offset_gap": lambda each: each.faults.offset_gap("kept"),
    "compact": lambda each: each.faults.compact("kept"),
    "followers": lambda each: each.faults.delay("Fetch", 1, followers=True),
    "SaslHandshake": lambda each: each.faults.error("SaslHandshake", 33),
}


def test_what_cannot_be_done_is_refused_and_changes_nothing() -> None:
    with running_broker() as broker, UpstreamCluster(broker.bootstrap_servers) as upstream:
        Clients(broker).create("kept")
        upstream.faults.delay("Fetch", 0)
        for name, verb in REFUSED.items():
            with pytest.raises(CannotNow, match="foreign cluster") as caught:
                verb(upstream)
            assert "\n" not in str(caught.value), name
        with pytest.raises(NotThere):
            upstream.faults_of(7)
        with pytest.raises(NotThere):
            upstream.faults.delete_records("kept", 7)
        assert len(upstream.faults.active) == 1 and upstream.faults.record == []
        assert upstream.reset(topics=False).topics == [] and upstream.faults.active == []
        with Client(broker.bootstrap_servers) as client:
            assert client.partitions_of("kept") == [0]


def test_logins_pass_unread() -> None:
    with (
        running_broker(security="sasl_plaintext", super_users=["admin"]) as broker,
        UpstreamCluster(broker.bootstrap_servers, security=broker.security.own_security()) as upstream,
    ):
        upstream.record_requests()
        for user, result in (("admin", None), ("alice", "TOPIC_AUTHORIZATION_FAILED")):
            properties = {**broker.librdkafka_properties(user), "bootstrap.servers": upstream.bootstrap_servers}
            assert Clients(upstream, **properties).write("guarded", "a") == [result]
        apis = {each.api for each in upstream.requests().requests}
        assert "Produce" in apis and not {each for each in apis if each.startswith("Sasl")}
    assert offered(api_named("SaslHandshake")).lowest == 1


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "faults").write_text("error Produce code=POLICY_VIOLATION topic=orders times=1\n")
    with running_broker() as broker:
        words = [
            "faults",
            "--upstream",
            broker.bootstrap_servers,
            "--port",
            "0",
            "--control",
            "0",
            "--faults",
            "faults",
        ]
        with command(*words, cwd=tmp_path) as (process, at):
            control = Control(at["control"])
            status = control.do("GET", "/")
            assert status["bootstrap_servers"] == at["ready"] != broker.bootstrap_servers
            assert [each["address"] for each in status["nodes"]] == [at["ready"]] and len(status["faults"]) == 1
            control.do("POST", "/topics/orders/create")
            control.do("POST", "/requests/record")
            properties = {"bootstrap.servers": at["ready"], **QUICK}
            producer = confluent_kafka.Producer(properties)
            told: list[Any] = []
            for value in "ab":
                producer.produce("orders", value, on_delivery=lambda error, _: told.append(error and error.name()))
                producer.flush(LONG)
            assert told == ["POLICY_VIOLATION", None]
            assert control.do("POST", "/wait/end", topic="orders", offset=1)["offset"] == 1
            assert control.do("GET", "/requests?api=Produce")["count"] == 2
            for path, arguments in (("/clock/advance", {"seconds": 1}), ("/nodes", {}), ("/reset", {})):
                code, answer = control.ask("POST", path, **arguments)
                assert code == 409 and "foreign cluster" in answer["error"], answer
            assert control.do("POST", "/topics/orders/empty") == {"partitions": {"0": 1}}
            assert process.poll() is None


@pytest.mark.slow
def test_the_console_beside_it_changes_nothing(tmp_path: Path) -> None:
    with running_broker() as broker:
        words = ["faults", "--upstream", broker.bootstrap_servers, "--port", "0", "--console", "0"]
        line = [sys.executable, "-m", "kbroker", *words]
        with subprocess.Popen(line, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                told = [process.stdout.readline() for _ in range(2)]
            finally:
                process.terminate()
        assert "(read-only)" in told[1], told


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--upstream", "127.0.0.1:1"], 1, "cannot connect"),
        (["--upstream", "127.0.0.1:none"], 2, "host:port"),
        (["--upstream", "127.0.0.1:1", "-n", "3"], 2, "-n does not go with --upstream"),
        (["--upstream", "127.0.0.1:1", "-o", "num.partitions=3"], 2, "-o does not go"),
        (["--upstream-config", "tls"], 2, "goes with --upstream"),
        (["--upstream", "127.0.0.1:1", "--upstream-config", "tls"], 2, "without TLS"),
        (["--upstream", "127.0.0.1:1", "--upstream-config", "none"], 1, "none"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
@pytest.mark.slow
def test_what_is_wrong_is_one_line(tmp_path: Path, words: list[str], code: int, text: str) -> None:
    (tmp_path / "tls").write_text("security.protocol=SSL\n")
    done = kbroker("faults", "--port", "0", *words, cwd=tmp_path)
    assert done.returncode == code and text in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
