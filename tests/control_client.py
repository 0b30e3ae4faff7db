"""A client of the control, as a test in another language would have one: HTTP and JSON, nothing else."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kbroker.testing import RunningBroker, RunningCluster, running_broker
from kbroker.testing.control.openapi import document
from tests.cli_command import kbroker
from tests.patience import LONG

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
QUICK = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 50, "reconnect.backoff.ms": 20, "log_level": 0}


class Control:
    """Asks one control."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.host, self.port = parts.hostname, parts.port
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def raw(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """The status, and the answer's JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=2 * LONG)
        try:
            connection.request(method, path, body, self.headers | headers)
            response = connection.getresponse()
            assert response.headers["Content-Type"] == "application/json"
            text = response.read()
            return response.status, json.loads(text) if text else None
        finally:
            connection.close()

    def ask(self, method: str, path: str, **arguments: Any) -> tuple[int, Any]:
        """The same of arguments as JSON."""
        return self.raw(method, path, json.dumps(arguments).encode() if arguments else None)

    def do(self, method: str, path: str, **arguments: Any) -> Any:
        """The answer to what can be done, which is as the OpenAPI document says."""
        status, answer = self.ask(method, path, **arguments)
        assert status == 200, answer
        told = document()
        operation = operation_at(told, method, path)
        if operation is not None:  # the document itself is none
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            assert conforms(answer, schema, told["components"]["schemas"]), (answer, schema)
        return answer


def operation_at(told: dict[str, Any], method: str, path: str) -> dict[str, Any] | None:
    """The operation of an OpenAPI document that an address is of; None for none."""
    segments = path.partition("?")[0].split("/")

    def fits(template: str) -> bool:
        parts = template.split("/")
        pairs = zip(parts, segments, strict=False)
        return len(parts) == len(segments) and all(part == own or part.startswith("{") for part, own in pairs)

    found = [
        each[method.lower()] for template, each in told["paths"].items() if fits(template) and method.lower() in each
    ]
    return found[0] if found else None


_TYPES: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "object": dict,
    "array": list,
    "null": type(None),
}


def conforms(value: Any, schema: dict[str, Any], named: dict[str, Any]) -> bool:
    """Whether a value is as a JSON schema says, of those that the control's document has."""
    if "$ref" in schema:
        return conforms(value, named[schema["$ref"].rpartition("/")[2]], named)
    if "anyOf" in schema:
        return any(conforms(value, each, named) for each in schema["anyOf"])
    kind = schema["type"]
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        return False
    if kind == "array":
        return all(conforms(each, schema["items"], named) for each in value)
    if kind == "object" and "properties" in schema:
        properties = schema["properties"]
        return set(properties) == set(value) and all(conforms(value[name], properties[name], named) for name in value)
    if kind == "object":
        return all(conforms(each, schema["additionalProperties"], named) for each in value.values())
    return True


@contextmanager
def command(*words: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """``kbroker`` until the end of the block: the process, and what it tells before it is ready, by its beginning."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kbroker", *words], cwd=cwd, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        told: dict[str, str] = {}
        for line in process.stdout:
            what, _, rest = line.strip().partition(": ")
            told[what.removeprefix("kbroker ")] = rest
            if "ready" in told:
                yield process, told
                break
        else:
            raise AssertionError(f"it ended with {process.wait()}")
    finally:
        process.terminate()
        assert process.wait(2 * LONG) == 0
        process.stdout.close()


def write_secure_node(directory: Path) -> None:
    """Format a node whose clients log in: its properties are node.properties, admin.properties those of a client."""
    with running_broker(security="sasl_plaintext", super_users=["admin"]) as broker:
        properties = dict(broker.config.raw) | {"log.dirs": str(directory / "data")}
    properties["listeners"] = "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    (directory / "node.properties").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=admin password=admin-secret;"
    (directory / "admin.properties").write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
    )
    made = kbroker("format", "--standalone", "-t", "x" * 22, "-c", "node.properties", cwd=directory)
    assert made.returncode == 0, made.stderr


class Place:
    """Nodes with a control: ``broker`` and ``cluster`` tell which."""

    def __init__(self, target: RunningBroker | RunningCluster, control: Control) -> None:
        self.target = target
        self.control = control
        self.do = control.do
        self.ask = control.ask

    @property
    def is_cluster(self) -> bool:
        return isinstance(self.target, RunningCluster)

    def client(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.target.bootstrap_servers, **QUICK, **more}

    def create(self, topic: str, partitions: int = 1, replicas: int = -1, config: dict[str, str] | None = None) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        new = NewTopic(topic, partitions, replicas, config=config or {})
        admin = AdminClient(self.client())
        admin.create_topics([new])[topic].result(LONG)

    def write(self, topic: str, *values: str, **more: Any) -> list[object]:
        """The names of the errors, or None, of each record."""
        from confluent_kafka import Producer

        producer = Producer(self.client(**more))
        told: list[object] = []
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: told.append(error and error.name()))
            producer.flush(LONG)
        return told

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[Any]:
        """A consumer in a group, which reads as often as it is asked to."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            self.client(**{"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        )
        consumer.subscribe([topic])
        ended = threading.Event()

        def poll() -> None:
            while not ended.is_set():
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    consumer.commit(message=message, asynchronous=False)

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            yield consumer
        finally:
            ended.set()
            thread.join()
            consumer.close()
