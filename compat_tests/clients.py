"""All clients by name, made on first use: their libraries are optional, and two of them need a process to be built."""

from __future__ import annotations

import importlib
import importlib.util
import shutil

import pytest

from compat_tests.client import Client

_ADAPTERS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "kafka-python": ("compat_tests.kafka_python.client", "KafkaPythonClient", ("kafka",), ()),
    "confluent-kafka": ("compat_tests.confluent_kafka.client", "ConfluentKafkaClient", ("confluent_kafka",), ()),
    "aiokafka": ("compat_tests.aiokafka.client", "AiokafkaClient", ("aiokafka",), ()),
    "kcat": ("compat_tests.kcat.client", "KcatClient", (), ("kcat",)),
    "java": ("compat_tests.java.client", "JavaClient", (), ("java", "javac", "mvn")),
    "kafkajs": ("compat_tests.kafkajs.client", "KafkajsClient", (), ("node", "npm")),
}
"""Name -> (module of the adapter, its class, libraries it imports, programs it needs)."""

NAMES = tuple(_ADAPTERS)


def skip_without(name: str) -> None:
    """Skip the test that asks, and say what is missing, where the client cannot be used."""
    reason = unavailable(name)
    if reason:
        pytest.skip(reason)


def unavailable(name: str) -> str | None:
    """The reason why the client cannot be used here, or None."""
    _, _, libraries, programs = _ADAPTERS[name]
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            return f"{library} is not installed"
    for program in programs:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


def client_class(name: str) -> type[Client]:
    """The adapter's class."""
    module, cls, _, _ = _ADAPTERS[name]
    found: type[Client] = getattr(importlib.import_module(module), cls)
    return found


class Clients:
    """The clients of one session against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._made: dict[str, Client] = {}

    def __getitem__(self, name: str) -> Client:
        if name not in self._made:
            self._made[name] = client_class(name)(self._bootstrap)  # type: ignore[call-arg]
        return self._made[name]

    def close(self) -> None:
        """Close all that were made."""
        for client in self._made.values():
            client.close()
        self._made.clear()
