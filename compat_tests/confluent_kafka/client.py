"""Adapter for confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from compat_tests.client import (
    ALL_FEATURES,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    MAX_TRANSACTION_MS,
    Client,
    ClientError,
    Cluster,
    Producing,
    Reading,
    ReadTimeout,
    Record,
    Step,
    Stepping,
    error_name,
    next_offsets,
)
from compat_tests.client_security import Security
from tests.patience import LONG, SHORT

_LOCAL_NAMES = {
    KafkaError._UNKNOWN_TOPIC: "UNKNOWN_TOPIC_OR_PARTITION",
    KafkaError._UNKNOWN_PARTITION: "UNKNOWN_TOPIC_OR_PARTITION",
}
"""librdkafka's own (negative) codes that stand for an answer of the broker."""


def _translate(error: KafkaError) -> ClientError:
    code = error.code()
    name = error_name(code) if code >= 0 else _LOCAL_NAMES.get(code, error.name())
    return ClientError(name, error.str())


def _refuse(errors: Sequence[KafkaError]) -> None:
    if errors:
        raise _translate(errors[0])


def _record(message: confluent_kafka.Message) -> Record:
    kind, timestamp = message.timestamp()
    headers: Any = message.headers() or ()
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None, "it was read"
    return Record(
        value=message.value(),
        key=message.key(),
        headers=tuple(headers),
        timestamp=timestamp,
        partition=partition,
        offset=offset,
        timestamp_type={1: "CreateTime", 2: "LogAppendTime"}.get(kind),
    )


