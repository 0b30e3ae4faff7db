"""The output of each client that was not let in, or that did not trust the broker: all that it says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import time
from collections.abc import Callable, Iterator

from confluent_kafka import KafkaError, KafkaException, Producer

from compat_tests.client import ClientError
from compat_tests.client_security import Security
from compat_tests.line_driver import LineDriverClient
from compat_tests.security.world import World
from tests.patience import LONG

LET_IN = "let in"

GIVE_UP = (2.0, 10.0, 60.0)
"""Seconds after which a client that tries for ever has said what it has to say; on a slow machine it takes longer."""


@contextlib.contextmanager
def _logged(*names: str) -> Iterator[list[str]]:
    """The messages that a library logs meanwhile: some tell there alone why they were refused."""
    said: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    keeper = Keeper()
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addHandler(keeper)
    try:
        yield said
    finally:
        for logger in loggers:
            logger.removeHandler(keeper)


def _kafka_python(bootstrap: str, security: Security, give_up: float) -> str:
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError as Refused

    with _logged("kafka") as said:
        try:
            admin = KafkaAdminClient(
                bootstrap_servers=bootstrap, bootstrap_timeout_ms=int(give_up * 1000), **security.kafka_python()
            )
        except Refused as error:
            return "\n".join([*said, f"{type(error).__name__}: {error}"])
        try:
            admin.describe_cluster()
        finally:
            admin.close()
    return LET_IN


def _confluent_kafka(bootstrap: str, security: Security, give_up: float) -> str:
    errors: list[KafkaError] = []
    configs = {"bootstrap.servers": bootstrap, "log_level": 0, **security.librdkafka(), "error_cb": errors.append}
    producer = Producer(configs)
    deadline = time.monotonic() + 2 * give_up
    while time.monotonic() < deadline and not errors:
        try:
            producer.list_topics(timeout=0.2)
        except KafkaException:
            producer.poll(0)
        else:
            return LET_IN
    return "\n".join(f"{error.name()}: {error.str()}" for error in errors)


def _aiokafka(bootstrap: str, security: Security, give_up: float) -> str:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError as Refused

    async def go() -> str:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **security.aiokafka())
        try:
            await producer.start()
            return LET_IN
        except Refused as error:
            return f"{type(error).__name__}: {error}"
        finally:
            await producer.stop()

    with _logged("aiokafka") as said:
        told = asyncio.run(go())
    return told if told == LET_IN else "\n".join([*said, told])


def _kcat(bootstrap: str, security: Security, give_up: float) -> str:
    settings = [part for name, value in security.librdkafka().items() for part in ("-X", f"{name}={value}")]
    command = ["kcat", "-b", bootstrap, *settings, "-L", "-m", str(int(give_up))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    return done.stderr if done.returncode else LET_IN


def _driver(client: LineDriverClient) -> str:
    try:
        client.describe_cluster()
    except ClientError as error:
        return str(error)
    return LET_IN


_IN_PROCESS: dict[str, Callable[[str, Security, float], str]] = {
    "kafka-python": _kafka_python,
    "confluent-kafka": _confluent_kafka,
    "aiokafka": _aiokafka,
    "kcat": _kcat,
}


def attempt(world: World, name: str, listener: str, security: Security, give_up: float = GIVE_UP[0]) -> str:
    """Connect as the client `name`: LET_IN, or all that the client says of why not within `give_up` seconds."""
    client = world.client(name, listener, security)
    bootstrap = world.servers.bootstrap(listener)
    if isinstance(client, LineDriverClient):
        if name == "java":
            limits = {"default.api.timeout.ms": f"{give_up * 2500:.0f}", "request.timeout.ms": f"{give_up * 2000:.0f}"}
            settings = {**security.java_properties(), **limits}
            return _driver(client.secured(bootstrap, settings))
        return _driver(client.secured(bootstrap, {**security.kafkajs(), "retry": {"retries": 0}}))
    client.close()
    return _IN_PROCESS[name](bootstrap, security, give_up)
