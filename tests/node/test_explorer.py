"""The protocol explorer of nodes that serve stock clients."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kbroker.client.connection import Connection
from kbroker.client.explorer import ExplorerClient
from kbroker.errors import FatalError
from kbroker.node.explorer.budget import Budget
from kbroker.observe.explorer.exchange import Closed, Skipped
from kbroker.observe.explorer.explained import ExplainedExchange, Story
from kbroker.observe.explorer.lines import Item
from kbroker.observe.explorer.text import details
from kbroker.testing import RunningBroker, running_broker
from kbroker.testing.cluster import RunningCluster, running_cluster
from kbroker.testing.replay import ReplayError, replay
from kbroker.tools.cli import main
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.version import __version__
from kbroker.wire.messages.classic_groups import HeartbeatRequest
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.every_node import await_topics
from tests.patience import LONG, LONG_MS

LISTENER_NAME = "kbroker.explorer.listener"
LISTENER = {LISTENER_NAME: "http://127.0.0.1:0"}
SECRET = "alice-secret"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(LISTENER) as it:
        afford_all(it)
        yield it


def afford_all(broker: RunningBroker) -> None:
    """Have all that tests ask seen, on a slow machine and after a test that asked much."""
    broker.in_broker(lambda node: setattr(node.services.tap, "budget", Budget(10.0, 1.0)))


def port_of(broker: RunningBroker) -> int:
    port = broker.in_broker(lambda node: node.explorer_port)
    assert port is not None
    return port


class Watched:
    """The exchanges that a watcher has been told, and those that were skipped."""

    def __init__(self, *clients: ExplorerClient) -> None:
        self.told: list[ExplainedExchange] = []
        self.items: list[Item] = []
        self.skipped = 0
        self._story = Story()
        self._some = threading.Condition()
        for client in clients:
            threading.Thread(target=self._read, args=(client,), daemon=True).start()

    def _read(self, client: ExplorerClient) -> None:
        for item in client.items():
            if item is None:
                continue
            with self._some:
                self.items.append(item)
                if isinstance(item, Skipped):
                    self.skipped += sum(item.counts.values())
                told = self._story.add(item, client.names)
                if told is not None:
                    self.told.append(told)
                self._some.notify_all()

    def until(self, enough: Callable[[list[ExplainedExchange]], Any]) -> list[ExplainedExchange]:
        """The exchanges told so far, once they are ``enough``."""
        with self._some:
            assert self._some.wait_for(lambda: enough(self.told), LONG), [each.summary for each in self.told]
            return list(self.told)

    def named(self, name: str, number: int = 1) -> list[ExplainedExchange]:
        """The exchanges of an API, once there are so many."""

        def found(told: list[ExplainedExchange]) -> list[ExplainedExchange]:
            return [each for each in told if each.decoded.name == name]

        return found(self.until(lambda told: len(found(told)) >= number))


@contextmanager
def watching(*ports: int, **more: Any) -> Iterator[Watched]:
    clients = [ExplorerClient("127.0.0.1", port) for port in ports]
    for client in clients:
        client.open(**more)
    try:
        yield Watched(*clients)
    finally:
        for client in clients:
            client.close()


def produce(bootstrap: str, topic: str, count: int, **more: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "writer", "linger.ms": 0} | more)
    for index in range(count):
        producer.produce(topic, b"value-%d" % index, partition=0)
        assert producer.flush(LONG) == 0


def consume(bootstrap: str, topic: str, group: str, count: int, **more: Any) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "client.id": "reader"}
        | more
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(count, LONG)) == count
    consumer.close()


def test_every_request_of_a_producer_is_seen_short_ways_included(broker: RunningBroker) -> None:
    create_through(broker.bootstrap_servers, "orders", 1)
    with watching(port_of(broker), client="writer") as watched:
        produce(broker.bootstrap_servers, "orders", 50)
        told = watched.named("Produce", 50)
    assert [each.answer for each in told] == [f"offset {index}" for index in range(50)]
    assert all("orders-0 1 record," in each.request for each in told)
    ids = [each.decoded.correlation_id for each in told]
    assert ids == sorted(ids) and all(each.decoded.exchange.took_ms >= 0 for each in told)
    assert told[0].decoded.connection is not None
    assert told[0].decoded.connection.software.startswith("confluent-kafka-python")
    assert not watched.skipped


def test_a_group_is_followed_through_its_rebalance_and_its_fetches(broker: RunningBroker) -> None:
    create_through(broker.bootstrap_servers, "read", 1)
    produce(broker.bootstrap_servers, "read", 3)
    with watching(port_of(broker), client="reader") as watched:
        consume(broker.bootstrap_servers, "read", "g", 3)
        watched.named("LeaveGroup")
    told = watched.told
    steps = [step for each in told for step in each.steps]
    rebalance = [step for step in steps if step.kind == "rebalance" and step.number == steps_of(told, "SyncGroup")]
    assert [step.place for step in rebalance] == list(range(1, len(rebalance) + 1)) and rebalance[-1].is_end
    assert any(each.decoded.name == "Fetch" and "record" in each.answer for each in told)
    text = "\n".join(line for each in told for line in details(each))
    assert "(KIP-227)" in text and "3 records" in text and "group_id: Str = 'g'" in text


def steps_of(told: list[ExplainedExchange], name: str) -> int:
    return next(each.steps[0].number for each in told if each.decoded.name == name)


def test_a_member_of_the_new_protocol_is_followed_until_it_has_its_partitions(broker: RunningBroker) -> None:
    create_through(broker.bootstrap_servers, "reconciled", 1)
    produce(broker.bootstrap_servers, "reconciled", 1)
    with watching(port_of(broker), client="reader") as watched:
        consume(broker.bootstrap_servers, "reconciled", "new", 1, **{"group.protocol": "consumer"})
        told = watched.until(lambda told: [each for each in told if "leaves" in each.request])
    steps = [step for each in told for step in each.steps if step.kind == "reconciliation"]
    assert "the member joins" in steps[0].text
    assert any("it has what it is to have" in step.text for step in steps if step.is_end), steps
    assert any("to read reconciled-0" in each.answer for each in told)


def test_records_that_leave_by_sendfile_are_described_by_their_header(broker: RunningBroker) -> None:
    create_through(broker.bootstrap_servers, "large", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("large", os.urandom(500_000))
    assert producer.flush(LONG) == 0
    with watching(port_of(broker), apis=["Fetch"]) as watched:
        consume(broker.bootstrap_servers, "large", "l", 1)
        told = watched.until(lambda told: [each for each in told if "1 record," in each.answer])
    fetch = next(each for each in told if "1 record," in each.answer)
    response = fetch.decoded.exchange.response
    assert response is not None and response.size > 500_000 and response.kept < 10_000
    assert any("were cut" in line for line in details(fetch))


def test_who_is_connected_is_listed(broker: RunningBroker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    connection = Connection("127.0.0.1", port, client_id="it-is-me", deadline=time.monotonic() + LONG)
    arguments = ["watch", "-b", f"127.0.0.1:{port_of(broker)}", "--connections"]
    assert main(arguments) == 0
    output = capfdbinary.readouterr().out.decode()
    assert re.search(rf"it-is-me .*PLAINTEXT +User:ANONYMOUS +kbroker {re.escape(__version__)} +- +- ", output)

    def told() -> dict[str, Any]:
        assert main([*arguments, "--json"]) == 0
        [row] = [row for row in json.loads(capfdbinary.readouterr().out) if row["client_id"] == "it-is-me"]
        return dict(row)

    before = told()
    assert abs(before["since_ms"] / 1000 - time.time()) < 600 and len(before["run"]) == 8
    connection.request(HeartbeatRequest(group_id="nobody", member_id="m"), time.monotonic() + LONG)
    after = told()
    assert after["requests"] == before["requests"] + 1 and after["bytes_received"] > before["bytes_received"]
    connection.close()


def test_others_sites_and_nonsense_are_refused(broker: RunningBroker) -> None:
    def status(path: str, **headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port_of(broker), timeout=LONG)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        connection.close()
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        return response.status

    assert status("/connections") == 200 and status("/nowhere") == 404
    assert status("/exchanges?api=Nonsense") == 400
    assert status("//[") == 400
    assert status("/connections", Host="evil.example") == 403
    assert status("/connections", **{"Sec-Fetch-Site": "cross-site"}) == 403
    assert status("/exchanges", Origin="http://evil.example") == 403


def test_it_is_off_unless_asked_for() -> None:
    code = """
