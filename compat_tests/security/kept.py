"""A producer of each client that stays connected while rights change: one record a call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from compat_tests.client import ClientError, error_name
from compat_tests.client_security import Security
from compat_tests.line_driver import LineDriverClient
from compat_tests.security.world import World

Send = Callable[[str], None]
"""Send one record to a topic and wait; ClientError if it is refused."""
Close = Callable[[], None]


def _kafka_python(bootstrap: str, security: Security) -> tuple[Send, Close]:
    import kafka
    from kafka.errors import KafkaError

    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, max_block_ms=5000, retries=0, metadata_max_age_ms=500, **security.kafka_python()
    )

    def send(topic: str) -> None:
        try:
            producer.send(topic, b"kept").get(5)
        except KafkaError as error:
            errno = getattr(error, "errno", -1)
            raise ClientError(error_name(errno) if errno > 0 else type(error).__name__, str(error)) from error

    def close() -> None:
        try:
            producer.close(timeout=1)
        except KafkaError:  # it could not send all while it was refused, and its thread would try to log in for ever
            producer._sender.force_close()
            producer._sender.join(5)
            with contextlib.suppress(KafkaError):
                producer.close(timeout=0)

    return send, close


def _confluent_kafka(bootstrap: str, security: Security) -> tuple[Send, Close]:
    from confluent_kafka import KafkaException, Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "message.timeout.ms": 3000,
            "topic.metadata.refresh.interval.ms": 500,
            **security.librdkafka(),
        }
    )

    def send(topic: str) -> None:
        errors: list[Any] = []
        try:
            producer.produce(topic, b"kept", on_delivery=lambda error, message: errors.append(error))
            producer.flush(10)
        except KafkaException as known:  # what its metadata has told already
            errors.append(known.args[0])
        if not errors:
            raise ClientError("TIMED_OUT", "no answer in 10 s")
        (error,) = errors
        if error is not None:
            raise ClientError(error_name(error.code()) if error.code() >= 0 else error.name(), error.str())

    return send, lambda: None


def _aiokafka(bootstrap: str, security: Security) -> tuple[Send, Close]:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    async def begin() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, metadata_max_age_ms=500, request_timeout_ms=5000, **security.aiokafka()
        )
        await producer.start()
        return producer

    producer = run(begin())

    def send(topic: str) -> None:
        try:
            run(producer.send_and_wait(topic, b"kept"))
        except KafkaError as error:
            errno = getattr(error, "errno", -1)
            raise ClientError(error_name(errno) if errno > 0 else type(error).__name__, str(error)) from error

    def close() -> None:
        run(producer.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()

    return send, close


def kept_producer(world: World, name: str, listener: str, security: Security) -> tuple[Send, Close]:
    """A producer of the client `name` that stays connected, and how to close it."""
    client = world.client(name, listener, security)
    if isinstance(client, LineDriverClient):
        driver = client

        def send(topic: str) -> None:
            driver.call("kept_produce", topic=topic)

        return send, lambda: None
    client.close()
    make = {"kafka-python": _kafka_python, "confluent-kafka": _confluent_kafka, "aiokafka": _aiokafka}[name]
    return make(world.servers.bootstrap(listener), security)
