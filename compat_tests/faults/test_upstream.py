"""The same faults before Apache Kafka as on nodes of kbroker, and nothing else than without doors where there are none.

    pytest compat_tests/faults --broker apache

Of kbroker, the doors are judged beside faults of a cluster's own nodes; of Apache Kafka, too.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from compat_tests.apache_kafka import SERVER_VERSION, tool
from kbroker.testing import RunningCluster, running_cluster
from kbroker.testing.script import FaultScript
from kbroker.testing.upstream import UpstreamCluster
from kbroker.testing.verbs import Verbs
from tests.patience import LONG

COUNT = 100_000
"""Records of which the time is taken."""

QUICK = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 50, "reconnect.backoff.ms": 20, "log_level": 0}


@pytest.fixture(scope="module")
def nodes() -> Iterator[RunningCluster]:
    """Nodes of kbroker that have the faults themselves."""
    with running_cluster(3) as cluster:
        yield cluster


def new_topic(bootstrap: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(LONG)
    return name


def librdkafka(bootstrap: str, topic: str) -> list[Any]:
    """Have a program on librdkafka write and read; the things it sees."""
    told: list[Any] = []
    for idempotent in (False, True):
        config = {"bootstrap.servers": bootstrap, **QUICK, "enable.idempotence": idempotent}
        producer = Producer(config)
        for number in range(4):
            producer.produce(
                topic, f"{idempotent}-{number}", on_delivery=lambda error, _: told.append(error and error.name())
            )
            producer.flush(LONG)
    consumer = Consumer({**QUICK, "bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[str] = []
    while not found or found[-1] != "True-3":
        message = consumer.poll(LONG)
        assert message is not None
        error, value = message.error(), message.value()
        found.append(error.name() if error is not None else (value or b"").decode())
    told.append(found)
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        told.append(error.args[0].name())
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=LONG)[1] for _ in range(2)]
    told.append(ends[1] - ends[0])
    consumer.close()
    return told


def kafka_python(bootstrap: str, topic: str) -> list[Any]:
    """Have a program on kafka-python write and read; the things it sees."""
    told: list[Any] = []
    for idempotent in (False, True):
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, retry_backoff_ms=20, enable_idempotence=idempotent, acks="all"
        )
        for number in range(4):
            sent = producer.send(topic, f"{idempotent}-{number}".encode())
            try:
                sent.get(LONG)
                told.append(None)
            except Exception as error:
                told.append(type(error).__name__)
        producer.close()
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", retry_backoff_ms=20
    )
    found: list[str] = []
    while not found or found[-1] != "True-3":
        found += [each.value.decode() for batch in consumer.poll(1000).values() for each in batch]
    consumer.close()
    return [*told, found]


def java(bootstrap: str, topic: str) -> list[Any]:
    """Have Kafka's own console tools write and read; the things they tell."""
    lines = "".join(f"{number}\n" for number in range(4))
    address = ("--bootstrap-server", bootstrap, "--topic", topic)
    quick = ("--producer-property", "retry.backoff.ms=20", "--sync")
    said = tool("kafka-console-producer", *address, *quick, stdin=lines, version=SERVER_VERSION)
    refused = sum("POLICY_VIOLATION" in line or "PolicyViolation" in line for line in said.stderr.splitlines())
    read = ("--from-beginning", "--max-messages", "3", "--group", topic)
    found = tool("kafka-console-consumer", *address, *read, version=SERVER_VERSION)
    return [said.returncode, bool(refused), found.returncode, found.stdout.split()]


PROGRAMS: dict[str, Callable[[str, str], list[Any]]] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "java": java,
}

FILES = {
    "answers are lost": "drop Produce when=after topic={topic} nth=2\ndrop Produce topic={topic} nth=6\n",
    "errors pass, or do not": (
        "error Produce code=NOT_LEADER_OR_FOLLOWER topic={topic} nth=2\n"
        "error Produce code=POLICY_VIOLATION topic={topic} nth=4\n"
        "error Fetch code=NOT_LEADER_OR_FOLLOWER topic={topic} times=2\n"
        "error FindCoordinator code=COORDINATOR_NOT_AVAILABLE times=1\n"
        "error JoinGroup code=NOT_COORDINATOR times=1\n"
    ),
    "all is slow, and connections break": (
        "delay Produce seconds=0.05 topic={topic}\n"
        "drop Fetch topic={topic} times=2\n"
        "drop Metadata times=1\n"
        "error Heartbeat code=REBALANCE_IN_PROGRESS times=1\n"
        "stale-latest {topic} behind=2\n"
    ),
}


@pytest.mark.parametrize("program", list(PROGRAMS))
@pytest.mark.parametrize("file", list(FILES))
def test_a_file_of_faults(upstream: UpstreamCluster, nodes: RunningCluster, program: str, file: str) -> None:
    def seen(target: Verbs) -> tuple[list[Any], set[str]]:
        topic = new_topic(target.bootstrap_servers, f"f{uuid.uuid4().hex}")
        before = len(target.faults.record)
        FaultScript(target).begin(FILES[file].format(topic=topic).splitlines())
        try:
            told = PROGRAMS[program](target.bootstrap_servers, topic)
        finally:
            target.faults.clear()
        return told, {f"{each.action} {each.api}" for each in target.faults.record[before:]}

    assert seen(upstream) == seen(nodes)


