"""Adapter for kafka-python 3."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import kafka
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import BrokerResponseError, KafkaError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata, TopicPartition

from compat_tests.client import (
    ALL_FEATURES,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
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
from compat_tests.kafka_python.rejoining import remind
from tests.patience import LONG, SHORT


def _translate(error: Exception) -> ClientError:
    if isinstance(error, BrokerResponseError):
        return ClientError(error_name(error.errno), str(error))
    return ClientError(type(error).__name__, str(error))


class KafkaPythonClient(Client):
    """kafka-python's producer, consumer and admin client."""

    name = "kafka-python"
    version = kafka.__version__
    features = ALL_FEATURES - {"null_header_value", "transaction_version_2"}

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        self._bootstrap = bootstrap
        self._security: dict[str, Any] = security.kafka_python() if security else {}
        self._admin: KafkaAdminClient | None = None

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    @property
    def admin(self) -> KafkaAdminClient:
        if self._admin is None:
            self._admin = KafkaAdminClient(bootstrap_servers=self._bootstrap, **self._security)
        else:
            # It remembers for five minutes which brokers were away when another test restarted them, and answers
            # UnknownBrokerIdError when one of these leads a partition.
            with contextlib.suppress(KafkaError):  # the call itself tells what is wrong
                self._admin._manager.run(self._admin._manager.cluster.refresh_metadata)
        # Or it would ask the same broker for ever, and end with UnknownBrokerIdError while that one is down.
        self._admin._controller_id = None
        return self._admin

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        try:
            self.admin.create_topics(
                [NewTopic(topic, partitions, replication_factor, topic_configs=dict(configs or {}))], timeout_ms=30000
            )
        except KafkaError as error:
            raise _translate(error) from error

    def delete_topic(self, topic: str) -> None:
        try:
            self.admin.delete_topics([topic], timeout_ms=30000)
        except KafkaError as error:
            raise _translate(error) from error

    def create_partitions(self, topic: str, total: int) -> None:
        try:
            self.admin.create_partitions({topic: NewPartitions(total)}, timeout_ms=30000)
        except KafkaError as error:
            raise _translate(error) from error

    def list_topics(self) -> set[str]:
        return set(self.admin.list_topics())

    def partition_count(self, topic: str) -> int:
        described = self.admin.describe_topics([topic])[0]
        if described["error_code"]:
            raise ClientError(error_name(described["error_code"]))
        return len(described["partitions"])

    def describe_cluster(self) -> Cluster:
        told = self.admin.describe_cluster()
        brokers = tuple(
            (node.get("broker_id", node.get("node_id")), node["host"], node["port"]) for node in told["brokers"]
        )
        return Cluster(told["cluster_id"], told["controller_id"], brokers)

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        try:
            told = self.admin.describe_configs([resource], config_filter="all")
        except KafkaError as error:
            raise _translate(error) from error
        return {name: entry["value"] for name, entry in _entries(told, topic).items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        values = {name: value for name, value in configs.items() if value is not None}
        resets = {name: None for name, value in configs.items() if value is None}
        try:
            if values:
                _check(self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, values)]), topic)
            if resets:
                _check(self.admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, resets)]), topic)
        except KafkaError as error:
            raise _translate(error) from error

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        try:
            self.admin.delete_records({TopicPartition(topic, partition): offset}, timeout_ms=30000)
        except KafkaError as error:
            raise _translate(error) from error

    def _produce(self, topic: str, records: Sequence[Record], how: Producing) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            **self._security,
            acks="all" if how.acks == -1 else how.acks,
            compression_type=None if how.compression == "none" else how.compression,
            enable_idempotence=how.idempotent,
            max_request_size=how.max_request_size or 1048576,
            linger_ms=how.linger_ms,
            retries=5,
            delivery_timeout_ms=int(how.timeout * 1000),
            request_timeout_ms=int(how.timeout * 1000) - 1000,
            max_block_ms=int(how.timeout * 1000),
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            producer.flush(timeout=how.timeout)
            return [future.get(how.timeout).offset for future in futures]
        except KafkaError as error:
            raise _translate(error) from error
        finally:
            producer.close(timeout=SHORT)

    def _produce_steps(self, steps: Sequence[Step], how: Stepping) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            **self._security,
            acks="all",
            enable_idempotence=how.idempotent or how.transactional_id is not None,
            transactional_id=how.transactional_id,
            max_in_flight_requests_per_connection=5,
            linger_ms=5,
            batch_size=how.batch_bytes,
            delivery_timeout_ms=int(how.timeout * 1000),
            request_timeout_ms=int(how.timeout * 1000) - 1000,
            max_block_ms=int(how.timeout * 1000),
        )
        sent = []
        try:
            begun = False
            if how.transactional_id:
                producer.init_transactions()
            for step in steps:
                if how.transactional_id and not begun:
                    producer.begin_transaction()
                    begun = True
                sent += [producer.send(step.topic, value=each.value, key=each.key) for each in step.records]
                if step.then == "abort":
                    producer.abort_transaction()  # what it has not sent yet it drops, and says so
                    sent.clear()
                elif step.then == "commit":
                    producer.commit_transaction()
                if step.then:
                    _settle(producer, sent, how.timeout)
                begun = begun and step.then not in ("commit", "abort")
            _settle(producer, sent, how.timeout)
        except KafkaError as error:
            raise _translate(error) from error
        finally:
            producer.close(timeout=SHORT)

    def _consumer(self, **configs: object) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            **{
                "bootstrap_servers": self._bootstrap,
                **self._security,
                "group_id": None,
                "auto_offset_reset": "none",
                "enable_auto_commit": False,
                "allow_auto_create_topics": False,
                **configs,
            }
        )

    def _read(self, topic: str, partition: int, start: int | str, count: int, how: Reading) -> list[Record]:
        deadline = time.monotonic() + how.timeout
        configs: dict[str, object] = {"fetch_max_wait_ms": how.max_wait_ms, "fetch_min_bytes": how.min_bytes}
        if how.max_bytes is not None:
            configs["fetch_max_bytes"] = how.max_bytes
        if how.max_partition_bytes is not None:
            configs["max_partition_fetch_bytes"] = how.max_partition_bytes
        consumer = self._consumer(**configs)
        records: list[Record] = []
        try:
            where = TopicPartition(topic, partition)
            if not consumer.partitions_for_topic(topic):
                raise ClientError("UNKNOWN_TOPIC_OR_PARTITION", topic)
            consumer.assign([where])
            if start == EARLIEST:
                consumer.seek_to_beginning(where)
            elif start == LATEST:
                consumer.seek_to_end(where)
            else:
                consumer.seek(where, start)
            while len(records) < count:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ReadTimeout(records)
                for batch in consumer.poll(timeout_ms=int(left * 1000), max_records=count - len(records)).values():
                    records.extend(_record(message) for message in batch)
            return records
        except OffsetOutOfRangeError as error:
            raise ClientError("OFFSET_OUT_OF_RANGE", str(error)) from error
        except KafkaError as error:
            raise _translate(error) from error
        finally:
            consumer.close()

    def read_to_end(
        self, topic: str, *, isolation: str = "read_uncommitted", fetch_bytes: int | None = None, timeout: float = LONG
    ) -> list[Record]:
        limits = {} if fetch_bytes is None else {"fetch_max_bytes": fetch_bytes}
        consumer = self._consumer(isolation_level=isolation, **limits)
        deadline = time.monotonic() + timeout
        records: list[Record] = []
        try:
            everywhere = [TopicPartition(topic, each) for each in range(self.partition_count(topic))]
            consumer.assign(everywhere)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(everywhere)
            while any(consumer.position(each) < ends[each] for each in everywhere):
                if time.monotonic() > deadline:
                    raise ReadTimeout(records)
                for batch in consumer.poll(timeout_ms=500).values():
                    records.extend(_record(message) for message in batch)
            return records
        except KafkaError as error:
            raise _translate(error) from error
        finally:
            consumer.close()

    def consume(
        self, topic: str, group: str, count: int, *, isolation: str = "read_uncommitted", timeout: float = LONG
    ) -> list[Record]:
        consumer = self._consumer(group_id=group, auto_offset_reset="earliest", isolation_level=isolation)
        deadline = time.monotonic() + timeout
        records: list[Record] = []
        try:
            consumer.partitions_for_topic(topic)  # a bug of its groups: see README.md
            consumer.subscribe([topic])
            while len(records) < count:
                if time.monotonic() > deadline:
                    raise ReadTimeout(records)
                for batch in consumer.poll(timeout_ms=500, max_records=count - len(records)).values():
                    records.extend(_record(message) for message in batch)
                remind(consumer)
            offsets = next_offsets(records).items()
            consumer.commit(
                {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets}
            )
            return records
        except KafkaError as error:
            raise _translate(error) from error
        finally:
            consumer.close()

    def list_offset(self, topic: str, partition: int, spec: int | str) -> int:
        where = TopicPartition(topic, partition)
        if spec == MAX_TIMESTAMP:
            from kafka.admin import OffsetSpec

            told = self.admin.list_partition_offsets({where: OffsetSpec.MAX_TIMESTAMP})
            return int(told[where].offset)
        consumer = self._consumer()
        try:
            if spec == EARLIEST:
                return int(consumer.beginning_offsets([where])[where])
            if spec == LATEST:
                return int(consumer.end_offsets([where])[where])
            found = consumer.offsets_for_times({where: spec})[where]
            return -1 if found is None else int(found.offset)
        except KafkaError as error:
            raise _translate(error) from error
        finally:
            consumer.close()


