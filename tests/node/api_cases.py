"""For each API that is served: requests with content, and a cluster whose state gives their answers content.

A request is told as a dictionary for all versions; ``build`` leaves out what a version does not have.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

from kbroker.handlers.registration import BOTH, registrations
from kbroker.types import METADATA_TOPIC, ZERO_UUID, Uuid, random_uuid, uuid_to_str
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import FieldSpec, TypeSpec, struct_spec
from tests.node.node_harness import CLUSTER_ID, Client, batch
from tests.node.quorum_harness import LISTENER, Quorum
from tests.node.token_harness import user
from tests.wire.wire_support import snake_case

Told = Mapping[str, Any]

RACKS = {1: "a", 2: "b", 3: "c", 4: "d"}

ALL = {key: (snake_case(API_KEYS[key].name), entry) for key, entry in registrations(BOTH).items()}
"""All APIs that are served: the name, in Python's spelling, and the row."""


def build(cls: type[Any], version: int, told: Told) -> Any:
    """A message or struct with what is told of it, as far as the version has it."""
    specs = {spec.name: spec for spec in struct_spec(cls).fields}
    assert told.keys() <= specs.keys(), (cls, told.keys() - specs.keys())
    has = {name: specs[name] for name in told if version in specs[name].versions}
    return cls(**{name: _value_in(spec, version, told[name]) for name, spec in has.items()})


def _value_in(spec: FieldSpec, version: int, value: Any) -> Any:
    if value is None and spec.type.element is not None and version not in spec.nullable:
        return []  # which stands for all, as null does later
    return _value(spec.type, version, value)


def _value(type_spec: TypeSpec, version: int, value: Any) -> Any:
    if type_spec.element is not None and value is not None:
        return [_value(type_spec.element, version, each) for each in value]
    if type_spec.struct is not None and isinstance(value, Mapping):
        return build(type_spec.struct, version, value)
    return value


