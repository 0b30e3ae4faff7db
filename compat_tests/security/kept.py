"""Producers and consumers of each client that stay connected while rights and quotas change: one record a call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from compat_tests.client import ClientError, error_name
from compat_tests.client_security import Security
from compat_tests.line_driver import LineDriverClient, decode_bytes, encode_bytes
from compat_tests.security.world import OPEN, World
from tests.patience import LONG, SHORT

T = TypeVar("T")


class KeptProducer(Protocol):
    """A producer that stays connected."""

    def send(self, topic: str, value: bytes = b"kept") -> None:
        """Send one record and wait; ClientError if it is refused."""
        ...

    def throttled_ms(self) -> float | None:
        """The longest throttle time that the client has told of, in milliseconds; None if it tells of none at all."""
        ...

    def close(self) -> None:
        """End the producer."""
        ...


def _refusal(error: Exception) -> ClientError:
    """An error of kafka-python or aiokafka by Kafka's name."""
    errno = getattr(error, "errno", -1)
    return ClientError(error_name(errno) if errno > 0 else type(error).__name__, str(error))


class _KafkaPython:
    def __init__(self, bootstrap: str, security: Security, patience: float) -> None:
        import kafka

        self._patience = patience
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            max_block_ms=int(patience * 1000),
            retries=0,
            metadata_max_age_ms=500,
            **security.kafka_python(),
        )

    def send(self, topic: str, value: bytes = b"kept") -> None:
        from kafka.errors import KafkaError

        try:
            self._producer.send(topic, value).get(self._patience)
        except KafkaError as error:
            raise _refusal(error) from error

    def throttled_ms(self) -> float | None:
        return float(self._producer.metrics()["producer-metrics"]["throttle-time-max"])

    def close(self) -> None:
        from kafka.errors import KafkaError

        producer = self._producer
        try:
            producer.close(timeout=1)
        except KafkaError:  # it could not send all while it was refused, and its thread would try to log in for ever
            producer._sender.force_close()
            producer._sender.join(5)
            with contextlib.suppress(KafkaError):
                producer.close(timeout=0)


class _ConfluentKafka:
    def __init__(self, bootstrap: str, security: Security, patience: float) -> None:
        from confluent_kafka import Producer

        self._patience = patience
        self._throttled = [0.0]
        self._told: list[Any] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "message.timeout.ms": int(patience * 1000),
                "topic.metadata.refresh.interval.ms": 500,
                "throttle_cb": lambda event: self._throttled.append(event.throttle_time * 1000),
                "error_cb": self._told.append,
                **security.librdkafka(),
            }
        )

    def send(self, topic: str, value: bytes = b"kept") -> None:
        from confluent_kafka import KafkaException

        errors: list[Any] = []
        try:
            self._producer.produce(topic, value, on_delivery=lambda error, message: errors.append(error))
            self._producer.flush(2 * self._patience)
        except KafkaException as known:  # what its metadata has told already
            errors.append(known.args[0])
        if not errors:
            raise ClientError("TIMED_OUT", f"no answer in {2 * self._patience:.0f} s")
        (error,) = errors
        if error is not None and error.name() == "_MSG_TIMED_OUT":
            # It tries to log in until the record's time is over; why it could not, it tells aside.
            error = next((told for told in self._told if told.name() == "_AUTHENTICATION"), error)
        if error is not None:
            raise ClientError(error_name(error.code()) if error.code() >= 0 else error.name(), error.str())

    def throttled_ms(self) -> float | None:
        self._producer.poll(0)
        return max(self._throttled)

    def close(self) -> None:
        pass


