"""Requests that need permissions: one for each row of ``handlers.common.permissions`` that brokers answer.

A request is told as a dictionary for all versions (``api_cases.build``). :func:`prepare` gives a broker topics, groups
and a transaction by requests alone, so that Apache Kafka can be asked the same.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbroker.handlers.common.permissions import PERMISSIONS, Permission
from kbroker.types import ZERO_UUID, Uuid, uuid_to_str
from kbroker.wire.registry import API_KEYS
from tests.handlers.principals import Asked
from tests.node.api_cases import build
from tests.node.node_harness import batch

TOPIC = "topic-x"
MISSING = "missing-x"
"""The beginning of the names of topics that do not exist."""
GROUP = "group-x"
CLASSIC = "classic-x"
CONSUMERS = "consumers-x"
STREAMS = "streams-x"
SHARE = "share-x"
TRANSACTION = "transaction-x"

KEYS = {api.name: key for key, api in API_KEYS.items()}

Told = Mapping[str, Any]


class World(NamedTuple):
    """The things of a broker that requests name."""

    topic_id: Uuid = ZERO_UUID
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True)
class Case:
    """Requests of an API that need what is said in some of its rows, by their numbers, in some of its versions."""

    api: str
    rows: tuple[int, ...]
    told: Callable[[World], Told]
    lowest: int = 0
    highest: int = 99
    hidden: str = ""
    """The part of the answer that a denial leaves out."""
    name: str = ""
    changes: bool = False
    """Whether it is served without a permission that only hides something."""

    @property
    def id(self) -> str:
        """For people."""
        return f"{self.api}{self.name and '-'}{self.name}"

    def permissions(self) -> list[Permission]:
        """The rows."""
        return [PERMISSIONS[self.api][number] for number in self.rows]

    def request(self, world: World, version: int, told: Told | None = None) -> Any:
        """A request of a version: the case's, or another."""
        return build(API_KEYS[KEYS[self.api]].request, version, self.told(world) if told is None else told)


def denials(permission: Permission) -> frozenset[Asked]:
    """All that has to be denied for a permission to be missing."""
    return frozenset({(permission.operation, permission.resource_type)} | {each[:2] for each in permission.instead})


def user_of(denied: frozenset[Asked]) -> str:
    """A user for whom all but this is allowed."""
    return "not-" + "-".join(sorted(f"{operation.name}-{kind.name}" for operation, kind in denied))


ABSENT = "absent-x"
"""The name of what nobody has."""

SHARE_ROWS = frozenset(
    {
        ("ShareGroupDescribe", 1),
        ("DescribeShareGroupOffsets", 2),
        ("AlterShareGroupOffsets", 1),
        ("DeleteShareGroupOffsets", 1),
        ("ShareAcknowledge", 1),
    }
)
"""Rows of APIs that are asked for of a share group in a certain state: ``test_share_permissions`` has such groups."""

NAMES = (TOPIC, GROUP, CLASSIC, CONSUMERS, STREAMS, SHARE, TRANSACTION)


def doubled(told: Any) -> Any:
    """A request that names in each list of topics, groups or transactional ids another that is not there."""
    if isinstance(told, Mapping):
        return {name: doubled(value) for name, value in told.items()}
    if isinstance(told, list):
        return [each for value in told for each in ([value, *_absent(value)])]
    return told


def elsewhere(told: Any) -> Any:
    """A request that names what is not there instead of what is."""
    if isinstance(told, Mapping):
        return {name: elsewhere(value) for name, value in told.items()}
    if isinstance(told, list):
        return [elsewhere(value) for value in told]
    return ABSENT if isinstance(told, str) and told in NAMES else told


def _absent(value: Any) -> Iterator[Any]:
    """The like of an entry, of what is not there."""
    if value in NAMES:
        yield ABSENT
    elif isinstance(value, Mapping):
        fields = {name: ABSENT for name in value if value[name] in NAMES}
        if fields and "v3_and_below_transactional_id" not in fields:
            yield {**value, **fields, **({"topic_id": Uuid(b"a" * 16)} if "topic_id" in value else {})}