class World:
    """Four nodes, of which the last is a broker only, with topics, groups, transactions and a broker that is fenced."""

    def __init__(self, cluster: Quorum) -> None:
        self.cluster = cluster
        self._numbers = itertools.count()
        self._rng = random.Random(1)
        self.topic_id = ZERO_UUID
        self.producer: Any = None
        self.version = 0
        """The version that is asked next."""

    def unique(self, prefix: str) -> str:
        """A name that nobody has."""
        return f"{prefix}-{next(self._numbers)}"

    def uuid(self) -> Uuid:
        """An id that nobody has."""
        return random_uuid(self._rng)

    @property
    def epoch(self) -> int:
        """The metadata quorum's."""
        return int(self.active.metadata.describe_quorum().leader_epoch)

    @property
    def active(self) -> Any:
        """The active controller's node."""
        leader = self.cluster.leader()
        assert leader is not None
        return self.cluster.nodes[leader]

    def records(self) -> memoryview:
        """A batch to produce."""
        return memoryview(bytearray(batch(b"value")))

    def broker_epoch(self, broker_id: int) -> int:
        """The present one."""
        return int(self.active.metadata.image.brokers[broker_id].epoch)

    def partition(self) -> Any:
        """Partition 0 of the topic, in the controller's metadata."""
        return self.active.metadata.image.topics.by_name["t"].partitions[0]

    async def client(self, node_id: int, listener: str = "PLAINTEXT") -> Client:
        """A new connection: a user's, for only users have delegation tokens; without a login to a controller."""
        node = self.cluster.node(node_id)
        return await node.connect(listener) if listener == LISTENER else await user(node, "alice")

    async def until_answered(self, name: str, told: Told, good: Callable[[Any], bool]) -> Any:
        """Ask all nodes in turn, until one answers as wished: whoever leads, or coordinates."""
        key = next(key for key, entry in ALL.items() if entry[0] == name)
        entry = ALL[key][1]
        for _ in range(1000):
            for node_id in self.cluster.nodes:
                client = await self.client(node_id)
                answer = await client.ask(
                    build(entry.request_class, entry.versions.highest, told), entry.versions.highest
                )
                await client.stream.aclose()
                if good(answer):
                    return answer
        raise AssertionError(f"{name} is answered {answer}")

    async def prepare(self) -> None:
        """Have something to tell in each answer."""
        made = await self.until_answered(
            "create_topics",
            {"topics": [{"name": "t", "num_partitions": 2, "replication_factor": 3}], "timeout_ms": 5000},
            lambda answer: answer.topics[0].error_code == 0,
        )
        self.topic_id = Uuid(made.topics[0].topic_id)
        await self.cluster.topics_everywhere(["t"])
        await self.until_answered(
            "produce", _produce(self), lambda answer: answer.responses[0].partition_responses[0].error_code == 0
        )
        for kind, name in enumerate(("g", "tx")):
            asked = {"key_type": kind, "coordinator_keys": [name]}
            await self.until_answered("find_coordinator", asked, lambda answer: not answer.coordinators[0].error_code)
        await self.until_answered("offset_commit", _commit(self), lambda answer: not _partition(answer).error_code)
        self.producer = await self.until_answered(
            "init_producer_id",
            {"transactional_id": "tx", "transaction_timeout_ms": 600_000},
            lambda answer: not answer.error_code,
        )
        await self.until_answered(
            "add_partitions_to_txn",
            {"transactions": [_transaction(self)]},
            lambda answer: (
                not answer.error_code
                and not answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code
            ),
        )
        joined = await self.until_answered("join_group", _static_join(self), lambda answer: not answer.error_code)
        await self.until_answered(
            "sync_group",
            {
                "group_id": "classic",
                "generation_id": joined.generation_id,
                "member_id": joined.member_id,
                "group_instance_id": "instance",
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [{"member_id": joined.member_id, "assignment": b"assigned"}],
            },
            lambda answer: not answer.error_code,
        )
        await self.until_answered(
            "consumer_group_heartbeat", _consumer_heartbeat("consumers"), lambda answer: not answer.error_code
        )
        await self.until_answered(
            "streams_group_heartbeat", _streams_heartbeat("streams"), lambda answer: not answer.error_code
        )
        await self.until_answered(
            "share_group_heartbeat", _share_heartbeat("workers"), lambda answer: not answer.error_code
        )
        await self.until_answered(
            "find_coordinator",
            {"key_type": 2, "coordinator_keys": [f"workers:{uuid_to_str(self.topic_id)}:0"]},
            lambda answer: not answer.coordinators[0].error_code,
        )
        await self.until_answered("initialize_share_group_state", _state(self, state_epoch=5, start_offset=0), _is_done)
        batches = [{"first_offset": 0, "last_offset": 0, "delivery_state": 2, "delivery_count": 1}]
        await self.until_answered(
            "write_share_group_state", _state(self, state_epoch=5, state_batches=batches), _is_done
        )
        await self.active.metadata.snapshots.write()


def _partition(answer: Any) -> Any:
    return answer.topics[0].partitions[0]


def _produce(world: World) -> Told:
    partition = {"index": 0, "records": world.records()}
    topic = {"name": "t", "topic_id": world.topic_id, "partition_data": [partition]}
    return {"acks": -1, "timeout_ms": 5000, "topic_data": [topic]}


def _fetch(world: World, **more: Any) -> Told:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {
        "max_bytes": 1000,
        "session_epoch": 0,
        "topics": [{"topic": "t", "topic_id": world.topic_id, "partitions": [partition]}],
        **more,
    }


def _metadata_fetch(world: World, offset: int, epoch: int, leader_epoch: int) -> Told:
    partition = {
        "partition": 0,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": epoch,
        "partition_max_bytes": 1000,
    }
    topic = {"topic": METADATA_TOPIC, "topic_id": Uuid(bytes(15) + b"\1"), "partitions": [partition]}
    return {"replica_id": 99, "replica_state": {"replica_id": 99}, "max_bytes": 1000, "topics": [topic]}


def _commit(world: World) -> Told:
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m", "committed_leader_epoch": 0}
    topic = {"name": "t", "topic_id": world.topic_id, "partitions": [partition]}
    return {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [topic]}


def _transaction(world: World) -> dict[str, Any]:
    producer = {"producer_id": world.producer.producer_id, "producer_epoch": world.producer.producer_epoch}
    return {"transactional_id": "tx", **producer, "topics": [{"name": "t", "partitions": [0, 1]}]}


def _old_transaction(world: World) -> Told:
    return {f"v3_and_below_{name}": value for name, value in _transaction(world).items()}


def _producer(world: World, transactional_id: str = "tx") -> dict[str, Any]:
    producer = world.producer
    return {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }


def _join(group: str, **more: Any) -> Told:
    return {
        "group_id": group,
        "session_timeout_ms": 600_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"subscribed"}],
        **more,
    }


