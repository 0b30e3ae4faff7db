"""Random requests that make sense: every field of every version, from pools of values chosen by the field's name.

The pools hold what is right, what is nearly right and what is wrong, so that errors are compared as much as answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from kbroker.types import Uuid
from kbroker.wire.compression import CompressionType
from kbroker.wire.messages.transactions import AddPartitionsToTxnTransaction
from kbroker.wire.record_batch import Record, build_batch
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import MISSING, FieldSpec, TypeSpec, is_own, struct_spec

TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "wd-filled": (3, {"retention.ms": "-1"}),
    "wd-empty": (1, {}),
    "wd-compact": (1, {"cleanup.policy": "compact"}),
    "wd-append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    "wd-small": (1, {"max.message.bytes": "500"}),
}
"""Topics that both brokers have from the start: partitions, configs."""
SOME_TIME = 1_717_000_000_000


def id_marker(topic: str) -> Uuid:
    """Stands for a topic's id in a request; each broker has its own, put in before sending."""
    return Uuid(b"ID of " + topic.encode().ljust(10, b".")[-10:])


_UNKNOWN_ID = Uuid(b"no topic has me!")
_NO_ID = Uuid(bytes(16))

GROUP_APIS = frozenset({8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69, 88, 89})
"""APIs whose answers depend on the history of groups; ``compat_tests/groups`` compares those."""
EXCLUDED = {
    57: "UpdateFeatures: would change what the rest of the run talks to",
    64: "UnregisterBroker: would take away the only broker",
    43: "ElectLeaders: with null topics it answers with all partitions in no order",
    34: "AlterReplicaLogDirs: answers in the order of a hash map",
}
"""APIs without a stable answer of a single node, or that would break the node for other requests."""


_UNREADABLE = ("cut", "magic", "garbage")
"""Kinds of damage done to a batch; the kinds in the first line show in the header alone."""
_OTHER_DAMAGE = ("null key", "from the future", "crc", "two batches", "empty", "control")


def batches(rng: random.Random, now: int, damage: str = "") -> bytes:
    """The bytes of a record batch with random contents and the given damage."""
    key = None if damage == "null key" else b"key"
    count = rng.choice((1, 1, 3, 40))
    timestamp = now + 10 * 86_400_000 if damage == "from the future" else rng.choice((now, now, SOME_TIME))
    records = [Record(0, timestamp, key, b"value %d" % index, ()) for index in range(count)]
    batch = bytearray(build_batch(records, compression=rng.choice(list(CompressionType))))
    if damage == "crc":
        batch[-1] ^= 0x40
    elif damage == "cut":
        del batch[-3:]
    elif damage == "magic":
        batch[16] = rng.choice((0, 1, 3, 9))
    elif damage == "two batches":
        return bytes(batch) * 2
    elif damage == "empty":
        return b""
    elif damage == "garbage":
        return b"garbage"
    elif damage == "control":
        batch[22] |= 0x20
    return bytes(batch)


def _choice(*values: Any) -> Callable[[random.Random], Any]:
    return lambda rng: rng.choice(values)


_NAME = _choice(
    "wd-filled",
    "wd-filled",
    "wd-filled",
    "wd-empty",
    "wd-compact",
    "wd-append-time",
    "wd-small",
    "wd-missing",
    "bad name",
    "",
    "." * 2,
    "x" * 250,
)
_PARTITION = _choice(0, 0, 0, 1, 2, 7, -1)
_TIMEOUT_MS = _choice(60_000, 120_000)
"""More than any request takes: which of two brokers is late must not show."""
_CONFIG_NAME = _choice(
    "retention.ms",
    "cleanup.policy",
    "segment.bytes",
    "max.message.bytes",
    "compression.type",
    "no.such.config",
    "min.insync.replicas",
    "message.timestamp.type",
    "",
)
_CONFIG_VALUE = _choice("1000000", "2000000", "soon", "compact", "delete", "", "-1", "-5", None, "gzip", "CreateTime")