def _produce(world: World, **options: Any) -> Told:
    records = memoryview(bytearray(batch(b"value", **options)))
    partitions = [{"index": 0, "records": records}]
    return {
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": TOPIC, "topic_id": world.topic_id, "partition_data": partitions}],
    }


def _produce_in_transaction(world: World) -> Told:
    told = _produce(
        world,
        producer_id=world.producer_id,
        producer_epoch=world.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    return {**told, "transactional_id": TRANSACTION}


def _fetch(world: World, **more: Any) -> Told:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "topic_id": world.topic_id, "partitions": [partition]}],
        **more,
    }


def _commit(world: World) -> Told:
    partition = {"partition_index": 0, "committed_offset": 1}
    return {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": TOPIC, "topic_id": world.topic_id, "partitions": [partition]}],
    }


def _offset_fetch(world: World, *, all_topics: bool) -> Told:
    topics = [{"name": TOPIC, "topic_id": world.topic_id, "partition_indexes": [0]}]
    old = [{"name": TOPIC, "partition_indexes": [0]}]
    return {
        "group_id": GROUP,
        "topics": None if all_topics else old,
        "groups": [{"group_id": GROUP, "topics": None if all_topics else topics}],
    }


def _producer(world: World) -> dict[str, Any]:
    return {"transactional_id": TRANSACTION, "producer_id": world.producer_id, "producer_epoch": world.producer_epoch}


def _join(group: str) -> Told:
    return {
        "group_id": group,
        "session_timeout_ms": 1_800_000,  # longer than it takes to ask all on a slow machine
        "rebalance_timeout_ms": 600_000,
        "protocol_type": "consumer",
        "group_instance_id": "instance",
        "protocols": [{"name": "range", "metadata": _SUBSCRIPTION}],
    }


def _consumer_heartbeat(group: str, **more: Any) -> Told:
    return {
        "group_id": group,
        "member_id": "member",
        "member_epoch": 0,
        "rebalance_timeout_ms": 600_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
        **more,
    }


def _share_heartbeat(group: str) -> Told:
    return {"group_id": group, "member_id": "member", "member_epoch": 0, "subscribed_topic_names": [TOPIC]}


def _share_partition(world: World, **partition: Any) -> Told:
    """A share partition that nobody has begun."""
    topic = {"topic_id": world.topic_id, "partitions": [{"partition": 1, **partition}]}
    return {"group_id": SHARE, "topics": [topic]}


def _share_fetch(world: World) -> Told:
    return {
        "group_id": SHARE,
        "member_id": "member",
        "share_session_epoch": 0,
        "max_bytes": 1000,
        "topics": [{"topic_id": world.topic_id, "partitions": [{"partition_index": 0}]}],
    }


def _streams_heartbeat(group: str, *, changelogs: tuple[str, ...] = ()) -> Told:
    subtopology = {
        "subtopology_id": "0",
        "source_topics": [TOPIC],
        "state_changelog_topics": [{"name": name} for name in changelogs],
    }
    return {
        "group_id": group,
        "member_id": "member",
        "member_epoch": 0,
        "rebalance_timeout_ms": 600_000,
        "process_id": "process",
        "topology": {"epoch": 0, "subtopologies": [subtopology]},
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }


_CHANGELOGS: defaultdict[Uuid, Iterator[int]] = defaultdict(itertools.count)
"""By a broker's topic: the next number. Two brokers that are asked the same count alike."""


def _streams_with_changelog(world: World) -> Told:
    """A new group, which lacks a topic."""
    number = next(_CHANGELOGS[world.topic_id])
    return _streams_heartbeat(f"streams-{number}", changelogs=(f"changelog-{number}",))


def _add_partitions(world: World, index: int = 0) -> Told:
    transaction = {**_producer(world), "topics": [{"name": TOPIC, "partitions": [index]}]}
    return {"transactions": [transaction], **{f"v3_and_below_{name}": value for name, value in transaction.items()}}


def _resource(kind: int, name: str) -> Told:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": ["no.such.property"]}]}