def test_nothing_is_changed_without_a_fault(upstream: UpstreamCluster, bootstrap: str) -> None:
    def seen(address: str) -> list[Any]:
        topic = new_topic(address, f"t{uuid.uuid4().hex}")
        told: list[Any] = [librdkafka(address, topic), kafka_python(address, new_topic(address, f"{topic}-2"))]
        producer = Producer({"bootstrap.servers": address, **QUICK, "transactional.id": topic})
        producer.init_transactions(LONG)
        consumer = Consumer(
            {**QUICK, "bootstrap.servers": address, "group.id": f"{topic}-t", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        for commits in (False, True):
            producer.begin_transaction()
            producer.produce(topic, str(commits))
            assert consumer.poll(LONG) is not None
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), LONG
            )
            (producer.commit_transaction if commits else producer.abort_transaction)(LONG)
        told.append([each.offset for each in consumer.committed(consumer.assignment(), LONG)])
        consumer.close()
        admin = AdminClient({"bootstrap.servers": address, **QUICK})
        resource = ConfigResource(ResourceType.TOPIC, topic)
        configs = admin.describe_configs([resource])[resource].result(LONG)
        told.append({name: each.value for name, each in configs.items() if not name.startswith("log.dir")})
        group = admin.describe_consumer_groups([f"{topic}-t"])[f"{topic}-t"].result(LONG)
        told.append([group.state == ConsumerGroupState.EMPTY, group.type])
        cluster = admin.describe_cluster().result(LONG)
        told.append([sorted(node.id for node in cluster.nodes), cluster.cluster_id])
        lags = tool("kafka-consumer-groups", "--bootstrap-server", address, "--describe", "--group", topic)
        told.append(" ".join(lags.stdout.split()).replace(topic, "T"))
        admin.delete_topics([topic])[topic].result(LONG)
        return told

    assert seen(upstream.bootstrap_servers) == seen(bootstrap)


def test_the_cluster_is_asked_past_the_faults(upstream: UpstreamCluster) -> None:
    topic = new_topic(upstream.bootstrap_servers, f"t{uuid.uuid4().hex}")
    with upstream.faults.error("Metadata", "BROKER_NOT_AVAILABLE"), upstream.faults.drop("ListOffsets"):
        assert upstream.wait_for_end(topic, 0).offset == 0
    librdkafka(upstream.bootstrap_servers, topic)
    assert upstream.wait_until_drained(topic, topic).lag == {0: 0}
    assert upstream.wait_for_group(topic, state="Empty", members=0).type.lower() == "classic"
    for node in (2, 3):
        assert upstream.move_leader(topic, to=node).leader == node
        assert upstream.move_coordinator(topic, to=node).leader == node
    upstream.record_requests()
    producer = Producer({"bootstrap.servers": upstream.bootstrap_servers, **QUICK})
    producer.produce(topic, "a")
    producer.flush(LONG)
    asked = upstream.requests(api="Produce", topic=topic)
    assert asked.count == 1 and asked.requests[0].node == 3 and asked.requests[0].topics == {topic: [0]}
    assert upstream.empty_topic(topic) == {0: 9}
    upstream.faults.recreate_topic(topic, partitions=2)
    assert upstream.wait_for_end(topic, 0, partition=1).offset == 0
    upstream.faults.delete_topic(topic)
    assert upstream.wait_for_end(topic, -1, timeout=0).offset == -1


def test_overhead(upstream: UpstreamCluster, bootstrap: str) -> None:
    """Print the best of three: records a second written and read, and a record that waits to be acknowledged."""
    places = {"directly": bootstrap, "through": upstream.bootstrap_servers}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in places}
    for _ in range(3):
        for name, address in places.items():
            found[name].append(measured(address))
    for name, rounds in found.items():
        written, read, one = (min(each) for each in zip(*rounds, strict=True))
        print(f"{name}: {COUNT / written:,.0f}/s written, {COUNT / read:,.0f}/s read, {1000 * one:.2f} ms for one")
    assert all(len(rounds) == 3 for rounds in found.values())


def measured(address: str) -> tuple[float, float, float]:
    """Seconds to write and to read many records, and for one that is waited for."""
    topic = new_topic(address, f"o{uuid.uuid4().hex}")
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 1 << 20})
    began = time.perf_counter()
    for _ in range(COUNT):
        producer.produce(topic, bytes(100))
    assert producer.flush(LONG) == 0
    written = time.perf_counter() - began
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    began, seen = time.perf_counter(), 0
    while seen < COUNT:
        seen += len(consumer.consume(10_000, LONG))
    read = time.perf_counter() - began
    consumer.close()
    one, times = Producer({"bootstrap.servers": address, "linger.ms": 0}), []
    for _ in range(200):
        began = time.perf_counter()
        one.produce(topic, b"x")
        one.flush(LONG)
        times.append(time.perf_counter() - began)
    return written, read, sorted(times)[100]