def _static_join(world: World) -> Told:
    return _join("classic", group_instance_id="instance")


def _consumer_heartbeat(group: str, **more: Any) -> Told:
    return {
        "group_id": group,
        "member_id": "member",
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
        "instance_id": "instance",
        "rack_id": "a",
        **more,
    }


def _streams_heartbeat(group: str) -> Told:
    subtopology = {"subtopology_id": "0", "source_topics": ["t"]}
    return {
        "group_id": group,
        "member_id": "member",
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "topology": {"epoch": 0, "subtopologies": [subtopology]},
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "process",
        "user_endpoint": {"host": "127.0.0.1", "port": 1},
        "client_tags": [],
    }


def _share_heartbeat(group: str) -> Told:
    return {
        "group_id": group,
        "member_id": "member",
        "member_epoch": 0,
        "rack_id": "a",
        "subscribed_topic_names": ["t"],
    }


def _state(world: World, group: str = "workers", **partition: Any) -> Told:
    """A request to a share coordinator about partition 0."""
    return {"group_id": group, "topics": [{"topic_id": world.topic_id, "partitions": [{"partition": 0, **partition}]}]}


def _is_done(answer: Any) -> bool:
    return not answer.results[0].partitions[0].error_code


def _share_fetch(world: World, **more: Any) -> Told:
    return {
        "group_id": "workers",
        "member_id": "member",
        "share_session_epoch": 0,
        "max_bytes": 1000,
        "max_records": 10,
        "batch_size": 10,
        "topics": [{"topic_id": world.topic_id, "partitions": [{"partition_index": 0}]}],
        **more,
    }


def _share_acknowledge(world: World) -> Told:
    batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    partition = {"partition_index": 0, "acknowledgement_batches": batches}
    return {
        "group_id": "workers",
        "member_id": "member",
        "share_session_epoch": -1,
        "topics": [{"topic_id": world.topic_id, "partitions": [partition]}],
    }