_numbers = itertools.count()
_SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\7topic-x" + b"\xff\xff\xff\xff"
"""A classic member's: version 0, one topic, no user data."""
_TOPICS = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
_INDEXES = [{"name": TOPIC, "partition_indexes": [0]}]


def _commit_in_transaction(world: World) -> dict[str, Any]:
    topics = [{**topic, "topic_id": world.topic_id} for topic in _TOPICS]
    return {**_producer(world), "group_id": GROUP, "topics": topics}


CASES: tuple[Case, ...] = (
    Case("Produce", (1,), _produce),
    Case("Produce", (0, 1), _produce_in_transaction, name="transaction"),
    Case("Fetch", (0,), _fetch),
    Case("Fetch", (1,), lambda world: _fetch(world, replica_id=2, replica_state={"replica_id": 2}), name="follower"),
    Case(
        "ListOffsets",
        (0,),
        lambda world: {
            "replica_id": -1,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
    ),
    Case(
        "Metadata",
        (0,),
        lambda world: {
            "topics": [{"name": TOPIC}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
    ),
    Case(
        "Metadata",
        (0,),
        lambda world: {
            "topics": [{"name": None, "topic_id": world.topic_id}],
            "include_topic_authorized_operations": True,
        },
        lowest=12,
        name="id",
    ),
    Case("Metadata", (1,), lambda world: {"topics": None}, hidden=TOPIC, name="all"),
    Case(
        "Metadata",
        (2,),
        lambda world: {"topics": [{"name": f"{MISSING}-{next(_numbers)}"}], "allow_auto_topic_creation": True},
        name="created",
    ),
    Case(
        "Metadata",
        (3,),
        lambda world: {"topics": [], "include_cluster_authorized_operations": True},
        lowest=8,
        highest=10,
        name="cluster",
    ),
    Case("OffsetCommit", (0, 1), _commit),
    Case("OffsetFetch", (0, 1), lambda world: _offset_fetch(world, all_topics=False)),
    Case(
        "OffsetFetch", (0, 2), lambda world: _offset_fetch(world, all_topics=True), lowest=2, hidden=TOPIC, name="all"
    ),
    Case("FindCoordinator", (0,), lambda world: {"key": GROUP, "key_type": 0, "coordinator_keys": [GROUP]}),
    Case(
        "FindCoordinator",
        (1,),
        lambda world: {"key": TRANSACTION, "key_type": 1, "coordinator_keys": [TRANSACTION]},
        lowest=1,
        name="transaction",
    ),
    Case(
        "FindCoordinator",
        (2,),
        lambda world: {"key_type": 2, "coordinator_keys": ["share", "shared"]},
        lowest=6,
        name="share",
    ),
    Case("JoinGroup", (0,), lambda world: _join(CLASSIC), lowest=5),
    Case("Heartbeat", (0,), lambda world: {"group_id": CLASSIC, "generation_id": 1, "member_id": "m"}),
    Case("LeaveGroup", (0,), lambda world: {"group_id": CLASSIC, "member_id": "m", "members": [{"member_id": "m"}]}),
    Case(
        "SyncGroup",
        (0,),
        lambda world: {
            "group_id": CLASSIC,
            "generation_id": 1,
            "member_id": "m",
            "protocol_type": "consumer",
            "protocol_name": "range",
        },
    ),
    Case("DescribeGroups", (0,), lambda world: {"groups": [CLASSIC], "include_authorized_operations": True}),
    Case("ListGroups", (0,), lambda world: {}, hidden=CLASSIC),
    Case("SaslHandshake", (), lambda world: {"mechanism": "PLAIN"}, lowest=1),
    Case("SaslAuthenticate", (), lambda world: {"auth_bytes": b""}),
    Case("ApiVersions", (), lambda world: {"client_software_name": "a", "client_software_version": "1"}),
    Case(
        "DeleteRecords",
        (0,),
        lambda world: {
            "timeout_ms": 1000,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 1}]}],
        },
    ),
    Case("InitProducerId", (0,), lambda world: {"transactional_id": None, "transaction_timeout_ms": 1000}),
    Case(
        "InitProducerId",
        (1,),
        lambda world: {"transactional_id": "other", "transaction_timeout_ms": 1000},
        name="transaction",
    ),
    Case(
        "InitProducerId",
        (1, 2),
        lambda world: {"transactional_id": "other", "transaction_timeout_ms": 1000, "enable2_pc": True},
        lowest=6,
        name="two-phase",
    ),
    Case(
        "OffsetForLeaderEpoch",
        (0,),
        lambda world: {
            "replica_id": -1,
            "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}],
        },
    ),
    Case("AddPartitionsToTxn", (0, 1), _add_partitions, highest=3),
    Case("AddPartitionsToTxn", (2,), _add_partitions, lowest=4, name="broker"),
    Case("AddOffsetsToTxn", (0, 1), lambda world: {**_producer(world), "group_id": GROUP}),
    Case("EndTxn", (0,), lambda world: {**_producer(world), "committed": True}),
    Case(
        "WriteTxnMarkers",
        (0,),
        lambda world: {
            "markers": [{"producer_id": 12345, "producer_epoch": 1, "transaction_result": True, "topics": _INDEXES}]
        },
    ),
    Case("TxnOffsetCommit", (0, 1, 2), _commit_in_transaction),
    Case("DescribeConfigs", (0,), lambda world: _resource(2, TOPIC)),
    Case("DescribeConfigs", (1,), lambda world: _resource(32, GROUP), name="group"),
    Case("DescribeConfigs", (2,), lambda world: _resource(4, "1"), name="broker"),
    Case("DescribeConfigs", (2,), lambda world: _resource(8, "1"), name="logger"),
    Case("DescribeConfigs", (2,), lambda world: _resource(16, "metrics"), name="metrics"),
    Case(
        "AlterReplicaLogDirs",
        (0,),
        lambda world: {"dirs": [{"path": "/x", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
    ),
    Case("DescribeLogDirs", (0,), lambda world: {"topics": None}, hidden=TOPIC),
    Case("DeleteGroups", (0,), lambda world: {"groups_names": [GROUP]}),
    Case("OffsetDelete", (0, 1), lambda world: {"group_id": GROUP, "topics": _TOPICS}),
    Case("DescribeUserScramCredentials", (0,), lambda world: {"users": [{"name": "alice"}]}),
    Case("DescribeUserScramCredentials", (0,), lambda world: {"users": None}, name="all"),
    Case("DescribeCluster", (0,), lambda world: {"include_cluster_authorized_operations": True, "endpoint_type": 1}),
    Case("DescribeProducers", (0,), lambda world: {"topics": _INDEXES}),
    Case("DescribeTransactions", (0, 1), lambda world: {"transactional_ids": [TRANSACTION]}, hidden=TOPIC),
    Case("ListTransactions", (0,), lambda world: {}, hidden=TRANSACTION),
    Case("ConsumerGroupHeartbeat", (0, 1), lambda world: _consumer_heartbeat("others")),
    Case(
        "ConsumerGroupHeartbeat",
        (0, 2),
        lambda world: _consumer_heartbeat(
            f"matching-{next(_numbers)}", subscribed_topic_names=None, subscribed_topic_regex="topic-.*"
        ),
        lowest=1,
        hidden=TOPIC,
        name="regex",
        changes=True,
    ),
    Case(
        "ConsumerGroupDescribe", (0, 1), lambda world: {"group_ids": [CONSUMERS], "include_authorized_operations": True}
    ),
    Case("StreamsGroupHeartbeat", (0, 1), lambda world: _streams_heartbeat("streams-others")),
    Case(
        "StreamsGroupHeartbeat", (0, 1, 2), lambda world: _streams_with_changelog(world), name="changelog", changes=True
    ),
    Case("StreamsGroupDescribe", (0, 1), lambda world: {"group_ids": [STREAMS], "include_authorized_operations": True}),
    Case(
        "StreamsGroupTopologyDescriptionUpdate",
        (0,),
        lambda world: {"group_id": STREAMS, "member_id": "member", "topology_epoch": 0},
    ),
    Case("ShareGroupHeartbeat", (0, 1), lambda world: _share_heartbeat("share-others")),
    Case("ShareGroupDescribe", (0,), lambda world: {"group_ids": [SHARE], "include_authorized_operations": True}),
    Case(
        "DescribeShareGroupOffsets",
        (0, 1),
        lambda world: {"groups": [{"group_id": SHARE, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]},
    ),
    Case(
        "DescribeShareGroupOffsets", (0,), lambda world: {"groups": [{"group_id": SHARE, "topics": None}]}, name="all"
    ),
    Case(
        "AlterShareGroupOffsets",
        (0,),
        lambda world: {
            "group_id": SHARE,
            "topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
        },
    ),
    Case("DeleteShareGroupOffsets", (0,), lambda world: {"group_id": SHARE, "topics": [{"topic_name": TOPIC}]}),
    Case("ShareFetch", (0, 1), _share_fetch),
    Case("ShareAcknowledge", (0,), lambda world: {"group_id": SHARE, "member_id": "member", "share_session_epoch": -1}),
    Case("InitializeShareGroupState", (0,), lambda world: _share_partition(world, state_epoch=-1, start_offset=0)),
    Case("ReadShareGroupState", (0,), lambda world: _share_partition(world, leader_epoch=-1)),
    Case("WriteShareGroupState", (0,), lambda world: _share_partition(world, state_epoch=-1)),
    Case("DeleteShareGroupState", (0,), _share_partition),
    Case("ReadShareGroupStateSummary", (0,), lambda world: _share_partition(world, leader_epoch=-1)),
    Case("DescribeDelegationToken", (0,), lambda world: {"owners": None}, hidden="principal_type='User'"),
    Case("DescribeClientQuotas", (0,), lambda world: {"components": []}),
    Case("GetTelemetrySubscriptions", (), lambda world: {"client_instance_id": Uuid(b"t" * 16)}),
    Case("PushTelemetry", (), lambda world: {"client_instance_id": Uuid(b"t" * 16), "terminating": True}),
    Case("ListConfigResources", (0,), lambda world: {}),
    Case("DescribeTopicPartitions", (0,), lambda world: {"topics": [{"name": TOPIC}], "response_partition_limit": 9}),
    Case(
        "DescribeTopicPartitions",
        (1,),
        lambda world: {"topics": [], "response_partition_limit": 2000},
        hidden=TOPIC,
        name="all",
    ),
)

Ask = Callable[[str, Told], Awaitable[Any]]
"""Asks the newest stable version of an API, until it is answered without an error that passes."""


async def prepare(ask: Ask) -> World:
    """Have a topic with a record in partition 0, groups of both protocols, a transaction with partition 1, a token."""
    made = await ask(
        "CreateTopics", {"topics": [{"name": TOPIC, "num_partitions": 2, "replication_factor": 1}], "timeout_ms": 5000}
    )
    world = World(Uuid(made.topics[0].topic_id))
    await ask("Produce", _produce(world))
    await ask("FindCoordinator", {"key_type": 0, "coordinator_keys": [GROUP]})
    await ask("FindCoordinator", {"key_type": 1, "coordinator_keys": [TRANSACTION]})
    await ask("OffsetCommit", _commit(world))
    await ask("JoinGroup", _join(CLASSIC))
    await ask("ConsumerGroupHeartbeat", _consumer_heartbeat(CONSUMERS))
    await ask("StreamsGroupHeartbeat", _streams_heartbeat(STREAMS))
    await ask("FindCoordinator", {"key_type": 2, "coordinator_keys": [f"{SHARE}:{uuid_to_str(world.topic_id)}:0"]})
    await ask("ReadShareGroupStateSummary", _share_partition(world, leader_epoch=-1))
    producer = await ask("InitProducerId", {"transactional_id": TRANSACTION, "transaction_timeout_ms": 900_000})
    world = World(world.topic_id, producer.producer_id, producer.producer_epoch)
    await ask("AddPartitionsToTxn", _add_partitions(world, 1))
    await ask("CreateDelegationToken", {"owner_principal_type": "", "owner_principal_name": "", "max_lifetime_ms": -1})
    return world
