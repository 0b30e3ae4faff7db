"""Adapter for aiokafka; its coroutines run on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from compat_tests.client import (
    ALL_FEATURES,
    EARLIEST,
    LATEST,
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

T = TypeVar("T")


def _translate(error: KafkaError) -> ClientError:
    errno = getattr(error, "errno", None)
    name = error_name(errno) if isinstance(errno, int) else type(error).__name__
    return ClientError(name, str(error))


def _record(message: Any) -> Record:
    return Record(
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
        timestamp=message.timestamp,
        partition=message.partition,
        offset=message.offset,
        timestamp_type="LogAppendTime" if message.timestamp_type == 1 else "CreateTime",
    )


class AiokafkaClient(Client):
    """aiokafka's producer, consumer and admin client."""

    name = "aiokafka"
    version = aiokafka.__version__
    # Its metadata requests always allow auto-creation, and its ListOffsets is too old for the highest timestamp.
    features = ALL_FEATURES - {"offset_of_max_timestamp", "no_auto_create", "transaction_version_2"}

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        self._bootstrap = bootstrap
        self._security: dict[str, Any] = security.aiokafka() if security else {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._admin: AIOKafkaAdminClient | None = None

    def close(self) -> None:
        if self._admin is not None:
            self._run(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SHORT)

    def _run(self, coroutine: Coroutine[Any, Any, T], timeout: float = LONG) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)
        except KafkaError as error:
            raise _translate(error) from error

    async def _get_admin(self) -> AIOKafkaAdminClient:
        if self._admin is None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap, **self._security)
            await admin.start()
            self._admin = admin
        return self._admin

    async def _call_admin(self, method: str, *arguments: Any) -> Any:
        return await getattr(await self._get_admin(), method)(*arguments)

    @staticmethod
    def _check(code: int, message: str | None = None) -> None:
        if code:
            raise ClientError(error_name(code), message or "")

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        new = NewTopic(topic, partitions, replication_factor, topic_configs=dict(configs or {}))
        response = self._run(self._call_admin("create_topics", [new]))
        for _, code, *message in response.topic_errors:
            self._check(code, message[0] if message else None)

    def delete_topic(self, topic: str) -> None:
        response = self._run(self._call_admin("delete_topics", [topic]))
        for _, code in response.topic_error_codes:
            self._check(code)

    def create_partitions(self, topic: str, total: int) -> None:
        response = self._run(self._call_admin("create_partitions", {topic: NewPartitions(total)}))
        for _, code, message in response.topic_errors:
            self._check(code, message)

    def list_topics(self) -> set[str]:
        return set(self._run(self._call_admin("list_topics")))

    def partition_count(self, topic: str) -> int:
        described = self._run(self._call_admin("describe_topics", [topic]))[0]
        self._check(described["error_code"])
        return len(described["partitions"])

    def describe_cluster(self) -> Cluster:
        told = self._run(self._call_admin("describe_cluster"))
        brokers = tuple((node["node_id"], node["host"], node["port"]) for node in told["brokers"])
        return Cluster(told.get("cluster_id"), told["controller_id"], brokers)

    def _described(self, topic: str) -> list[Any]:
        (response,) = self._run(self._call_admin("describe_configs", [ConfigResource(ConfigResourceType.TOPIC, topic)]))
        ((code, message, _, _, entries),) = response.resources
        self._check(code, message)
        return list(entries)

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        return {entry[0]: entry[1] for entry in self._described(topic)}

    def alter_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        # Only the old AlterConfigs is there, which replaces all: send what is set already (source 1) too.
        wanted = {entry[0]: entry[1] for entry in self._described(topic) if entry[3] == 1}
        wanted.update(configs)
        values = {name: value for name, value in wanted.items() if value is not None}
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, values)
        (response,) = self._run(self._call_admin("alter_configs", [resource]))
        for code, message, _, _ in response.resources:
            self._check(code, message)

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        self._run(self._call_admin("delete_records", {TopicPartition(topic, partition): RecordsToDelete(offset)}))

    def _produce(self, topic: str, records: Sequence[Record], how: Producing) -> list[int]:
        async def run() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                **self._security,
                acks="all" if how.acks == -1 else how.acks,
                compression_type=None if how.compression == "none" else how.compression,
                enable_idempotence=how.idempotent,
                max_request_size=how.max_request_size or 1048576,
                linger_ms=how.linger_ms,
                request_timeout_ms=int(how.timeout * 1000),
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                told = await asyncio.gather(*futures)
                return [-1 if how.acks == 0 else metadata.offset for metadata in told]
            finally:
                await producer.stop()

        return self._run(run())

    def _produce_steps(self, steps: Sequence[Step], how: Stepping) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                **self._security,
                acks="all",
                enable_idempotence=how.idempotent or how.transactional_id is not None,
                transactional_id=how.transactional_id,
                linger_ms=5,
                max_batch_size=how.batch_bytes,
                request_timeout_ms=int(how.timeout * 1000),
            )
            await producer.start()
            sent: list[Any] = []
            try:
                begun = False
                for step in steps:
                    if how.transactional_id and not begun:
                        await producer.begin_transaction()
                        begun = True
                    sent += [await producer.send(step.topic, value=each.value, key=each.key) for each in step.records]
                    if step.then == "abort":
                        await producer.abort_transaction()
                    elif step.then == "commit":
                        await producer.commit_transaction()
                    if step.then:
                        await asyncio.gather(*sent)
                        sent.clear()
                    begun = begun and step.then not in ("commit", "abort")
                await asyncio.gather(*sent)
            finally:
                await producer.stop()

        self._run(run(), how.timeout + 30)

    def _read(self, topic: str, partition: int, start: int | str, count: int, how: Reading) -> list[Record]:
        limits: dict[str, Any] = {}
        if how.max_bytes is not None:
            limits["fetch_max_bytes"] = how.max_bytes
        if how.max_partition_bytes is not None:
            limits["max_partition_fetch_bytes"] = how.max_partition_bytes

        async def run() -> list[Record]:
            deadline = time.monotonic() + how.timeout
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                **self._security,
                group_id=None,
                auto_offset_reset="none",
                enable_auto_commit=False,
                fetch_max_wait_ms=how.max_wait_ms,
                fetch_min_bytes=how.min_bytes,
                request_timeout_ms=how.max_wait_ms + 30000,
                **limits,
            )
            await consumer.start()
            records: list[Record] = []
            try:
                if topic not in await consumer.topics():
                    raise ClientError("UNKNOWN_TOPIC_OR_PARTITION", topic)
                where = TopicPartition(topic, partition)
                consumer.assign([where])
                if start == EARLIEST:
                    await consumer.seek_to_beginning(where)
                elif start == LATEST:
                    await consumer.seek_to_end(where)
                else:
                    consumer.seek(where, start)
                while len(records) < count:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise ReadTimeout(records)
                    told = await consumer.getmany(timeout_ms=int(left * 1000), max_records=count - len(records))
                    for messages in told.values():
                        records.extend(_record(message) for message in messages)
                return records
            except OffsetOutOfRangeError as error:
                raise ClientError("OFFSET_OUT_OF_RANGE", str(error)) from error
            finally:
                await consumer.stop()

        return self._run(run(), how.timeout + 30)

    def read_to_end(
        self, topic: str, *, isolation: str = "read_uncommitted", fetch_bytes: int | None = None, timeout: float = LONG
    ) -> list[Record]:
        everywhere = [TopicPartition(topic, each) for each in range(self.partition_count(topic))]
        limits = {} if fetch_bytes is None else {"fetch_max_bytes": fetch_bytes}

        async def run() -> list[Record]:
            deadline = time.monotonic() + timeout
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                **self._security,
                group_id=None,
                enable_auto_commit=False,
                isolation_level=isolation,
                **limits,
            )
            await consumer.start()
            records: list[Record] = []
            try:
                consumer.assign(everywhere)
                await consumer.seek_to_beginning()
                ends = await consumer.end_offsets(everywhere)
                while True:
                    for each in everywhere:
                        if await consumer.position(each) < ends[each]:
                            break
                    else:
                        return records
                    if time.monotonic() > deadline:
                        raise ReadTimeout(records)
                    for messages in (await consumer.getmany(timeout_ms=500)).values():
                        records.extend(_record(message) for message in messages)
            finally:
                await consumer.stop()

        return self._run(run(), timeout + 30)

    def consume(
        self, topic: str, group: str, count: int, *, isolation: str = "read_uncommitted", timeout: float = LONG
    ) -> list[Record]:
        async def run() -> list[Record]:
            deadline = time.monotonic() + timeout
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=self._bootstrap,
                **self._security,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level=isolation,
            )
            await consumer.start()
            records: list[Record] = []
            try:
                while len(records) < count:
                    if time.monotonic() > deadline:
                        raise ReadTimeout(records)
                    told = await consumer.getmany(timeout_ms=500, max_records=count - len(records))
                    for messages in told.values():
                        records.extend(_record(message) for message in messages)
                offsets = next_offsets(records).items()
                await consumer.commit({TopicPartition(topic, partition): offset for partition, offset in offsets})
                return records
            finally:
                await consumer.stop()

        return self._run(run(), timeout + 30)

    def list_offset(self, topic: str, partition: int, spec: int | str) -> int:
        async def run() -> int:
            consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, group_id=None, **self._security)
            await consumer.start()
            where = TopicPartition(topic, partition)
            try:
                if spec == EARLIEST:
                    return int((await consumer.beginning_offsets([where]))[where])
                if spec == LATEST:
                    return int((await consumer.end_offsets([where]))[where])
                found = (await consumer.offsets_for_times({where: spec}))[where]
                return -1 if found is None else int(found.offset)
            finally:
                await consumer.stop()

        return self._run(run())
