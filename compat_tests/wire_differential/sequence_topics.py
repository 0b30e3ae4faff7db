"""The requests of a sequence about topics and their logs, and the choices that all of its requests are made by."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from compat_tests.wire_differential.sequence_world import API_KEY, Step, Told, World
from kbroker.types import ZERO_UUID
from kbroker.wire.compression import CompressionType
from kbroker.wire.record_batch import Record, build_batch
from kbroker.wire.registry import API_KEYS

SOME_TIME = 1_717_000_000_000
_CONFIGS: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    ("cleanup.policy", ("compact", "delete", "compact,delete", "COMPACT", "")),
    ("retention.ms", ("-1", "3600000", " 77 ", "soon")),
    ("max.message.bytes", ("500", "1000000", "-1", "+1000")),
    ("message.timestamp.type", ("LogAppendTime", "CreateTime", "now")),
    ("min.insync.replicas", ("1", "2", "0")),
    ("segment.bytes", ("1048576", " 5000000 ", "1", None)),
    ("compression.type", ("gzip", "producer", "lz4", "none")),
    ("preallocate", ("TRUE", "false", "yes")),
    ("message.timestamp.before.max.ms", ("1000", "9223372036854775807")),
    ("no.such.config", ("1",)),
)
_INTERNAL = ("__consumer_offsets", "__transaction_state")


def _batch(records: list[Record], codec: CompressionType, damage: str, **header: Any) -> bytes:
    batch = bytearray(build_batch(records, compression=codec, **header))
    if damage == "crc":
        batch[-1] ^= 0x40
    elif damage == "cut":
        del batch[-3:]
    elif damage == "two":
        batch *= 2
    elif damage == "none":
        batch.clear()
    return bytes(batch)


class TopicSteps:
    """Chooses requests; knows the topics that there are, and how far each producer has come."""

    def __init__(self, seed: int) -> None:
        self.prefix = f"q{seed}-"
        self._rng = random.Random(seed)
        self._made: dict[str, int] = {}
        """The topics that there are, with how many partitions."""
        self._ends: dict[tuple[str, str, int], int] = {}
        """Producer, topic, partition -> the next sequence."""
        self._joined: set[str] = set()
        """Groups that have a member."""
        self._begun: set[str] = set()
        """Transactional ids that have a producer."""
        self._numbers = 0
        self._names = [self.prefix + name for name in ("a", "b", "c", "d.e", "d_e")]
        self._groups = [f"{self.prefix}group-{n}" for n in range(2)]
        self._ids = [f"{self.prefix}tx-{n}" for n in range(2)]
        self._loose = f"{self.prefix}idempotent"

    # --- choices ------------------------------------------------------------------------------------------------

    def _chance(self, chance: float) -> bool:
        return self._rng.random() < chance

    def _pick(self, *values: Any) -> Any:
        return self._rng.choice(values)

    def _topic(self) -> str:
        if self._chance(0.08):
            return str(self._pick(*_INTERNAL, "bad name", self.prefix + "missing", ""))
        return str(self._rng.choice(sorted(self._made))) if self._made else self._names[0]

    def _clients_topic(self) -> str:
        """No internal topic: what is in one depends on times, and on what others have done."""
        name = self._topic()
        return self.prefix + "missing" if name in _INTERNAL else name

    def _partition(self, topic: str) -> int:
        return int(self._pick(7, -1)) if self._chance(0.05) else self._rng.randrange(self._made.get(topic, 1))

    def _group(self) -> str:
        return "" if self._chance(0.03) else self._mostly(self._joined, self._groups)

    def _id(self) -> str:
        return str(self._pick("", self.prefix + "nobody")) if self._chance(0.05) else self._begun_id()

    def _begun_id(self) -> str:
        return self._mostly(self._begun, self._ids)

    def _mostly(self, likely: set[str], every: list[str]) -> str:
        return str(self._rng.choice(sorted(likely) if likely and self._chance(0.8) else every))

    def _step(self, api: str, told: Told | Callable[[World], Told], lowest: int = 0, **options: Any) -> Step:
        """A request in any version from ``lowest`` on."""
        versions = API_KEYS[API_KEY[api]].stable_versions
        version = self._rng.randint(max(versions.lowest, lowest), versions.highest)
        return Step(api, version, told if callable(told) else lambda world: told, **options)

    # --- topics -------------------------------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        name, values = self._rng.choice(_CONFIGS)
        return {"name": name, "value": self._rng.choice(values)}

    def _learn_topic(self, world: World, name: str, partitions: int) -> None:
        self._made[name] = partitions
        world.await_leader(name, partitions)

    def _create_topics(self) -> Step:
        names = {self._pick(*self._names, *self._names, "bad name", "", "__consumer_offsets") for _ in range(2)}
        topics = [
            {
                "name": name,
                "num_partitions": self._pick(1, 1, 2, -1, 0),
                "replication_factor": self._pick(1, 1, 1, -1, 2),
                "configs": [self._config()] if self._chance(0.3) else [],
            }
            for name in sorted(names)
        ]
        told = {"topics": topics, "timeout_ms": 60_000, "validate_only": self._chance(0.1)}

        def learn(world: World, answer: Any) -> None:
            for topic in answer.topics:
                if not topic.error_code and not told["validate_only"]:
                    world.talk.topic_ids[topic.name] = bytes(topic.topic_id)
                    self._learn_topic(world, topic.name, topic.num_partitions)

        return self._step("CreateTopics", told, 7, learn=learn, changes_metadata=True)

    def _delete_topics(self) -> Step:
        name, by_id = self._clients_topic(), self._chance(0.3)

        def told(world: World) -> Told:
            topic = {"name": None if by_id else name, "topic_id": world.topic_id(name) if by_id else ZERO_UUID}
            return {"topics": [topic], "topic_names": [name], "timeout_ms": 60_000}

        def learn(world: World, answer: Any) -> None:
            if not answer.responses[0].error_code:
                self._made.pop(name, None)
                self._ends = {key: end for key, end in self._ends.items() if key[1] != name}

        return self._step("DeleteTopics", told, 6 if by_id else 0, learn=learn, changes_metadata=True)

    def _create_partitions(self) -> Step:
        name, count = self._clients_topic(), self._pick(1, 2, 3, 0)

        def learn(world: World, answer: Any) -> None:
            if not answer.results[0].error_code:
                self._learn_topic(world, name, count)

        told = {"topics": [{"name": name, "count": count, "assignments": None}], "timeout_ms": 60_000}
        return self._step("CreatePartitions", told, learn=learn, changes_metadata=True)

    def _alter_configs(self) -> Step:
        name, config = self._clients_topic(), self._config()
        api = self._pick("AlterConfigs", "IncrementalAlterConfigs")
        if api == "IncrementalAlterConfigs":
            config["config_operation"] = self._pick(0, 0, 0, 1, 2)
        resource = {"resource_type": 2, "resource_name": name, "configs": [config]}
        return self._step(api, {"resources": [resource]}, changes_metadata=True)

    def _describe_configs(self) -> Step:
        resource = {"resource_type": 2, "resource_name": self._topic(), "configuration_keys": None}
        return self._step("DescribeConfigs", {"resources": [resource], "include_synonyms": True})

    def _describe_topics(self) -> Step:
        names = [{"name": name} for name in dict.fromkeys((self._topic(), self._topic())) if name]
        if self._chance(0.5):
            return self._step("DescribeTopicPartitions", {"topics": names})
        # Below version 4 the question makes topics.
        return self._step("Metadata", {"topics": names, "allow_auto_topic_creation": False}, 4)

    # --- logs ---------------------------------------------------------------------------------------------------

    def _produce(self) -> Step:
        """In a transaction, with a producer's id, or without."""
        topic = self._topic()
        index = self._partition(topic)
        kind = self._pick("plain", "idempotent", "transactional", "transactional")
        label = self._begun_id() if kind == "transactional" else self._loose
        end, shift = self._ends.get((label, topic, index), 0), self._pick(0, 0, 0, 0, 0, -1, 3)
        epoch_shift = self._pick(0, 0, 0, 0, 0, 0, -1, 1)
        damage = self._pick("no key", "crc", "cut", "two", "none") if self._chance(0.1) else ""
        self._numbers += 1
        key = None if damage == "no key" else b"key %d" % self._rng.randrange(3)
        records = [
            Record(0, SOME_TIME + n, key, b"value %d.%d" % (self._numbers, n), ()) for n in range(self._pick(1, 1, 3))
        ]
        codec = self._rng.choice(list(CompressionType))
        fields = {
            "transactional_id": label if kind == "transactional" and not self._chance(0.05) else None,
            "acks": self._pick(-1, -1, -1, 1, 5),
            "timeout_ms": 60_000,
        }

        def told(world: World) -> Told:
            header: dict[str, Any] = {}
            if kind != "plain":
                producer_id, epoch = world.producers.get(label, (4_000_000, 0))
                header = {
                    "producer_id": producer_id,
                    "producer_epoch": max(epoch + epoch_shift, 0),
                    "base_sequence": max(end + shift, 0),
                    "is_transactional": kind == "transactional",
                }
            data = {"index": index, "records": memoryview(_batch(records, codec, damage, **header))}
            return {
                **fields,
                "topic_data": [{"name": topic, "topic_id": world.topic_id(topic), "partition_data": [data]}],
            }

        def learn(world: World, answer: Any) -> None:
            error = answer.responses[0].partition_responses[0].error_code
            if not error and kind != "plain" and not shift and not epoch_shift:
                self._ends[label, topic, index] = end + len(records)

        return self._step("Produce", told, 9, learn=learn)

    def _fetch(self) -> Step:
        topic = self._clients_topic()
        partition = {
            "partition": self._partition(topic),
            "current_leader_epoch": self._pick(-1, -1, -1, 0, 5),
            "fetch_offset": self._pick(0, 0, 0, 1, 2, 5, 20, -1),
            "partition_max_bytes": 1 << 20,
        }
        isolation = self._pick(0, 1)

        def told(world: World) -> Told:
            topics = [{"topic": topic, "topic_id": world.topic_id(topic), "partitions": [partition]}]
            return {"replica_id": -1, "min_bytes": 0, "isolation_level": isolation, "topics": topics}

        return self._step("Fetch", told, 4)

    def _list_offsets(self) -> Step:
        topic = self._clients_topic()
        partition = {
            "partition_index": self._partition(topic),
            "current_leader_epoch": self._pick(-1, -1, 0, 5),
            "timestamp": self._pick(-1, -1, -2, -3, SOME_TIME, SOME_TIME + 1, -9),
        }
        told = {
            "replica_id": -1,
            "isolation_level": self._pick(0, 1),
            "topics": [{"name": topic, "partitions": [partition]}],
        }
        return self._step("ListOffsets", told, 4)

    def _delete_records(self) -> Step:
        topic = self._topic()
        partition = {"partition_index": self._partition(topic), "offset": self._pick(0, 1, 2, 4, -1, -2, 50)}
        topics = [{"name": topic, "partitions": [partition]}]
        return self._step("DeleteRecords", {"topics": topics, "timeout_ms": 60_000})

    def _leader_epochs(self) -> Step:
        topic = self._clients_topic()
        partition = {
            "partition": self._partition(topic),
            "current_leader_epoch": self._pick(-1, 0, 5),
            "leader_epoch": self._pick(0, 1, -1, 5),
        }
        topics = [{"topic": topic, "partitions": [partition]}]
        return self._step("OffsetForLeaderEpoch", {"replica_id": -1, "topics": topics}, 3)

    def _describe_producers(self) -> Step:
        topic = self._clients_topic()
        return self._step(
            "DescribeProducers", {"topics": [{"name": topic, "partition_indexes": [self._partition(topic)]}]}
        )