class ConfluentKafkaClient(Client):
    """librdkafka through its Python binding."""

    name = "confluent-kafka"
    version = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"
    features = ALL_FEATURES - {"transaction_version_2"}

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        self._bootstrap = bootstrap
        self._common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "topic.metadata.refresh.fast.interval.ms": 50,
            **(security.librdkafka() if security else {}),
        }
        self._admin_client: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = AdminClient(dict(self._common))
        return self._admin_client

    @staticmethod
    def _wait(futures: Mapping[Any, Future[Any]]) -> Any:
        (future,) = futures.values()
        try:
            return future.result(SHORT)
        except KafkaException as error:
            raise _translate(error.args[0]) from error

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        new = NewTopic(
            topic, num_partitions=partitions, replication_factor=replication_factor, config=dict(configs or {})
        )
        self._wait(self.admin.create_topics([new]))

    def delete_topic(self, topic: str) -> None:
        self._wait(self.admin.delete_topics([topic]))

    def create_partitions(self, topic: str, total: int) -> None:
        self._wait(self.admin.create_partitions([NewPartitions(topic, total)]))

    def list_topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=SHORT).topics)

    def partition_count(self, topic: str) -> int:
        described = self._wait(self.admin.describe_topics(confluent_kafka.TopicCollection([topic])))
        return len(described.partitions)

    def describe_cluster(self) -> Cluster:
        told = self.admin.describe_cluster().result(LONG)
        return Cluster(
            told.cluster_id, told.controller.id, tuple((node.id, node.host, node.port) for node in told.nodes)
        )

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        told = self._wait(self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in told.items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                name, value, incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            )
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._wait(self.admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        self._wait(self.admin.delete_records([TopicPartition(topic, partition, offset)]))

    def _produce(self, topic: str, records: Sequence[Record], how: Producing) -> list[int]:
        producer = Producer(
            {
                **self._common,
                "acks": how.acks,
                "compression.type": how.compression,
                "enable.idempotence": how.idempotent,
                "message.max.bytes": how.max_request_size or 1000000,
                "linger.ms": how.linger_ms,
                "message.timeout.ms": int(how.timeout * 1000),
            }
        )
        offsets = [-1] * len(records)
        errors: list[KafkaError] = []

        def delivered(index: int) -> Callable[[Any, Any], None]:
            def on_delivery(error: KafkaError | None, message: confluent_kafka.Message) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    told = message.offset()
                    offsets[index] = -1 if how.acks == 0 or told is None or told < 0 else told

            return on_delivery

        for index, record in enumerate(records):
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp=record.timestamp or 0,
                    headers=list(record.headers) or None,
                    on_delivery=delivered(index),
                )
            except KafkaException as error:
                raise _translate(error.args[0]) from error
        left = producer.flush(how.timeout + 5)
        if errors:
            raise _translate(errors[0])
        if left:
            raise ClientError("TIMED_OUT", f"{left} records not delivered")
        return offsets

    def _produce_steps(self, steps: Sequence[Step], how: Stepping) -> None:
        milliseconds = min(int(how.timeout * 1000), MAX_TRANSACTION_MS)
        producer = Producer(
            {
                **self._common,
                "acks": -1,
                "enable.idempotence": how.idempotent or how.transactional_id is not None,
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": 5,
                "batch.size": how.batch_bytes,
                "message.timeout.ms": milliseconds,
                # librdkafka wants that no message outlives its transaction.
                **(
                    {"transactional.id": how.transactional_id, "transaction.timeout.ms": milliseconds}
                    if how.transactional_id
                    else {}
                ),
            }
        )
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is not None:
                errors.append(error)

        try:
            begun = False
            if how.transactional_id:
                producer.init_transactions(how.timeout)
            for step in steps:
                if how.transactional_id and not begun:
                    producer.begin_transaction()
                    begun = True
                for record in step.records:
                    producer.produce(step.topic, value=record.value, key=record.key, on_delivery=on_delivery)
                    producer.poll(0)
                if step.then == "flush" and producer.flush(how.timeout):
                    raise ClientError("TIMED_OUT", "not all records were delivered")
                if step.then == "commit":
                    producer.commit_transaction(how.timeout)
                if step.then == "abort":
                    _refuse(errors)
                    producer.abort_transaction(how.timeout)  # what it has not sent yet it drops, and says so
                    errors.clear()
                begun = begun and step.then not in ("commit", "abort")
            if producer.flush(how.timeout):
                raise ClientError("TIMED_OUT", "not all records were delivered")
        except KafkaException as error:
            raise _translate(error.args[0]) from error
        _refuse(errors)

    def _consumer(self, **configs: object) -> Consumer:
        return Consumer(
            {
                **self._common,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
                **configs,
            }
        )

    def _read(self, topic: str, partition: int, start: int | str, count: int, how: Reading) -> list[Record]:
        deadline = time.monotonic() + how.timeout
        configs: dict[str, object] = {
            "fetch.wait.max.ms": how.max_wait_ms,
            "fetch.min.bytes": how.min_bytes,
            "socket.timeout.ms": how.max_wait_ms + 30000,
        }
        if how.max_partition_bytes is not None:
            configs["max.partition.fetch.bytes"] = how.max_partition_bytes
        if how.max_bytes is not None:
            # librdkafka wants its own limits in order: max.bytes >= message.max.bytes.
            configs["fetch.max.bytes"] = max(how.max_bytes, 1000)
            configs["message.max.bytes"] = max(how.max_bytes, 1000)
        consumer = self._consumer(**configs)
        records: list[Record] = []
        try:
            # assign() of an unknown topic stays silent in librdkafka; its metadata call tells.
            unknown = consumer.list_topics(topic, timeout=SHORT).topics[topic].error
            if unknown is not None:
                raise _translate(unknown)
            offset = {EARLIEST: confluent_kafka.OFFSET_BEGINNING, LATEST: confluent_kafka.OFFSET_END}.get(start, start)  # type: ignore[arg-type]
            consumer.assign([TopicPartition(topic, partition, offset)])
            while len(records) < count:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ReadTimeout(records)
                for message in consumer.consume(1, timeout=min(left, 1)):
                    error = message.error()
                    if error is not None:
                        if error.code() == KafkaError._AUTO_OFFSET_RESET:
                            raise ClientError("OFFSET_OUT_OF_RANGE", error.str())
                        raise _translate(error)
                    records.append(_record(message))
            return records
        except KafkaException as error:
            raise _translate(error.args[0]) from error
        finally:
            consumer.close()

    def read_to_end(
        self, topic: str, *, isolation: str = "read_uncommitted", fetch_bytes: int | None = None, timeout: float = LONG
    ) -> list[Record]:
        limits = {} if fetch_bytes is None else {"fetch.max.bytes": fetch_bytes, "message.max.bytes": fetch_bytes}
        consumer = self._consumer(**{"isolation.level": isolation, "enable.partition.eof": True, **limits})
        deadline = time.monotonic() + timeout
        records: list[Record] = []
        try:
            left = set(range(self.partition_count(topic)))
            consumer.assign([TopicPartition(topic, each, confluent_kafka.OFFSET_BEGINNING) for each in left])
            while left:
                if time.monotonic() > deadline:
                    raise ReadTimeout(records)
                for message in consumer.consume(1000, timeout=0.2):
                    error = message.error()
                    if error is None:
                        records.append(_record(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
                    else:
                        raise _translate(error)
            return records
        finally:
            consumer.close()

    def consume(
        self, topic: str, group: str, count: int, *, isolation: str = "read_uncommitted", timeout: float = LONG
    ) -> list[Record]:
        consumer = self._consumer(**{"group.id": group, "auto.offset.reset": "earliest", "isolation.level": isolation})
        deadline = time.monotonic() + timeout
        records: list[Record] = []
        try:
            consumer.subscribe([topic])
            while len(records) < count:
                if time.monotonic() > deadline:
                    raise ReadTimeout(records)
                for message in consumer.consume(min(1000, count - len(records)), timeout=0.2):
                    error = message.error()
                    if error is not None:
                        raise _translate(error)
                    records.append(_record(message))
            offsets = [TopicPartition(topic, partition, offset) for partition, offset in next_offsets(records).items()]
            for told in consumer.commit(offsets=offsets, asynchronous=False) or ():
                if told.error is not None:
                    raise _translate(told.error)
            return records
        except KafkaException as error:
            raise _translate(error.args[0]) from error
        finally:
            consumer.close()

    def list_offset(self, topic: str, partition: int, spec: int | str) -> int:
        where = TopicPartition(topic, partition)
        wanted: dict[str, Any] = {
            EARLIEST: OffsetSpec.earliest,
            LATEST: OffsetSpec.latest,
            MAX_TIMESTAMP: OffsetSpec.max_timestamp,
        }
        kind = wanted[spec]() if isinstance(spec, str) else OffsetSpec.for_timestamp(spec)
        return int(self._wait(self.admin.list_offsets({where: kind})).offset)
