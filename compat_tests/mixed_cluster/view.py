"""The view of one node alone, and the work of stock clients with nodes of both kinds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from compat_tests.coordinators import COORDINATOR_ELSEWHERE
from compat_tests.mixed_cluster.nodes import Node
from kbroker.client.connection import Connection
from kbroker.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.patience import LONG, LONG_MS, eventually

TOPIC_RESOURCE = 2
TOPIC_SOURCE = 1
"""``config_source`` of what was set for the topic itself."""
NOT_ELECTED = (80, 84)
"""PREFERRED_LEADER_NOT_AVAILABLE, of a node that is fenced for a moment, and ELECTION_NOT_NEEDED."""

CLIENT: Mapping[str, Any] = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}
PRODUCER: Mapping[str, Any] = {
    **CLIENT,
    "acks": "all",
    "enable.idempotence": True,
    "message.timeout.ms": 300_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
}


class PartitionView(NamedTuple):
    """A partition as a node describes it."""

    leader: int
    replicas: list[int]
    isr: list[int]
    leader_epoch: int


def ask(node: Node, request: Any) -> Any:
    """The answer of this very node."""
    deadline = time.monotonic() + LONG
    connection = Connection("127.0.0.1", node.port, client_id="mixed-cluster", deadline=deadline)
    try:
        return connection.request(request, deadline)
    finally:
        connection.close()


def topics(node: Node) -> dict[str, dict[int, PartitionView]]:
    """All topics that the node knows."""
    found = ask(node, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return {
        str(topic.name): {
            each.partition_index: PartitionView(
                each.leader_id, list(each.replica_nodes), sorted(each.isr_nodes), each.leader_epoch
            )
            for each in topic.partitions
        }
        for topic in found.topics
    }


def brokers(node: Node) -> list[int]:
    """Unfenced brokers, as the node knows them."""
    found = ask(node, MetadataRequest(topics=[], allow_auto_topic_creation=False))
    return sorted(broker.node_id for broker in found.brokers)


def partitions(node: Node, topic: str) -> dict[int, PartitionView]:
    """A topic as the node knows it; nothing if it does not."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return {
        each.partition_index: PartitionView(
            each.leader_id, list(each.replica_nodes), sorted(each.isr_nodes), each.leader_epoch
        )
        for found in ask(node, request).topics
        for each in found.partitions
    }


def topic_configs(node: Node, topic: str) -> dict[str, str | None]:
    """The topic's own configs, as the node knows them."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)]
    )
    [result] = ask(node, request).results
    return {each.name: each.value for each in result.configs if each.config_source == TOPIC_SOURCE}


def create(node: Node, name: str, placed: list[list[int]], **configs: str) -> None:
    """Create a topic by way of this node."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                    for index, replicas in enumerate(placed)
                ],
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=int(LONG_MS),
    )
    [result] = ask(node, request).topics
    assert result.error_code == 0, result


def delete(node: Node, name: str) -> None:
    """Delete a topic by way of this node."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=int(LONG_MS))
    [result] = ask(node, request).responses
    assert result.error_code == 0, result


def set_config(node: Node, topic: str, name: str, value: str) -> None:
    """Set a property of a topic by way of this node."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=topic,
                configs=[IncrementalAlterableConfig(name=name, config_operation=0, value=value)],
            )
        ]
    )
    [result] = ask(node, request).responses
    assert result.error_code == 0, result


def elect_preferred(node: Node, topic: str, index: int) -> None:
    """Let the first replica lead, if it does not and can."""
    request = ElectLeadersRequest(
        election_type=0, topic_partitions=[TopicPartitions(topic=topic, partitions=[index])], timeout_ms=60_000
    )
    response = ask(node, request)
    codes = {each.error_code for result in response.replica_election_results for each in result.partition_result}
    assert response.error_code == 0 and codes <= {0, *NOT_ELECTED}, response


def lead_preferred(nodes: tuple[Node, Node], topic: str) -> dict[int, PartitionView]:
    """Have the first replica of each partition lead, and wait until each node says so, with all replicas in sync."""

    def led() -> dict[int, PartitionView] | None:
        found = await_in_sync(nodes, topic)
        others = [index for index, each in found.items() if each.leader != each.replicas[0]]
        for index in others:
            elect_preferred(nodes[0], topic, index)
        return None if others else found

    preferred: dict[int, PartitionView] = eventually(led, f"the first replicas of {topic} to lead")
    return preferred