class _Loop:
    """An event loop in a thread of its own, for libraries that need one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LONG)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SHORT)
        self._loop.close()


class _Aiokafka:
    def __init__(self, bootstrap: str, security: Security, patience: float) -> None:
        from aiokafka import AIOKafkaProducer

        async def begin() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                metadata_max_age_ms=500,
                # The first connection has as long, with its login; it is not tried again.
                request_timeout_ms=int(min(patience, 30) * 1000),
                **security.aiokafka(),
            )
            await producer.start()
            return producer

        self._loop = _Loop()
        self._producer = self._loop.run(begin())

    def send(self, topic: str, value: bytes = b"kept") -> None:
        from aiokafka.errors import KafkaError

        try:
            self._loop.run(self._producer.send_and_wait(topic, value))
        except KafkaError as error:
            raise _refusal(error) from error

    def throttled_ms(self) -> float | None:
        return None

    def close(self) -> None:
        self._loop.run(self._producer.stop())
        self._loop.close()


class _InDriver:
    """The producer that a driver in another language keeps for an address and a way to connect."""

    def __init__(self, driver: LineDriverClient) -> None:
        self._driver = driver
        self._throttled: float | None = None

    def send(self, topic: str, value: bytes = b"kept") -> None:
        self._throttled = self._driver.call("kept_produce", topic=topic, value=encode_bytes(value))

    def throttled_ms(self) -> float | None:
        return self._throttled

    def close(self) -> None:
        pass


_PRODUCERS: dict[str, Callable[[str, Security, float], KeptProducer]] = {
    "kafka-python": _KafkaPython,
    "confluent-kafka": _ConfluentKafka,
    "aiokafka": _Aiokafka,
}


def kept_producer(world: World, name: str, listener: str, security: Security, patience: float = SHORT) -> KeptProducer:
    """A producer of the client `name` that stays connected; it tries for `patience` seconds where it has a say."""
    client = world.client(name, listener, security)
    if isinstance(client, LineDriverClient):
        return _InDriver(client)
    client.close()
    return _PRODUCERS[name](world.servers.bootstrap(listener), security, patience)


class KeptConsumer(Protocol):
    """A consumer without a group that stays connected to the one partition of a topic."""

    def read(self) -> bytes | None:
        """The value of the next record, None if none comes within half a second; ClientError if it is refused."""
        ...

    def close(self) -> None:
        """End the consumer."""
        ...


class _KafkaPythonConsumer:
    def __init__(self, bootstrap: str, security: Security, topic: str) -> None:
        import kafka

        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            metadata_max_age_ms=500,
            **security.kafka_python(),
        )
        self._consumer.assign([kafka.TopicPartition(topic, 0)])

    def read(self) -> bytes | None:
        from kafka.errors import KafkaError

        try:
            told = self._consumer.poll(timeout_ms=500, max_records=1)
        except KafkaError as error:
            raise _refusal(error) from error
        for (record,) in told.values():
            value: bytes = record.value
            return value
        return None

    def close(self) -> None:
        self._consumer.close()


class _ConfluentKafkaConsumer:
    def __init__(self, bootstrap: str, security: Security, topic: str) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{OPEN}none",
                "enable.auto.commit": False,
                "log_level": 0,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 1,  # after a denial a second: ten times this, and not less
                "topic.metadata.refresh.interval.ms": 500,
                **security.librdkafka(),
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def read(self) -> bytes | None:
        message = self._consumer.poll(0.5)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            raise ClientError(error_name(error.code()) if error.code() >= 0 else error.name(), error.str())
        return message.value()

    def close(self) -> None:
        self._consumer.close()


class _AiokafkaConsumer:
    def __init__(self, bootstrap: str, security: Security, topic: str) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def begin() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=None,
                auto_offset_reset="earliest",
                metadata_max_age_ms=500,
                **security.aiokafka(),
            )
            await consumer.start()
            consumer.assign([TopicPartition(topic, 0)])
            return consumer

        self._loop = _Loop()
        self._consumer = self._loop.run(begin())

    def read(self) -> bytes | None:
        from aiokafka.errors import KafkaError

        try:
            told = self._loop.run(self._consumer.getmany(timeout_ms=500, max_records=1))
        except KafkaError as error:
            raise _refusal(error) from error
        for (record,) in told.values():
            value: bytes | None = record.value
            return value
        return None

    def close(self) -> None:
        self._loop.run(self._consumer.stop())
        self._loop.close()


class _ConsumerInDriver:
    def __init__(self, driver: LineDriverClient, topic: str) -> None:
        self._driver = driver
        self._topic = topic

    def read(self) -> bytes | None:
        return decode_bytes(self._driver.call("kept_consume", topic=self._topic))

    def close(self) -> None:
        self._driver.call("end_kept_consumer")


WITH_KEPT_CONSUMER = ("kafka-python", "confluent-kafka", "aiokafka", "java")
"""kafkajs has no consumer without a group, and ends it for good when it is refused; kcat ends, too."""

_CONSUMERS: dict[str, Callable[[str, Security, str], KeptConsumer]] = {
    "kafka-python": _KafkaPythonConsumer,
    "confluent-kafka": _ConfluentKafkaConsumer,
    "aiokafka": _AiokafkaConsumer,
}


def kept_consumer(world: World, name: str, listener: str, security: Security, topic: str) -> KeptConsumer:
    """A consumer of the client `name` that stays connected, from a topic's start on."""
    client = world.client(name, listener, security)
    if isinstance(client, LineDriverClient):
        return _ConsumerInDriver(client, topic)
    client.close()
    return _CONSUMERS[name](world.servers.bootstrap(listener), security, topic)
