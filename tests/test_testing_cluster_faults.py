"""cluster.faults: at one node or at all, counted once, through deaths of nodes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.errors import ApiError, ErrorCode
from kbroker.testing import ClusterNode, RunningCluster, running_cluster
from kbroker.testing.link import Link, LinkClosed
from kbroker.testing.script import FaultScript
from kbroker.wire.messages.groups import ListGroupsRequest
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.every_node import await_topics
from tests.first_requests import EarlyClients
from tests.patience import LONG

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = pytest.mark.slow

CONFIG: dict[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 40,
}


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningCluster]:
    """Leaders move when a test has them move: a node that stands still is not missed, and none gets its lead back."""
    with running_cluster(3, {"auto.leader.rebalance.enable": False, "broker.session.timeout.ms": 60_000}) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: RunningCluster) -> Iterator[RunningCluster]:
    shared.heal()
    with shared.faults:
        yield shared


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    """Three partitions, each with another leader."""
    return create(cluster, 3)


def create(cluster: RunningCluster, partitions: int, **config: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **CONFIG})
    configs = {key.replace("_", "."): value for key, value in config.items()}
    client.create_topics([admin.NewTopic(name, partitions, 3, config=configs)])[name].result(LONG)
    await_topics(cluster, name)
    return name


def produce(cluster: RunningCluster, topic: str, *values: str, partition: int = 0, key: str = "", **config: Any) -> Any:
    """The error of each record, or None; one after another."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **CONFIG}
    producer = confluent_kafka.Producer(settings | {k.replace("_", "."): v for k, v in config.items()})
    errors: list[str | None] = []
    for value in values:
        producer.produce(
            topic,
            value,
            key or None,
            partition=partition,
            on_delivery=lambda error, message: errors.append(error and error.name()),
        )
        assert producer.flush(LONG) == 0
    return errors


def read(cluster: RunningCluster, topic: str, partition: int = 0, first: int = 0) -> list[tuple[int, str]]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "error", **CONFIG})
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, first)])
    found = []
    try:
        while (message := consumer.poll(LONG)).error() is None:
            found.append((message.offset(), message.value().decode()))
        assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
        return found
    finally:
        consumer.close()


def test_at_one_node(cluster: RunningCluster, topic: str) -> None:
    leader = cluster.leader_of(topic)
    other = next(node for node in cluster.nodes if node is not leader)
    unused = other.faults.drop("Produce", topic=topic)
    lost = leader.faults.drop("Produce", when="after", topic=topic, times=1)
    assert cluster.faults.active == [unused, lost] and leader.faults.active == [lost]
    assert produce(cluster, topic, "a", "b") == [None, None]
    assert (unused.hits, lost.hits) == (0, 1)
    assert read(cluster, topic) == [(0, "a"), (1, "b")]
    (injection,) = lost.injections
    assert injection.node == leader.id and injection.partitions == ((topic, 0),)
    assert f"of rdkafka at node {leader.id} ({topic}-0)" in str(injection)
    assert cluster.faults.record[-1] == injection


def test_at_all_nodes_and_counted_once(cluster: RunningCluster, topic: str) -> None:
    assert len({cluster.leader_of(topic, partition) for partition in range(3)}) == 3
    with cluster.faults.error("Produce", "POLICY_VIOLATION", topic=topic, times=2) as fault:
        errors = [produce(cluster, topic, "x", partition=partition)[0] for partition in range(3)]
        assert errors == ["POLICY_VIOLATION", "POLICY_VIOLATION", None]
        assert len({injection.node for injection in fault.injections}) == 2
    with cluster.faults.error("Produce", "POLICY_VIOLATION", topic=topic, nth=2):
        errors = [produce(cluster, topic, "x", partition=partition)[0] for partition in range(3)]
        assert errors == [None, "POLICY_VIOLATION", None]
    assert cluster.faults.active == []
    assert produce(cluster, topic, "x") == [None]


