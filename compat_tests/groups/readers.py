"""A member of a consumer group, by three libraries behind one small synchronous face."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener

T = TypeVar("T")
POLL_SECONDS = 0.1


class Reader:
    """One member: ``seen`` are the (partition, offset) pairs it read, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def poll(self) -> None:
        """Let the member work for up to a tenth of a second."""
        raise NotImplementedError

    def assignment(self) -> set[int]:
        """The partitions it owns now."""
        raise NotImplementedError

    def commit(self) -> None:
        """Commit the position, and wait for the answer."""
        raise NotImplementedError

    def commit_offset(self, topic: str, partition: int, offset: int) -> None:
        """Commit that offset, and wait for the answer."""
        raise NotImplementedError

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read on from that offset."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the group."""
        raise NotImplementedError


class KafkaPythonReader(Reader):
    """kafka-python's consumer."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], pattern: str | None = None) -> None:
        super().__init__()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            heartbeat_interval_ms=300, session_timeout_ms=6000, metadata_max_age_ms=500,
        )
        self._consumer.subscribe(topics=topics, pattern=pattern)

    def poll(self) -> None:
        for records in self._consumer.poll(timeout_ms=int(POLL_SECONDS * 1000)).values():
            self.seen += [(record.partition, record.offset) for record in records]

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def commit_offset(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.commit({kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, "", -1)})

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(kafka.TopicPartition(topic, partition), offset)

    def close(self) -> None:
        self._consumer.close()


class ConfluentReader(Reader):
    """librdkafka's consumer; `options` are its properties."""

    def __init__(
        self, bootstrap: str, group: str, topics: list[str], pattern: str | None = None, **options: object
    ) -> None:
        super().__init__()
        self.errors: list[str] = []
        self.assigned: list[list[int]] = []
        self.revoked: list[list[int]] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "heartbeat.interval.ms": 300, "session.timeout.ms": 6000,
                "topic.metadata.refresh.interval.ms": 500, "log_level": 0,
                "error_cb": lambda error: self.errors.append(str(error)),
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )
        self._consumer.subscribe(
            [pattern] if pattern else topics,
            on_assign=lambda _, got: self.assigned.append([each.partition for each in got]),
            on_revoke=lambda _, lost: self.revoked.append([each.partition for each in lost]),
        )

    def poll(self) -> None:
        for message in self._consumer.consume(100, POLL_SECONDS):
            if message.error():
                self.errors.append(str(message.error()))
            else:
                self.seen.append((message.partition(), message.offset()))

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def member_id(self) -> str:
        """The id that the coordinator gave."""
        return str(self._consumer.memberid())

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def commit_offset(self, topic: str, partition: int, offset: int) -> None:
        offsets = [confluent_kafka.TopicPartition(topic, partition, offset)]
        self._consumer.commit(offsets=offsets, asynchronous=False)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(confluent_kafka.TopicPartition(topic, partition, offset))

    def close(self) -> None:
        self._consumer.close()


class _Assignment(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.partitions: set[int] = set()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.partitions = set()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.partitions = {each.partition for each in assigned}


class AiokafkaReader(Reader):
    """aiokafka's consumer, on an event loop in a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], pattern: str | None = None) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._assignment = _Assignment()
        self._consumer: Any = None
        self._run(self._start(bootstrap, group, topics, pattern))

    async def _start(self, bootstrap: str, group: str, topics: list[str], pattern: str | None) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            heartbeat_interval_ms=300, session_timeout_ms=6000, metadata_max_age_ms=500,
        )
        self._consumer.subscribe(topics=topics, pattern=pattern and re.compile(pattern).pattern,
                                 listener=self._assignment)
        # Its start waits for the first assignment, which waits for the other members' polls.
        self._starting = self._loop.create_task(self._consumer.start())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _poll(self) -> list[tuple[int, int]]:
        await asyncio.wait([self._starting], timeout=POLL_SECONDS)
        if not self._starting.done():
            return []
        self._starting.result()
        got = await self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
        return [(each.partition, each.offset) for records in got.values() for each in records]

    def poll(self) -> None:
        self.seen += self._run(self._poll())

    def assignment(self) -> set[int]:
        return set(self._assignment.partitions)

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def commit_offset(self, topic: str, partition: int, offset: int) -> None:
        self._run(self._consumer.commit({TopicPartition(topic, partition): offset}))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        async def seek() -> None:
            self._consumer.seek(TopicPartition(topic, partition), offset)

        self._run(seek())

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


READERS = {"kafka-python": KafkaPythonReader, "confluent-kafka": ConfluentReader, "aiokafka": AiokafkaReader}
