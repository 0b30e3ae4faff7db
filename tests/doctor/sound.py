"""Facts about a sound cluster of three brokers, its configuration, client and machine, for tests to spoil."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kbroker.client.nodes import Feature
from kbroker.client.quotas import EntityQuotas
from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.tools.diagnosis.facts import Quorum, QuorumNode
from kbroker.tools.doctor.facts import (
    BrokerFacts,
    CertificateFacts,
    ClientFacts,
    ClusterFacts,
    ConfigurationFacts,
    DirectoryFacts,
    Facts,
    GroupFacts,
    GroupLook,
    ListenerConfig,
    ListenerFacts,
    LogDirFacts,
    MachineFacts,
    TopicFacts,
)
from kbroker.types import TopicPartition, Uuid

NOW = 1_750_000_000_000
DAY = 86_400_000
P0 = TopicPartition("orders", 0)

CERTIFICATE = CertificateFacts("CN=kafka", ("kafka-1", "kafka-2", "kafka-3", "kafka"), NOW - DAY, NOW + 300 * DAY)

CONFIGS = {
    "authorizer.class.name": "",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "group.max.session.timeout.ms": "1800000",
    "group.min.session.timeout.ms": "6000",
    "message.max.bytes": "1048588",
    "offsets.retention.minutes": "10080",
    "offsets.topic.replication.factor": "3",
    "replica.fetch.response.max.bytes": "10485760",
    "share.coordinator.state.topic.replication.factor": "3",
    "socket.request.max.bytes": "104857600",
    "transaction.max.timeout.ms": "900000",
    "transaction.state.log.replication.factor": "3",
}
TOPIC_CONFIGS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "2",
    "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def listener(broker: int | None, host: str, **changes: Any) -> ListenerFacts:
    """A listener of SASL_SSL that has let the client in."""
    found = ListenerFacts(
        host,
        9093,
        broker,
        ("192.0.2.7",),
        has_tls=True,
        has_sasl=True,
        mechanisms=("SCRAM-SHA-512",),
        certificate=CERTIFICATE,
        entered=True,
        cluster_id="c1",
    )
    return replace(found, **changes)


def broker(number: int, **changes: Any) -> BrokerFacts:
    """A broker that was reached."""
    found = BrokerFacts(
        number,
        False,
        listener(number, f"kafka-{number}"),
        CONFIGS,
        False,
        (LogDirFacts("/data", False, 1 << 40, 1 << 39),),
        {0: (3, 13), 1: (4, 18)},
        (Feature("metadata.version", 7, 30, 30), Feature("group.version", 0, 1, 1), Feature("share.version", 0, 2, 0)),
        NOW - 10_000,
    )
    return replace(found, **changes)


def topic(name: str, partitions: int = 2, *, replicas: tuple[int, ...] = (1, 2, 3), **configs: str) -> TopicFacts:
    """A topic whose replicas are in sync; names of configs with ``_`` for dots."""
    described = TopicDescription(
        name,
        Uuid(bytes(range(16))),
        name.startswith("__"),
        tuple(PartitionDescription(index, replicas[0], 1, replicas, replicas, ()) for index in range(partitions)),
    )
    given = {key.replace("_", "."): value for key, value in configs.items()}
    return TopicFacts(described, TOPIC_CONFIGS | given, dict.fromkeys(range(partitions), NOW - 60000))


def in_sync(found: TopicFacts, isr: tuple[int, ...], leader: int | None = 1) -> TopicFacts:
    """The topic with another ISR."""
    partitions = tuple(replace(each, isr=isr, leader=leader) for each in found.description.partitions)
    return replace(found, description=replace(found.description, partitions=partitions))


LEADER = QuorumNode(1, "voter", 900, 0, NOW + 30)
FOLLOWERS = tuple(QuorumNode(each, "voter", 900, 0, NOW - 100) for each in (2, 3))
QUORUM = Quorum(1, (LEADER, *FOLLOWERS), asked_at=NOW - 50, answered_at=NOW + 60)

LOOK = GroupLook("Stable", frozenset({"m1", "m2"}), 7, {P0: 90}, {P0: 100}, NOW - 10_000)
GROUP = GroupFacts("billing", "Consumer", LOOK, replace(LOOK, committed={P0: 98}, ends={P0: 108}, at_ms=NOW))

CLUSTER = ClusterFacts(
    bootstrap=(listener(None, "kafka"),),
    cluster_id="c1",
    brokers=(broker(1), broker(2), broker(3)),
    quorum=QUORUM,
    topics=(topic("orders"), topic("__consumer_offsets", 50, cleanup_policy="compact")),
    groups=(GROUP,),
    transactions=(),
    quotas=(EntityQuotas({"user": "alice"}, {"producer_byte_rate": 50_000_000.0, "request_percentage": 200.0}),),
)

CLIENT = ClientFacts("client.properties", "SASL_SSL", "SCRAM-SHA-512", True, {"bootstrap.servers": "kafka:9093"})

CONFIGURATION = ConfigurationFacts(
    "server.properties",
    values={"log.dirs": "/data", "default.replication.factor": "3", "min.insync.replicas": "2"},
    node_id=1,
    listeners=(ListenerConfig("SSL", "SASL_SSL", "", 9093, "kafka-1", ("192.0.2.7",), CERTIFICATE),),
    voters=3,
    directories=(DirectoryFacts("/data", "", True, "c1", 1, 60, 200, 1 << 40, 1 << 39),),
)

SOUND = Facts(NOW, MachineFacts(65_536, 1_048_576, True, 3.0), CONFIGURATION, CLIENT, CLUSTER)