def coordinator(node: Node, key: str, key_type: int = 0) -> int:
    """The broker that coordinates a group (key type 1: a transactional id), as the node says; -1 if none yet."""
    [found] = ask(node, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])).coordinators
    return -1 if found.error_code else int(found.node_id)


def await_in_sync(nodes: tuple[Node, Node], topic: str) -> dict[int, PartitionView]:
    """Wait until each node says that all replicas of the topic are in sync and led, and says the same."""

    def agreed() -> dict[int, PartitionView] | None:
        one, other = (partitions(node, topic) for node in nodes)
        whole = one and all(each.leader > 0 and each.isr == sorted(each.replicas) for each in one.values())
        return one if whole and one == other else None

    found: dict[int, PartitionView] = eventually(agreed, f"all replicas of {topic} to be in sync")
    return found


def produce(servers: str, topic: str, values: Mapping[int, list[bytes]], **properties: Any) -> None:
    """Write values to partitions with acks=all; AssertionError if one is not acknowledged."""
    producer = Producer({**PRODUCER, "bootstrap.servers": servers, **properties})
    finish = send(producer, topic, values)
    finish()


def send(producer: Producer, topic: str, values: Mapping[int, list[bytes]]) -> Callable[[], None]:
    """Send values to partitions; what is returned waits for their acknowledgements."""
    failures: list[KafkaError] = []
    acknowledged = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(error)

    for index, each in values.items():
        for value in each:
            producer.produce(topic, value, partition=index, on_delivery=delivered)

    def finish() -> None:
        producer.flush(LONG)
        assert not failures and acknowledged == sum(map(len, values.values())), (acknowledged, failures[:3])

    return finish


def transact(servers: str, name: str, topic: str, values: Mapping[int, list[bytes]]) -> None:
    """Abort one transaction with other values, and commit one with these."""
    # A transaction may not end before its messages.
    own = {"bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 300_000}
    producer = Producer({**PRODUCER, **own})
    producer.init_transactions(LONG)
    producer.begin_transaction()
    send(producer, topic, {index: [b"aborted"] for index in values})()
    producer.abort_transaction(LONG)
    producer.begin_transaction()
    send(producer, topic, values)()
    producer.commit_transaction(LONG)


def read(
    servers: str, topic: str, counts: Mapping[int, int], group: str = "", protocol: str = "classic"
) -> dict[int, list[bytes]]:
    """Read the given number of values from each partition, committed ones alone.

    Without a `group` from the beginning; as a `group` from its offsets, which are committed afterwards.
    """
    deadline = time.monotonic() + LONG
    while (found := _read(servers, topic, counts, group, protocol, deadline)) is None:
        pass
    return found


def _read(
    servers: str, topic: str, counts: Mapping[int, int], group: str, protocol: str, deadline: float
) -> dict[int, list[bytes]] | None:
    """None, with nothing committed, where the coordinator has moved meanwhile: its consumer reads no further."""
    consumer = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": servers,
            "group.protocol": protocol,
            "group.id": group or "nobody",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    found: dict[int, list[bytes]] = {index: [] for index in counts}
    try:
        if group:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, index, 0) for index in counts])
        while sum(map(len, found.values())) < sum(counts.values()):
            assert time.monotonic() < deadline, {index: len(values) for index, values in found.items()}
            message = consumer.poll(0.2)
            error = None if message is None else message.error()
            if error is not None and error.code() in COORDINATOR_ELSEWHERE:
                return None
            if message is not None and error is None:
                index = message.partition()
                assert index is not None
                found[index].append(message.value() or b"")
        if group:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as problem:
                if problem.args[0].code() not in COORDINATOR_ELSEWHERE:
                    raise
                return None
    finally:
        consumer.close()
    return found


def log_bytes(node: Node, topic: str, index: int) -> bytes:
    """The replica's log as it is on the node's disk."""
    directory = node.directory / "data" / f"{topic}-{index}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def await_same_logs(nodes: tuple[Node, Node], topic: str, indexes: range) -> None:
    """Wait until both nodes' files of these partitions are the same, byte for byte, and not empty."""

    def same() -> bool:
        pairs = [tuple(log_bytes(node, topic, index) for node in nodes) for index in indexes]
        return all(one and one == other for one, other in pairs)

    eventually(same, f"the logs of {topic} to be the same")