_POOLS: dict[str, Callable[[random.Random], Any]] = {
    "name": _NAME,
    "topic": _NAME,
    "topic_names": _NAME,
    "topic_id": _choice(*(id_marker(topic) for topic in TOPICS), _UNKNOWN_ID, _NO_ID),
    "partition": _PARTITION,
    "partition_index": _PARTITION,
    "partition_indexes": _PARTITION,
    "partitions": _PARTITION,
    "index": _PARTITION,
    "timeout_ms": _TIMEOUT_MS,
    "acks": _choice(-1, 1, -1, 1, 2, -3),
    "transactional_id": _choice(None),
    "producer_id": _choice(-1, -1, -1, 4_000_000),
    "producer_epoch": _choice(-1, -1, -1, 5),
    "transaction_timeout_ms": _choice(60000, 1, -1),
    "max_wait_ms": _choice(0, 0, 20),
    "min_bytes": _choice(0, 1, 1_000_000),
    "max_bytes": _choice(100, 10_000, 1 << 24),
    "partition_max_bytes": _choice(1, 200, 10_000, 1 << 24),
    "fetch_offset": _choice(0, 0, 3, 7, 10, 11, 5000, -1),
    "log_start_offset": _choice(-1, 0),
    "current_leader_epoch": _choice(-1, -1, 0, 5),
    "last_fetched_epoch": _choice(-1, -1, 0, 3),
    "leader_epoch": _choice(-1, 0, 3),
    "isolation_level": _choice(0, 1),
    "session_id": _choice(0),
    "session_epoch": _choice(-1, -1, 0, 4),
    "cluster_id": _choice(None),
    "replica_id": _choice(-1),
    "replica_epoch": _choice(-1),
    "high_watermark": _choice(0, 1 << 40),
    "replica_directory_id": _choice(_NO_ID),
    "rack_id": _choice("", "rack"),
    "timestamp": _choice(-1, -2, -3, -4, -5, -6, -7, 0, SOME_TIME, SOME_TIME + 4500, 1 << 50),
    "offset": _choice(0, 0, 1, 9999, -2),
    "resource_name": _choice("wd-filled", "wd-compact", "wd-missing", "bad name", "", "1", "9"),
    "configuration_keys": _CONFIG_NAME,
    "value": _CONFIG_VALUE,
    "AlterClientQuotas.value": _choice(1000.0, 0.0, -1.0),
    "config_operation": _choice(0, 0, 0, 1, 2, 3),
    "num_partitions": _choice(1, 2, -1, 0, -2),
    "replication_factor": _choice(1, 1, -1, 0, 2, -3),
    "broker_ids": _choice(1, 1, 9, -1),
    "replicas": _choice(1, 1, 9, -1),
    "count": _choice(1, 2, 4, 5, 0, -1),
    "endpoint_type": _choice(1, 1, 2, 7),
    "client_software_name": _choice("kbroker", "two words", ""),
    "client_software_version": _choice("1.0", "-1"),
    "response_partition_limit": _choice(2000, 1, 2, 0, -1),
    "transactional_ids": _choice("wd-nobody", "wd-somebody", ""),
    "v3_and_below_transactional_id": _choice("wd-nobody", "wd-somebody", ""),
    "v3_and_below_producer_id": _choice(-1, 4_000_000),
    "v3_and_below_producer_epoch": _choice(-1, 0, 5),
    "AddPartitionsToTxn.transactional_id": _choice("wd-nobody", "wd-somebody", ""),
    "TxnOffsetCommit.transactional_id": _choice("wd-nobody", "wd-somebody", ""),
    "group_id": _choice("wd-group", ""),
    "member_id": _choice("", "wd-member"),
    "generation_id": _choice(-1, -1, 3),
    "committed_offset": _choice(0, 5, -1),
    "committed_leader_epoch": _choice(-1, 0),
    "committed_metadata": _choice("", None, "x" * 5000),
    "WriteTxnMarkers.producer_id": _choice(4_000_000, 4_000_001),
    "WriteTxnMarkers.producer_epoch": _choice(0, 1),
    "WriteTxnMarkers.name": _choice("wd-empty", "wd-missing", "bad name", ""),
    # By API where the name alone would do harm or say nothing.
    "CreateTopics.name": lambda rng: rng.choice(
        (
            f"wd-new-{rng.randrange(1000)}",
            f"wd-new-{rng.randrange(1000)}",
            "wd-filled",
            "bad name",
            "",
            "x" * 250,
            "wd.empty",
        )
    ),
    "DeleteTopics.name": lambda rng: rng.choice((f"wd-new-{rng.randrange(1000)}", "wd-missing", "bad name", "", None)),
    "DeleteTopics.topic_names": lambda rng: rng.choice((f"wd-new-{rng.randrange(1000)}", "wd-missing", "bad name", "")),
    "DeleteTopics.topic_id": _choice(_UNKNOWN_ID, _NO_ID, _NO_ID),
    "CreatePartitions.name": lambda rng: rng.choice(
        (f"wd-new-{rng.randrange(1000)}", f"wd-new-{rng.randrange(1000)}", "wd-missing", "bad name", "")
    ),
    "Metadata.name": _choice("wd-filled", "wd-empty", "wd-missing", "bad name", "x" * 250),
    "Metadata.allow_auto_topic_creation": _choice(False),
    # One unknown type or operation makes Apache Kafka fail the whole request, as an error of its own.
    "resource_type": _choice(2),
    "AlterConfigs.resource_name": lambda rng: rng.choice(
        (f"wd-new-{rng.randrange(1000)}", "wd-missing", "bad name", "")
    ),
    "IncrementalAlterConfigs.resource_name": lambda rng: rng.choice(
        (f"wd-new-{rng.randrange(1000)}", "wd-missing", "bad name", "")
    ),
    "configs.name": _CONFIG_NAME,
    "ListConfigResources.resource_types": _choice(2, 4, 16, 32, 0, 9),
    "DeleteRecords.name": _choice("wd-empty", "wd-compact", "wd-missing", "bad name"),
    "Produce.name": _NAME,
    # An empty name is an error of its own there.
    "DescribeTopicPartitions.name": _choice("wd-filled", "wd-empty", "wd-missing", "bad name", "x" * 250),
}
"""Field name -> value; the name of the API may stand before it."""