def _settle(producer: kafka.KafkaProducer, sent: list[object], timeout: float) -> None:
    """Wait for what was sent, and raise the first error."""
    producer.flush(timeout=timeout)
    for future in sent:
        future.get(timeout)  # type: ignore[attr-defined]
    sent.clear()


def _record(message: object) -> Record:
    return Record(
        value=message.value,  # type: ignore[attr-defined]
        key=message.key,  # type: ignore[attr-defined]
        headers=tuple(message.headers),  # type: ignore[attr-defined]
        timestamp=message.timestamp,  # type: ignore[attr-defined]
        partition=message.partition,  # type: ignore[attr-defined]
        offset=message.offset,  # type: ignore[attr-defined]
        timestamp_type="LogAppendTime" if message.timestamp_type == 1 else "CreateTime",  # type: ignore[attr-defined]
    )


def _check(told: object, topic: str) -> None:
    """kafka-python 3 answers {resource type: {name: "OK" or the text of the error}}."""
    assert isinstance(told, dict)
    for by_name in told.values():
        text = str(by_name.get(topic, "OK"))
        if text != "OK":
            number = re.match(r"\[Error (-?\d+)\]", text)
            raise ClientError(error_name(int(number[1])) if number else text, text)


def _entries(told: object, topic: str) -> dict[str, dict[str, str | None]]:
    """kafka-python 3 answers {resource type: {name: {config: entry}}}."""
    assert isinstance(told, dict)
    for by_name in told.values():
        if topic in by_name:
            found = by_name[topic]
            assert isinstance(found, dict)
            if not found:
                break  # the error is lost on the way
            return found
    raise ClientError("UNKNOWN_TOPIC_OR_PARTITION", topic)