def test_followers_are_left_alone_unless_meant(cluster: RunningCluster, topic: str) -> None:
    with cluster.faults.drop("Fetch", topic=topic) as fault:
        assert produce(cluster, topic, "a", acks="all") == [None]
        assert fault.hits == 0
    errors: list[Any] = []
    held = cluster.faults.hold("Fetch", topic=topic, followers=True)
    held.wait(2)
    waiting = threading.Thread(target=lambda: errors.extend(produce(cluster, topic, "b", acks="all")))
    waiting.start()
    held.undo()  # nothing of it is acknowledged before: neither follower can have it
    waiting.join(LONG)
    assert errors == [None]
    assert {injection.client_id for injection in held.injections} <= {f"broker-{n}-fetcher-0" for n in (1, 2, 3)}
    assert read(cluster, topic) == [(0, "a"), (1, "b")]


def test_a_node_that_starts_again_has_its_faults(cluster: RunningCluster, topic: str) -> None:
    leader = cluster.leader_of(topic)
    everywhere = cluster.faults.error("ListGroups", "GROUP_AUTHORIZATION_FAILED")
    leader.kill()
    here = leader.faults.error("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic=topic)
    leader.start()
    assert errors_at(leader, topic) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (everywhere.hits, here.hits) == (1, 1)
    leader.pause()
    everywhere.undo()
    here.undo()
    leader.resume()
    cluster.heal()
    assert errors_at(leader, topic) == (0, 0)


@pytest.mark.everything
def test_no_request_is_served_before_a_node_has_its_faults(cluster: RunningCluster) -> None:
    node = cluster.nodes[1]
    with cluster.faults.error("ListGroups", "GROUP_AUTHORIZATION_FAILED"):
        with EarlyClients(node.bootstrap_servers).asking() as codes:
            node.restart()
            node.kill()
            node.start(wait=False)
            later = node.faults.delay("ListGroups", 0)  # is told of while the node is about to start
            node.await_ready()
        assert set(codes) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
        assert later.hits == 0  # the first has answered already
    with later:
        errors_at(node, "none")
        assert later.hits == 1


def errors_at(node: ClusterNode, topic: str) -> tuple[int, int]:
    """Of ListGroups, and of a topic in Metadata."""
    with Client(node.bootstrap_servers) as client:
        groups = client.ask_any(ListGroupsRequest())
        metadata = client.ask_any(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    return groups.error_code, metadata.topics[0].error_code


def test_records_and_topics(cluster: RunningCluster, topic: str) -> None:
    faults = cluster.faults
    for partition in range(3):
        assert produce(cluster, topic, "a", "b", "c", partition=partition) == [None] * 3
    assert faults.delete_records(topic, 0, before=1) == {0: 1}
    assert faults.delete_records(topic) == {0: 3, 1: 3, 2: 3}
    assert faults.offset_gap(topic, 1, size=5) == {1: 8}
    assert produce(cluster, topic, "d", partition=1) == [None]
    assert read(cluster, topic, 1, 3) == [(8, "d")]
    assert faults.apply_retention(topic) == {0: 3, 1: 3, 2: 3}
    assert faults.expire(topic, 1) == {1: 9}
    faults.recreate_topic(topic, partitions=1)
    assert produce(cluster, topic, "anew") == [None]
    assert read(cluster, topic) == [(0, "anew")]
    faults.delete_topic(topic)
    with pytest.raises(ApiError, match=f"there is no topic {topic}"):
        faults.expire(topic)
    assert [injection.action for injection in faults.record[-3:]] == ["expire", "recreate topic", "delete topic"]


def test_what_a_leader_did_before_it_died_is_not_done_twice(
    cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, lost = Link.call, []

    def unheard(link: Link, what: str, *limit: float, **arguments: Any) -> Any:
        answer = call(link, what, *limit, **arguments)
        if what == "act" and (name := arguments["name"]) not in lost:
            lost.append(name)
            raise LinkClosed  # the effect is there, but nobody is told
        return answer

    monkeypatch.setattr(Link, "call", unheard)
    assert cluster.faults.offset_gap(topic, 0, size=3) == {0: 3}
    assert cluster.faults.offset_gap(topic, 0, size=2) == {0: 5}
    cluster.faults.delete_topic(topic)
    assert lost == ["next_producer_id", "offset_gap", "delete_topic", "await_topic"]
    with pytest.raises(ApiError, match="there is no topic"):
        cluster.faults.delete_topic(topic)


def test_a_gap_while_no_controller_is_active(
    cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, refused = Link.call, [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_CONTROLLER]

    def refusing(link: Link, what: str, *limit: float, **arguments: Any) -> Any:
        if what == "act" and refused:
            raise ApiError(refused.pop(), "The active controller cannot be reached.")
        return call(link, what, *limit, **arguments)

    monkeypatch.setattr(Link, "call", refusing)
    assert cluster.faults.offset_gap(topic, 0, size=4) == {0: 4}
    assert refused == []


def test_a_leader_that_has_not_heard_of_its_topic_is_asked_again(
    cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, refused = Link.call, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def late(link: Link, what: str, *limit: float, **arguments: Any) -> Any:
        if what == "act" and refused:
            raise ApiError(refused.pop(), f"there is no topic {topic}")
        return call(link, what, *limit, **arguments)

    monkeypatch.setattr(Link, "call", late)
    assert cluster.faults.delete_records(topic, 0) == {0: 0}
    assert refused == []


def test_a_gap_whose_leader_dies_before_anybody_has_it(cluster: RunningCluster, topic: str) -> None:
    leader = cluster.leader_of(topic)
    ends: list[dict[int, int]] = []
    with cluster.faults.hold("Fetch", topic=topic, followers=True) as held:
        held.wait(2)
        gap = threading.Thread(target=lambda: ends.append(cluster.faults.offset_gap(topic, 0, size=4)))
        gap.start()
        leader.kill()  # before or after it has appended
    gap.join(LONG)
    assert ends == [{0: 4}]
    assert cluster.leader_of(topic) is not leader


def test_every_replica_is_compacted(cluster: RunningCluster) -> None:
    topic = create(cluster, 1, cleanup_policy="compact")
    for number in range(4):
        assert produce(cluster, topic, f"v{number}", key="ab"[number % 2]) == [None]
    cluster.faults.compact(topic)
    assert read(cluster, topic) == [(2, "v2"), (3, "v3")]
    cluster.leader_of(topic).stop()
    assert read(cluster, topic) == [(2, "v2"), (3, "v3")]


def test_a_topic_made_anew_has_as_many_replicas(cluster: RunningCluster) -> None:
    name = f"single-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, partitions=2, replicas=1)
    cluster.faults.recreate_topic(name)
    with cluster.client() as client:
        [found] = client.refresh([name])
    assert [len(each.replica_nodes) for each in found.partitions] == [1, 1]


def test_lines_of_a_script(cluster: RunningCluster, topic: str) -> None:
    script = FaultScript(cluster)
    leader = cluster.leader_of(topic)
    script.run(f"error Produce code=POLICY_VIOLATION topic={topic} node={leader.id % 3 + 1}")
    assert produce(cluster, topic, "a") == [None]
    script.run(f"error Produce code=POLICY_VIOLATION topic={topic} node={leader.id} times=1")
    assert produce(cluster, topic, "b", "c") == ["POLICY_VIOLATION", None]
    script.run(f"kill {leader.id}")
    assert not leader.is_running
    script.run(f"start {leader.id}")
    assert leader.is_running


def test_wrong_arguments_are_refused_and_leave_nothing(cluster: RunningCluster, topic: str) -> None:
    with pytest.raises(ValueError, match="Vote is not served to clients"):
        cluster.faults.drop("Vote")
    with pytest.raises(ApiError, match="there is no topic nowhere"):
        cluster.faults.expire("nowhere")
    with pytest.raises(ApiError, match="ends at 0") as caught:
        cluster.faults.delete_records(topic, 0, before=6)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.faults.active == []


def test_what_a_node_passes_on_to_the_controller_meets_its_faults_and_is_recorded(cluster: RunningCluster) -> None:
    fault = cluster.faults.error("CreateTopics", ErrorCode.POLICY_VIOLATION)
    cluster.record_requests()
    try:
        for node in cluster.nodes:
            client = admin.AdminClient({"bootstrap.servers": node.bootstrap_servers, **CONFIG})
            with pytest.raises(confluent_kafka.KafkaException, match="POLICY_VIOLATION"):
                client.create_topics([admin.NewTopic(f"passed-on-{node.id}", 1, 1)])[f"passed-on-{node.id}"].result(
                    LONG
                )
        assert fault.hits == 3
        assert len(cluster.requests(api="CreateTopics").requests) == 3
    finally:
        cluster.record_requests(False)