_WHOLE: dict[str, Any] = {
    "forgotten_topics_data": [],
    "assignments": [],
    "CreatePartitions.assignments": None,
    "cursor": None,
}
"""Whole values by name: lists that stay empty, structs that stay null."""
_AT_MOST_ONE = {"configs"}
"""With two wrong configs, a hash order decides which one the error names."""
_IDENTITY = ("name", "topic", "topic_id", "partition", "partition_index", "index", "resource_name")
"""The fields that identify an element of a list; brokers need not agree on the meaning of duplicates."""

_NULL_CHANCE = 0.15
"""Fields whose lists are null now and then (a null of others is tested by itself where it means something)."""


class Generator:
    """Requests of one API and version, the same for the same seed."""

    def __init__(self, key: int, version: int, seed: int, now: int) -> None:
        self._api = API_KEYS[key]
        self._version = version
        self._rng = random.Random(f"{key}.{version}.{seed}")
        self._now = now

    def requests(self, count: int) -> Iterator[Any]:
        """`count` requests."""
        for _ in range(count):
            request = self._struct(self._api.request, "")
            self._tidy(request)
            yield request

    def _tidy(self, request: Any) -> None:
        """Take out what Apache Kafka itself handles in a way that nobody should copy."""
        rng = self._rng
        if self._api.name == "Produce":
            everything = [partition for topic in request.topic_data for partition in topic.partition_data]
            for partition in everything:
                damage = rng.choice(_OTHER_DAMAGE) if rng.random() < 0.4 else ""
                if request.acks not in (0, 1, -1):
                    # Which of two errors is told depends on how far it read.
                    damage = ""
                elif len(everything) == 1 and self._exists(request.topic_data) and rng.random() < 0.2:
                    # With other partitions it refuses the whole request, and null records it never answers.
                    damage = rng.choice(_UNREADABLE)
                partition.records = memoryview(batches(rng, self._now, damage))
        if self._api.name == "AddPartitionsToTxn" and self._version >= 4 and not request.transactions:
            # It never answers that.
            request.transactions = [AddPartitionsToTxnTransaction(transactional_id="wd-nobody")]
        if self._api.name == "Fetch" and self._version >= 13:
            # Two zero ids make the whole request fail there.
            request.topics = [topic for topic in request.topics if topic.topic_id != _NO_ID]
        if self._api.name == "Metadata" and self._version < 12:
            # It refuses the whole request then, although clients of those versions send an id of zero.
            for topic in request.topics or []:
                topic.topic_id = _NO_ID
                if self._version < 4 and topic.name == "wd-missing":
                    # Auto-created: Apache Kafka says unknown once, kbroker answers when it is there.
                    topic.name = "wd-empty"

    def _exists(self, topics: list[Any]) -> bool:
        (topic,) = (topic for topic in topics if topic.partition_data)
        known = topic.name in TOPICS if self._version < 13 else topic.topic_id in {id_marker(name) for name in TOPICS}
        return known and topic.partition_data[0].index == 0

    def _struct(self, cls: type[Any], path: str) -> Any:
        values = {}
        for spec in struct_spec(cls).fields:
            if self._version not in spec.versions or is_own(spec):  # Apache Kafka skips kbroker's own
                continue
            # A tagged field that nobody sends stays away mostly.
            if spec.tag is not None and self._rng.random() < 0.7:
                continue
            values[spec.name] = self._field(spec, f"{path}{spec.name}.")
        return cls(**values)

    def _pool(self, path: str, name: str) -> Callable[[random.Random], Any] | None:
        api = self._api.name
        parent = path.rstrip(".").split(".")[-2:]
        for key in (".".join(parent), f"{api}.{name}", name):
            if key in _POOLS:
                return _POOLS[key]
        return None

    def _field(self, spec: FieldSpec, path: str) -> Any:
        rng = self._rng
        for key in (f"{self._api.name}.{spec.name}", spec.name):
            if key in _WHOLE:
                return _WHOLE[key]
        nullable = self._version in spec.nullable
        pool = self._pool(path, spec.name)
        if spec.type.element is not None:
            if nullable and rng.random() < _NULL_CHANCE:
                return None
            if spec.type.element.struct is not None:
                pool = None
            count = rng.choice((0, 1, 1, 1, 2, 3))
            if spec.name in _AT_MOST_ONE:
                count = min(count, 1)
            unique: dict[str, Any] = {}
            for _ in range(count):
                value = self._value(spec.type.element, spec, pool, path)
                unique.setdefault(repr(self._identity(value)), value)
            return list(unique.values())
        value = self._value(spec.type, spec, pool, path)
        if value is None and not nullable:
            return "" if spec.type.name == "Str" else spec.default
        return value

    def _identity(self, value: Any) -> Any:
        if not hasattr(value, "__kafka__"):
            return value
        fields = [spec.name for spec in struct_spec(type(value)).fields if self._version in spec.versions]
        return tuple(getattr(value, name) for name in _IDENTITY if name in fields)

    def _value(self, kind: TypeSpec, spec: FieldSpec, pool: Callable[[random.Random], Any] | None, path: str) -> Any:
        rng = self._rng
        if kind.name == "Records":
            return memoryview(b"")
        if pool is not None:
            return pool(rng)
        if kind.struct is not None:
            return self._struct(kind.struct, path)
        if kind.name == "Bool":
            return rng.random() < 0.5
        if spec.type.element is not None:
            return {"Str": "wd-element", "Bytes": b"", "UuidField": _NO_ID}.get(kind.name, 0)
        return {} if spec.default is MISSING else spec.default
