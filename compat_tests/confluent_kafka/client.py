"""Adapter for confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

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
    Client,
    ClientError,
    Cluster,
    ReadTimeout,
    Record,
    error_name,
)

#: librdkafka's own (negative) codes that stand for an answer of the broker.
_LOCAL_NAMES = {
    KafkaError._UNKNOWN_TOPIC: "UNKNOWN_TOPIC_OR_PARTITION",
    KafkaError._UNKNOWN_PARTITION: "UNKNOWN_TOPIC_OR_PARTITION",
}


def _translate(error: KafkaError) -> ClientError:
    code = error.code()
    name = error_name(code) if code >= 0 else _LOCAL_NAMES.get(code, error.name())
    return ClientError(name, error.str())


class ConfluentKafkaClient(Client):
    """librdkafka through its Python binding."""

    name = "confluent-kafka"
    version = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"
    features = ALL_FEATURES - {"groups"}

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._common = {"bootstrap.servers": bootstrap, "log_level": 0, "topic.metadata.refresh.fast.interval.ms": 50}
        self._admin_client: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = AdminClient(dict(self._common))
        return self._admin_client

    @staticmethod
    def _wait(futures: Mapping[object, object]) -> object:
        (future,) = futures.values()
        try:
            return future.result(60)  # type: ignore[attr-defined]
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
        return set(self.admin.list_topics(timeout=30).topics)

    def partition_count(self, topic: str) -> int:
        described = self._wait(self.admin.describe_topics(confluent_kafka.TopicCollection([topic])))
        return len(described.partitions)  # type: ignore[attr-defined]

    def describe_cluster(self) -> Cluster:
        told = self.admin.describe_cluster().result(30)
        return Cluster(
            told.cluster_id, told.controller.id, tuple((node.id, node.host, node.port) for node in told.nodes)
        )

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        told = self._wait(self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in told.items()}  # type: ignore[attr-defined]

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

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        acks: int = -1,
        compression: str = "none",
        idempotent: bool = False,
        max_request_size: int | None = None,
        linger_ms: int = 5,
        timeout: float = 30,
    ) -> list[int]:
        producer = Producer(
            {
                **self._common,
                "acks": acks,
                "compression.type": compression,
                "enable.idempotence": idempotent,
                "message.max.bytes": max_request_size or 1000000,
                "linger.ms": linger_ms,
                "message.timeout.ms": int(timeout * 1000),
            }
        )
        offsets = [-1] * len(records)
        errors: list[KafkaError] = []

        def delivered(index: int) -> object:
            def on_delivery(error: KafkaError | None, message: confluent_kafka.Message) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    told = message.offset()
                    offsets[index] = -1 if acks == 0 or told is None or told < 0 else told

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
        left = producer.flush(timeout + 5)
        if errors:
            raise _translate(errors[0])
        if left:
            raise ClientError("TIMED_OUT", f"{left} records not delivered")
        return offsets

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

    def read(
        self,
        topic: str,
        partition: int = 0,
        start: int | str = EARLIEST,
        count: int = 1,
        *,
        timeout: float = 30,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int | None = None,
        max_partition_bytes: int | None = None,
    ) -> list[Record]:
        deadline = time.monotonic() + timeout
        configs: dict[str, object] = {
            "fetch.wait.max.ms": max_wait_ms,
            "fetch.min.bytes": min_bytes,
            "socket.timeout.ms": max_wait_ms + 30000,
        }
        if max_partition_bytes is not None:
            configs["max.partition.fetch.bytes"] = max_partition_bytes
        if max_bytes is not None:
            # librdkafka wants its own limits in order: max.bytes >= message.max.bytes.
            configs["fetch.max.bytes"] = max(max_bytes, 1000)
            configs["message.max.bytes"] = max(max_bytes, 1000)
        consumer = self._consumer(**configs)
        records: list[Record] = []
        try:
            # assign() of an unknown topic stays silent in librdkafka; its metadata call tells.
            unknown = consumer.list_topics(topic, timeout=30).topics[topic].error
            if unknown is not None:
                raise _translate(unknown)
            offset = {EARLIEST: confluent_kafka.OFFSET_BEGINNING, LATEST: confluent_kafka.OFFSET_END}.get(start, start)  # type: ignore[arg-type]
            consumer.assign([TopicPartition(topic, partition, offset)])  # type: ignore[arg-type]
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
                    kind, timestamp = message.timestamp()
                    records.append(
                        Record(
                            value=message.value(),
                            key=message.key(),
                            headers=tuple(message.headers() or ()),
                            timestamp=timestamp,
                            partition=message.partition(),
                            offset=message.offset(),
                            timestamp_type={1: "CreateTime", 2: "LogAppendTime"}.get(kind),
                        )
                    )
            return records
        except KafkaException as error:
            raise _translate(error.args[0]) from error
        finally:
            consumer.close()

    def list_offset(self, topic: str, partition: int, spec: int | str) -> int:
        where = TopicPartition(topic, partition)
        wanted = {
            EARLIEST: OffsetSpec.earliest,
            LATEST: OffsetSpec.latest,
            MAX_TIMESTAMP: OffsetSpec.max_timestamp,
        }
        kind = wanted[spec]() if isinstance(spec, str) else OffsetSpec.for_timestamp(spec)
        return int(self._wait(self.admin.list_offsets({where: kind})).offset)  # type: ignore[attr-defined]