def _raft(**partition: Any) -> Told:
    return {"cluster_id": CLUSTER_ID, "topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]}


def _resource(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **more}


_RETENTION = [{"name": "retention.ms", "value": "12345", "config_operation": 0}]
_REPLACED = [{"name": "retention.ms", "value": "12345"}]
_ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_ENDPOINT = {"name": "PLAINTEXT", "host": "localhost", "port": 9}
_FENCED_BROKER = 77


def _registration(world: World) -> Told:
    features = [
        {"name": name, "min_supported_version": low, "max_supported_version": high}
        for name, (low, high) in world.active.metadata.features().items()
    ]
    return {
        "broker_id": _FENCED_BROKER,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": world.uuid(),
        "listeners": [_ENDPOINT],
        "features": features,
        "log_dirs": [world.uuid()],
        "previous_broker_epoch": -1,
    }


def _isr(world: World) -> Told:
    partition = world.partition()
    entry = {
        "partition_index": 0,
        "leader_epoch": partition.leader_epoch,
        "new_isr": list(partition.isr),
        "new_isr_with_epochs": [{"broker_id": each, "broker_epoch": -1} for each in partition.isr],
        "partition_epoch": partition.partition_epoch,
    }
    return {
        "broker_id": partition.leader,
        "broker_epoch": world.broker_epoch(partition.leader),
        "topics": [{"topic_id": world.topic_id, "partitions": [entry]}],
    }


def _reassignment(world: World) -> Told:
    entry = {"partition_index": 1, "replicas": [2, 3, 4]}
    return {
        "timeout_ms": 5000,
        "topics": [{"name": "t", "partitions": [entry]}, {"name": "none", "partitions": [entry]}],
    }


CASES: dict[str, Callable[[World], list[Told]]] = {
    "produce": lambda world: [_produce(world)],
    "fetch": lambda world: [
        *(_fetch(world, rack_id=rack) for rack in RACKS.values()),
        _fetch(world, isolation_level=1),
        _metadata_fetch(world, 0, 0, world.epoch),
        _metadata_fetch(world, 10**6, world.epoch, world.epoch),
        _metadata_fetch(world, 1, world.epoch, 0),
    ],
    "list_offsets": lambda world: [
        {"replica_id": -1, "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": at}]}]}
        for at in (-1, 0)
    ],
    "metadata": lambda world: [
        {
            "topics": topics,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        }
        for topics in (None, [{"name": "t"}, {"name": "none"}])
    ],
    "offset_commit": lambda world: [_commit(world)],
    "offset_fetch": lambda world: [
        {
            "group_id": "g",
            "topics": [{"name": "t", "partition_indexes": [0]}],
            "groups": [
                {"group_id": "g", "topics": [{"name": "t", "topic_id": world.topic_id, "partition_indexes": [0]}]}
            ],
            "require_stable": True,
        }
    ],
    "find_coordinator": lambda world: [
        {"key": "g", "key_type": kind, "coordinator_keys": ["g", "h"]} for kind in (0, 100)
    ],
    "join_group": lambda world: [
        _join(world.unique("group")),
        # Without an instance's id it is another member, for whom the group waits.
        _static_join(world) if world.version >= 5 else _join(world.unique("group")),
    ],
    "heartbeat": lambda world: [{"group_id": "classic", "generation_id": 1, "member_id": "m"}],
    "leave_group": lambda world: [
        {"group_id": "classic", "member_id": "m", "members": [{"member_id": "m", "group_instance_id": "other"}]}
    ],
    "sync_group": lambda world: [
        {
            "group_id": "classic",
            "generation_id": 1,
            "member_id": "m",
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
    ],
    "describe_groups": lambda world: [{"groups": ["classic", "none"], "include_authorized_operations": True}],
    "list_groups": lambda world: [{}],
    "sasl_handshake": lambda world: [{"mechanism": "PLAIN"}],
    "sasl_authenticate": lambda world: [{"auth_bytes": b"token"}],
    "describe_client_quotas": lambda world: [
        {"components": [{"entity_type": "user", "match_type": 2}], "strict": True},
        {"components": [{"entity_type": "none"}]},
    ],
    "alter_client_quotas": lambda world: [
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": world.unique("user")}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0}],
                },
                {"entity": [{"entity_type": "none", "entity_name": "x"}], "ops": [{"key": "none", "remove": True}]},
            ]
        }
    ],
    "describe_user_scram_credentials": lambda world: [{"users": None}, {"users": [{"name": "none"}]}],
    "alter_user_scram_credentials": lambda world: [
        {
            "deletions": [{"name": "none", "mechanism": 1}],
            "upsertions": [
                {
                    "name": world.unique("user"),
                    "mechanism": 2,
                    "iterations": 4096,
                    "salt": b"salt",
                    "salted_password": b"key",
                }
            ],
        }
    ],
    "api_versions": lambda world: [{"client_software_name": "a", "client_software_version": "1"}],
    "create_topics": lambda world: [
        {
            "topics": [
                {"name": world.unique("made"), "num_partitions": 1, "replication_factor": 1, "configs": _REPLACED},
                {"name": "t", "num_partitions": 1, "replication_factor": 1},
            ],
            "timeout_ms": 5000,
            "validate_only": True,
        }
    ],
    "delete_topics": lambda world: [
        {"topics": [{"name": "none"}, {"name": None, "topic_id": world.uuid()}], "topic_names": ["none"]}
    ],
    "delete_records": lambda world: [
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout_ms": 1000}
    ],
    "init_producer_id": lambda world: [
        {"transactional_id": None, "transaction_timeout_ms": 1000},
        {"transactional_id": world.unique("t"), "transaction_timeout_ms": 1000},
    ],
    "offset_for_leader_epoch": lambda world: [
        {
            "replica_id": -2,
            "topics": [
                {"topic": "t", "partitions": [{"partition": 0, "leader_epoch": world.partition().leader_epoch}]}
            ],
        }
    ],
    "add_partitions_to_txn": lambda world: [{"transactions": [_transaction(world)], **_old_transaction(world)}],
    "add_offsets_to_txn": lambda world: [{**_producer(world), "group_id": "g"}],
    "end_txn": lambda world: [{**_producer(world, "none"), "committed": True}],
    "write_txn_markers": lambda world: [
        {
            "markers": [
                {
                    "producer_id": 12345,
                    "producer_epoch": 1,
                    "transaction_result": True,
                    "topics": [{"name": "t", "partition_indexes": [0]}],
                }
            ]
        }
    ],
    "txn_offset_commit": lambda world: [
        {
            **_producer(world),
            "group_id": "g",
            "topics": [{"name": "t", "topic_id": world.topic_id, "partitions": [{"partition_index": 0}]}],
        }
    ],
    "describe_acls": lambda world: [
        {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    ],
    "create_acls": lambda world: [{"creations": [_ACL]}],
    "delete_acls": lambda world: [{"filters": [{"resource_type_filter": 1, "operation": 1, "permission_type": 1}]}],
    "describe_configs": lambda world: [
        {
            "resources": [_resource(2, "t", configuration_keys=None), _resource(4, "", configuration_keys=None)]
            + [_resource(4, str(node), configuration_keys=None) for node in world.cluster.nodes],
            "include_synonyms": True,
            "include_documentation": True,
        }
    ],
    "alter_configs": lambda world: [{"resources": [_resource(2, "t", configs=_REPLACED), _resource(2, "none")]}],
    "alter_replica_log_dirs": lambda world: [{"dirs": [{"path": "/x", "topics": [{"name": "t", "partitions": [0]}]}]}],
    "describe_log_dirs": lambda world: [{"topics": None}],
    "create_partitions": lambda world: [
        {
            "topics": [{"name": "t", "count": 4, "assignments": None}, {"name": "none", "count": 2}],
            "validate_only": True,
        }
    ],
    "create_delegation_token": lambda world: [{"renewers": [], "max_lifetime_ms": -1}],
    "renew_delegation_token": lambda world: [{"hmac": b"nobody's", "renew_period_ms": -1}],
    "expire_delegation_token": lambda world: [{"hmac": b"nobody's", "expiry_time_period_ms": -1}],
    "describe_delegation_token": lambda world: [{"owners": None}],
    "delete_groups": lambda world: [{"groups_names": ["none", "classic"]}],
    "elect_leaders": lambda world: [
        {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout_ms": 5000}
    ],
    "incremental_alter_configs": lambda world: [
        {"resources": [_resource(2, "t", configs=_RETENTION), _resource(2, "none", configs=_RETENTION)]}
    ],
    "alter_partition_reassignments": lambda world: [_reassignment(world)],
    "list_partition_reassignments": lambda world: [{"topics": None, "timeout_ms": 5000}],
    "offset_delete": lambda world: [
        {"group_id": "g", "topics": [{"name": "none", "partitions": [{"partition_index": 0}]}]}
    ],
    "vote": lambda world: [_raft(replica_epoch=0, replica_id=1, last_offset_epoch=0, last_offset=0)],
    "begin_quorum_epoch": lambda world: [
        {**_raft(leader_id=1, leader_epoch=0), "leader_endpoints": [{**_ENDPOINT, "name": LISTENER}]}
    ],
    "end_quorum_epoch": lambda world: [
        {**_raft(leader_id=1, leader_epoch=0), "leader_endpoints": [{**_ENDPOINT, "name": LISTENER}]}
    ],
    "describe_quorum": lambda world: [_raft_topic(), {"topics": [{"topic_name": "x", "partitions": [{}]}]}],
    "alter_partition": lambda world: [_isr(world)],
    "update_features": lambda world: [
        {
            "feature_updates": [
                {"feature": "metadata.version", "max_version_level": 1, "upgrade_type": 1},
                {"feature": "none", "max_version_level": 1, "upgrade_type": 1},
            ],
            "timeout_ms": 5000,
            "validate_only": True,
        }
    ],
    "envelope": lambda world: [{"request_data": b"", "client_host_address": b"\x7f\0\0\1"}],
    "fetch_snapshot": lambda world: [
        {
            "cluster_id": CLUSTER_ID,
            "replica_id": 99,
            "max_bytes": 1000,
            "topics": [
                {
                    "name": METADATA_TOPIC,
                    "partitions": [{"partition": 0, "current_leader_epoch": epoch, "snapshot_id": {"end_offset": 1}}],
                }
            ],
        }
        for epoch in (0, world.epoch)
    ],
    "describe_cluster": lambda world: [
        {"include_cluster_authorized_operations": True, "endpoint_type": kind, "include_fenced_brokers": True}
        for kind in (1, 2)
    ],
    "describe_producers": lambda world: [{"topics": [{"name": "t", "partition_indexes": [0]}]}],
    "broker_registration": lambda world: [_registration(world)],
    "broker_heartbeat": lambda world: [
        {"broker_id": _FENCED_BROKER, "broker_epoch": world.broker_epoch(_FENCED_BROKER), "current_metadata_offset": -1}
    ],
    "unregister_broker": lambda world: [{"broker_id": 999}],
    "unregister_controller": lambda world: [{"controller_id": 999}],
    "describe_transactions": lambda world: [{"transactional_ids": ["tx", "none"]}],
    "list_transactions": lambda world: [{}],
    "allocate_producer_ids": lambda world: [{"broker_id": 4, "broker_epoch": world.broker_epoch(4)}],
    "consumer_group_heartbeat": lambda world: [_consumer_heartbeat(world.unique("consumers"))],
    "consumer_group_describe": lambda world: [
        {"group_ids": ["consumers", "none"], "include_authorized_operations": True}
    ],
    "controller_registration": lambda world: [
        {"controller_id": 88, "incarnation_id": world.uuid(), "listeners": [{**_ENDPOINT, "name": LISTENER}]}
    ],
    "assign_replicas_to_dirs": lambda world: [
        {
            "broker_id": 4,
            "broker_epoch": world.broker_epoch(4),
            "directories": [
                {"id": world.uuid(), "topics": [{"topic_id": world.topic_id, "partitions": [{"partition_index": 0}]}]}
            ],
        }
    ],
    "streams_group_heartbeat": lambda world: [_streams_heartbeat(world.unique("streams"))],
    "streams_group_describe": lambda world: [
        {
            "group_ids": ["streams", "none"],
            "include_authorized_operations": True,
            "include_topology_description": world.version >= 1,
        }
    ],
    "streams_group_topology_description_update": lambda world: [
        {"group_id": "streams", "member_id": "member", "topology_epoch": 0}
    ],
    "share_group_heartbeat": lambda world: [_share_heartbeat(world.unique("workers"))],
    "share_group_describe": lambda world: [{"group_ids": ["workers", "none"], "include_authorized_operations": True}],
    "describe_share_group_offsets": lambda world: [
        {"groups": [{"group_id": group, "topics": [{"topic_name": "t", "partitions": [0]}]}]}
        for group in ("workers", "none")
    ],
    "alter_share_group_offsets": lambda world: [
        {"group_id": group, "topics": [{"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]}]}
        for group in ("workers", world.unique("workers"))
        for name in ("t", "none")
    ],
    "delete_share_group_offsets": lambda world: [
        {"group_id": "none", "topics": [{"topic_name": "t"}]},
        {"group_id": "workers", "topics": [{"topic_name": "t"}]},
    ],
    "initialize_share_group_state": lambda world: [_state(world, world.unique("w"), state_epoch=1, start_offset=0)],
    "read_share_group_state": lambda world: [_state(world, leader_epoch=1), _state(world, leader_epoch=0)],
    "write_share_group_state": lambda world: [_state(world, state_epoch=5), _state(world, state_epoch=1)],
    "delete_share_group_state": lambda world: [_state(world, world.unique("w"))],
    "read_share_group_state_summary": lambda world: [_state(world)],
    "share_fetch": lambda world: [
        _share_fetch(world),
        {**_share_acknowledge(world), "max_bytes": 1000},
        _share_fetch(world, member_id=None),
    ],
    "share_acknowledge": lambda world: [_share_acknowledge(world), {**_share_acknowledge(world), "member_id": None}],
    "get_telemetry_subscriptions": lambda world: [{"client_instance_id": world.uuid()}],
    "push_telemetry": lambda world: [{"client_instance_id": world.uuid(), "terminating": True}],
    "list_config_resources": lambda world: [{}],
    "describe_topic_partitions": lambda world: [
        {"topics": [{"name": "t"}, {"name": "none"}], "response_partition_limit": 1}
    ],
    "add_raft_voter": lambda world: [
        {
            "cluster_id": CLUSTER_ID,
            "timeout_ms": 5000,
            "voter_id": 1,
            "voter_directory_id": world.uuid(),
            "listeners": [{**_ENDPOINT, "name": LISTENER}],
        }
    ],
    "remove_raft_voter": lambda world: [{"cluster_id": CLUSTER_ID, "voter_id": 99, "voter_directory_id": world.uuid()}],
    "update_raft_voter": lambda world: [
        {"cluster_id": CLUSTER_ID, "current_leader_epoch": 0, "voter_id": 1, "voter_directory_id": world.uuid()}
    ],
}
"""By the API's name in Python's spelling. Each request has an answer with content from one node or another."""


def _raft_topic() -> Told:
    return {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]}