import sys, kbroker.tools.cli.start, kbroker.node.broker
print([m for m in sys.modules if "explorer" in m or "observed" in m])
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"


def test_what_is_saved_is_read_decoded_and_replayed(
    broker: RunningBroker, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    create_through(broker.bootstrap_servers, "saved", 1)
    file = tmp_path / "saved.exchanges"
    arguments = ["watch", "-b", f"127.0.0.1:{port_of(broker)}", "--topic", "saved", "--api", "Produce"]
    command = [sys.executable, "-m", "kbroker", *arguments, "--save", str(file), "--count", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("TIME")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        while process.poll() is None:
            producer.produce("saved", b"x", partition=0)
            assert producer.flush(LONG) == 0
        lines = process.stdout.read().splitlines()
    assert len(lines) == 5 and all("Produce v" in line and "saved-0 1 record," in line for line in lines)
    assert main(["watch", "--read", str(file)]) == 0
    assert capfdbinary.readouterr().out.decode().splitlines()[1:] == lines
    assert main(["watch", "--read", str(file), "--json", "--verbose", "--count", "1"]) == 0
    document = json.loads(capfdbinary.readouterr().out)
    assert document["topics"] == {"saved": [0]} and document["request_fields"]["rows"][0]["depth"] == 0
    assert main(["decode", str(file)]) == 0
    text = capfdbinary.readouterr().out.decode()
    assert text.count("A producer hands over batches of records") == 5 and "batch of" in text
    done = replay(file, broker.bootstrap_servers)
    assert len(done) == 5 and not any(each.differences for each in done)
    with running_broker() as other:
        done = replay(file, other.bootstrap_servers)
        assert all("NONE, now UNKNOWN_TOPIC_OR_PARTITION" in each.differences[0] for each in done), done
    with pytest.raises(ReplayError, match="no requests of connection 99999"):
        replay(file, broker.bootstrap_servers, connection=99999)
    file.write_text("nonsense\n")
    with pytest.raises(ReplayError, match="line 1"):
        replay(file, broker.bootstrap_servers)
    assert main(["watch", "--read", str(file)]) == 1


def test_a_session_of_a_group_is_replayed_against_another_broker(broker: RunningBroker, tmp_path: Path) -> None:
    create_through(broker.bootstrap_servers, "again", 1)
    file = tmp_path / "group.exchanges"
    with watching(port_of(broker), client="reader") as watched:
        produce(broker.bootstrap_servers, "again", 1)
        consume(broker.bootstrap_servers, "again", "group-again", 1)
        watched.named("LeaveGroup")
    from kbroker.observe.explorer.lines import line_of

    file.write_text("".join(map(line_of, watched.items)))
    number = next(each.decoded.exchange.connection for each in watched.told if each.decoded.name == "JoinGroup")
    with running_broker() as other:
        create_through(other.bootstrap_servers, "again", 1)
        produce(other.bootstrap_servers, "again", 1)
        consume(other.bootstrap_servers, "again", "another", 1)  # which makes the topic of offsets
        done = replay(file, other.bootstrap_servers, connection=number)
    joined = [each for each in done if "JoinGroup" in each.request or "SyncGroup" in each.request]
    assert joined and not any(each.differences for each in joined), done


def test_keys_pause_and_end_it(broker: RunningBroker) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kbroker", "watch", "-b", f"127.0.0.1:{port_of(broker)}"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        assert process.stderr is not None
        output = b""
        while b"ANSWER" not in output:
            output += os.read(ours, 1000)
        for _ in range(2):
            os.write(ours, b" ")
        assert b"paused" in process.stderr.readline() and b"goes on" in process.stderr.readline()
        os.write(ours, b"q")
        assert process.wait(LONG) == 0
    os.close(ours)


def test_metrics_count_what_is_watched() -> None:
    with running_broker(LISTENER | {"prometheus.metrics.reporter.listener": "http://127.0.0.1:0"}) as node:
        with watching(port_of(node), apis=["Produce"]) as watched:
            produce(node.bootstrap_servers, "both", 5)
            watched.named("Produce", 5)
        port = node.in_broker(lambda node: node.metrics_port)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
    counts = re.findall(r'requestmetrics_requests_total\{[^}]*request="Produce"[^}]*\} (\S+)', page)
    assert sum(map(float, counts)) == 5


def test_an_address_of_another_form_is_refused() -> None:
    for value in ("9292", "https://127.0.0.1:9292", "http://127.0.0.1:99999"):
        with pytest.raises(FatalError, match=re.escape(LISTENER_NAME)), running_broker({LISTENER_NAME: value}):
            pass
    with running_broker(LISTENER) as node:
        taken = {LISTENER_NAME: f"http://127.0.0.1:{port_of(node)}"}
        with pytest.raises(FatalError, match="explorer: cannot listen on"), running_broker(taken):
            pass


def test_others_are_warned_of() -> None:
    with running_broker({LISTENER_NAME: "http://0.0.0.0:0"}) as node:
        assert any("whoever reaches this address" in record.getMessage() for record in node.logs)


def test_nothing_listens_there(capfd: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    assert main(["watch", "-b", f"127.0.0.1:{port}"]) == 1
    assert "is the node started with --explorer?" in capfd.readouterr().err
    assert main(["watch", "--api", "Nonsense"]) == 2


def test_logins_are_seen_without_their_secrets() -> None:
    properties = LISTENER | {
        "listeners": "CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "connection.failed.authentication.delay.ms": "1",
        "listener.name.clients.plain.sasl.jaas.config": (
            f'{PLAIN} required username="broker" password="b" user_broker="b" user_alice="{SECRET}";'
        ),
    }
    with running_broker(properties) as node, watching(port_of(node)) as watched:
        security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        client: dict[str, Any] = {"bootstrap.servers": node.bootstrap_servers, **security}
        admin = AdminClient(client | {"sasl.password": SECRET, "client.id": "alice-client"})
        admin.list_topics(timeout=LONG)
        operation = AlterConfigOpType.SET
        entry = ConfigEntry("listener.name.clients.ssl.key.password", SECRET, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.exception(120)
        (changed,) = watched.named("IncrementalAlterConfigs")
        metadata = watched.named("Metadata")[0]
        login = watched.named("SaslAuthenticate")[0]
        everything = b"".join(
            frame.filled()
            for each in watched.told
            for frame in (each.decoded.exchange.request, each.decoded.exchange.response)
            if frame is not None
        )
        assert SECRET.encode() not in everything and changed.decoded.exchange.is_redacted
        assert "listener.name.clients.ssl.key.password" in "\n".join(details(changed))
        assert login.steps[0].kind == "login" and login.decoded.exchange.is_redacted
        assert metadata.decoded.connection is not None and metadata.decoded.connection.principal == "User:alice"
        assert metadata.decoded.exchange.connection == login.decoded.exchange.connection
        assert metadata.decoded.connection.software.startswith("confluent-kafka-python")
        explorer = ExplorerClient("127.0.0.1", port_of(node))
        clients = [each for each in explorer.connections() if each.client_id == "alice-client"]
        assert {(each.sasl, each.tls, each.connection.principal) for each in clients} == {("PLAIN", "", "User:alice")}
        wrong = AdminClient(client | {"sasl.password": "wrong-secret"})
        watched.until(lambda told: [each for each in told for step in each.steps if "refused" in step.text])
        refused = next(
            each.decoded.exchange.connection for each in watched.told for step in each.steps if "refused" in step.text
        )
        watched.until(lambda _: [it for it in watched.items if isinstance(it, Closed) and it.number == refused])
        del wrong


def test_a_forwarded_request_is_seen_on_both_nodes_which_are_told_from_clients(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    with running_cluster(3, LISTENER) as cluster:
        ports = {
            node.id: int(re.findall(r"protocol explorer is on http://127.0.0.1:(\d+)", node.log)[-1])
            for node in cluster.nodes
        }
        with watching(*ports.values(), controllers=True) as watched:
            for node in cluster.nodes:
                create_through(node.bootstrap_servers, f"forwarded-{node.id}")
            asked = watched.named("CreateTopics", 5)
            await_topics(cluster, "forwarded-1")  # its leader would refuse a record before
            produce(cluster.bootstrap_servers, "forwarded-1", 5, acks="all")
            produced = watched.named("Produce", 5)
            fetches = watched.until(lambda told: [each for each in told if followed(each)])
        assert_nodes_are_told_from_clients(cluster, list(ports.values()), capfdbinary)
    forwarded = [each for each in asked if each.decoded.is_internal]
    (controller,) = {each.decoded.exchange.node for each in forwarded}
    assert len(asked) == 5 and {name for each in forwarded for name in each.topics} == {
        f"forwarded-{number}" for number in ports if number != controller
    }
    assert {each.decoded.exchange.node: each.topics for each in asked if not each.decoded.is_internal} == {
        number: {f"forwarded-{number}": []} for number in ports
    }
    assert [each.answer for each in produced] == [f"offset {index}" for index in range(5)]
    assert all(each.decoded.is_internal for each in fetches if followed(each))
    assert any(step.kind == "fetch session" for each in fetches for step in each.steps)
    assert any(each.decoded.name == "Fetch" and "__cluster_metadata-0" in each.request for each in fetches)


def assert_nodes_are_told_from_clients(
    cluster: RunningCluster, ports: list[int], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """On the listener that clients have, too, and by what has been asked, not by names."""
    create_through(cluster.bootstrap_servers, "led-by-each", partitions=3)  # so that each is asked by followers
    address = ("127.0.0.1", int(cluster.bootstrap_servers.partition(",")[0].rpartition(":")[2]))
    client = Connection(*address, client_id="broker-2-fetcher-0", deadline=time.monotonic() + LONG)
    arguments = ["watch", "-b", ",".join(f"127.0.0.1:{port}" for port in ports), "--connections", "--json"]

    def told(*more: str) -> tuple[list[dict[str, Any]], str]:
        assert main([*arguments, *more]) == 0
        output = capfdbinary.readouterr()
        return json.loads(output.out), output.err.decode()

    rows, left_out = told()
    deadline = time.monotonic() + LONG
    while [row["client_id"] for row in rows] != ["broker-2-fetcher-0"] and time.monotonic() < deadline:
        time.sleep(0.1)  # a connection that has only just come has asked nothing yet; clients' go
        rows, left_out = told()
    assert len(rows) == 1, rows
    assert rows[0]["kind"] == "client"
    assert re.fullmatch(
        r"kbroker: \d+ connections of brokers and controllers are left out: --internal lists them, too\n", left_out
    )
    everywhere = {f"127.0.0.1:{port}" for port in ports}
    nodes: list[dict[str, Any]] = []
    while {row["explorer"] for row in nodes} != everywhere and time.monotonic() < deadline:
        nodes = [row for row in told("--internal")[0] if row["kind"] == "node"]
    assert {row["explorer"] for row in nodes} == everywhere
    assert {row["listener"] for row in nodes} == {rows[0]["listener"], "CONTROLLER"}
    client.close()


def create_through(bootstrap: str, name: str, replicas: int = 3, partitions: int = 1) -> None:
    port = int(bootstrap.rpartition(":")[2])
    deadline = time.monotonic() + LONG
    connection = Connection("127.0.0.1", port, client_id="maker", deadline=deadline)
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    answer = connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=LONG_MS), deadline)
    assert answer.topics[0].error_code == 0
    connection.close()


def followed(told: ExplainedExchange) -> bool:
    """Whether it is a follower's Fetch."""
    return told.decoded.name == "Fetch" and told.decoded.request.replica_state.replica_id > 0
