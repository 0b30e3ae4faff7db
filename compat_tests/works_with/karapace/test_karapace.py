"""Karapace: schemas in a topic, evolution and its refusal, two registries, and `kbroker consume --registry`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from compat_tests.brokers import Broker
from compat_tests.works_with.judge import config_of, create_topics, leader, replicas_of, topics_of, write
from compat_tests.works_with.nodes import node_count, without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, RunningError, wait_until
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG, SHORT

PAYMENT = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Payment", "type": "object",
    "properties": {"number": {"type": "integer"}}, "required": ["number"]}"""


class Registry:
    """An instance of Karapace."""

    def __init__(self, program: Program, broker: Broker, directory: Path, name: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        home = program.python().parent
        environment = {
            "KAFKA": broker.bootstrap,
            "PORT": str(port),
            "REPLICAS": str(min(3, node_count(broker))),
            "PATH": f"{home}:{os.environ['PATH']}",
        }
        self.running = Running(["sh", program.file("registry.sh")], directory, name, environment)

    def ask(self, target: str, body: Any = None, method: str | None = None) -> Any:
        """The JSON of its answer. `HTTPError` for a refusal, `URLError` if it does not answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        with urlopen(Request(self.url + target, data, headers, method=method), timeout=SHORT) as answer:
            return json.loads(answer.read())

    def is_ready(self) -> bool:
        """Whether it answers, and knows of a registry that writes."""
        try:
            return isinstance(self.ask("/subjects"), list) and bool(self.ask("/master_available")["master_available"])
        except (HTTPError, URLError, OSError, KeyError):
            return False

    def await_ready(self) -> None:
        """Return once it can be used."""
        self.running.until(self.is_ready, "to be ready", 90)


def schemas_of(registry: Registry) -> dict[str, list[tuple[int, int, str]]]:
    """Subject -> (version, id, schema) of each version."""
    found: dict[str, list[tuple[int, int, str]]] = {}
    for subject in sorted(registry.ask("/subjects")):
        for version in registry.ask(f"/subjects/{subject}/versions"):
            known = registry.ask(f"/subjects/{subject}/versions/{version}")
            found.setdefault(subject, []).append((known["version"], known["id"], known["schema"]))
    return found


def kbroker_consume(bootstrap: str, topic: str, registry: Registry) -> list[dict[str, Any]]:
    """The records of a topic as `kbroker consume --registry` shows them."""
    command = [sys.executable, "-m", "kbroker", "consume", topic, "-b", bootstrap, "--json"]
    done = subprocess.run(
        [*command, "--registry", registry.url], capture_output=True, text=True, check=True, timeout=SHORT
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_schemas_evolve(
    broker: Broker, bootstrap: str, program: Program, seen: Callable[..., None], tmp_path: Path
) -> None:
    create_topics(bootstrap, {"orders": 3, "payments": 1, "parcels": 1})
    ports = sorted(free_ports(2))

    def start(name: str, port: int) -> Registry:
        return Registry(program, broker, tmp_path, name, port)

    def orders(registry: Registry, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KAFKA": bootstrap, "REGISTRY": registry.url}
        command = [sys.executable, str(program.file("orders.py")), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONG)

    first, second = start("first", ports[0]), start("second", ports[1])
    with first.running, second.running:
        first.await_ready()
        second.await_ready()
        assert replicas_of(bootstrap, "_schemas") == min(3, node_count(broker))
        assert topics_of(bootstrap)["_schemas"] == 1 and config_of(bootstrap, "_schemas")["cleanup.policy"] == "compact"

        for registry, command in ((first, "write"), (second, "write-with-currency")):
            done = orders(registry, command, "100")
            assert done.returncode == 0, done.stderr
        wait_until(lambda: registry_versions(first, "orders-value") == [1, 2], "two versions of the schema")
        refused = orders(first, "write-wrong", "1")
        assert refused.returncode and "409" in refused.stderr, refused.stderr
        assert registry_versions(first, "orders-value") == [1, 2]

        read = orders(second, "read", "200")
        assert read.returncode == 0, read.stderr
        assert read.stdout.count("'currency': 'EUR'") == read.stdout.count("'currency': 'USD'") == 100

        shown = kbroker_consume(bootstrap, "orders", second)
        assert sorted(record["value"]["number"] for record in shown) == sorted(2 * list(range(100)))
        assert sum("currency" in record["value"] for record in shown) == 100
        ids = {record["value_schema"]["id"] for record in shown}
        assert len(ids) == 2 and {record["value_schema"]["type"] for record in shown} == {"AVRO"}

        write_other_formats(bootstrap, first)
        (payment,) = kbroker_consume(bootstrap, "payments", first)
        assert (payment["value"], payment["value_schema"]["type"]) == ({"number": 7}, "JSON")
        (parcel,) = kbroker_consume(bootstrap, "parcels", first)
        assert (parcel["value"], parcel["value_schema"]["type"]) == ({"number": "7", "town": "Riga"}, "PROTOBUF")

        known = schemas_of(first)
        first.running.kill()  # the one that writes: the lower address is elected
        with without_a_node(broker, leader(bootstrap, "_schemas")):
            wait_until(lambda: register(second, "late-value"), "the second registry to take over", 90)
        assert {name: known[name] for name in known} == {name: schemas_of(second)[name] for name in known}
        assert second.running.stop() is not None
    again = start("first", ports[0])
    with again.running:
        again.await_ready()
        assert sorted(schemas_of(again)) == sorted([*known, "late-value"])
        assert {name: schemas_of(again)[name] for name in known} == known
    seen(
        f"`_schemas`: one partition, compacted, {replicas_of(bootstrap, '_schemas')} replicas, made by Karapace; two "
        "registries, of which one was elected to write, and either could be asked",
        "100 orders in Avro, 100 with a field more that has a default; the old ones are read with the default. A "
        "schema whose field has another type was refused (409)",
        "`kbroker consume --registry` showed all 200 as JSON, each by its own schema, and records in JSON Schema and "
        "Protobuf as well",
        "the registry that wrote was killed, and the leader of `_schemas`: the other took over and registered more; "
        "a registry that was started anew read all schemas, versions and ids from `_schemas`",
    )


def registry_versions(registry: Registry, subject: str) -> list[int]:
    """The versions of a subject."""
    return sorted(registry.ask(f"/subjects/{subject}/versions"))


def register(registry: Registry, subject: str) -> bool:
    """Register a schema; whether it is there."""
    try:
        return bool(registry.ask(f"/subjects/{subject}/versions", {"schema": '"string"'})["id"])
    except (HTTPError, URLError, OSError):
        return False


def parcel_class() -> Any:
    """The class of a Protobuf message with a number and a town, made without a compiler."""
    message = descriptor_pb2.DescriptorProto(name="Parcel")
    message.field.add(name="number", number=1, label=1, type=3)
    message.field.add(name="town", number=2, label=1, type=9)
    file = descriptor_pb2.FileDescriptorProto(name="parcel.proto", package="shop", syntax="proto3")
    file.message_type.append(message)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Parcel"))


def write_other_formats(bootstrap: str, registry: Registry) -> None:
    """A record in JSON Schema, and one in Protobuf."""
    client = SchemaRegistryClient({"url": registry.url})
    parcel = parcel_class()
    as_json = JSONSerializer(PAYMENT, client)
    as_protobuf = ProtobufSerializer(parcel, client, {"use.deprecated.format": False})
    payment = as_json({"number": 7}, SerializationContext("payments", MessageField.VALUE))
    sent = as_protobuf(parcel(number=7, town="Riga"), SerializationContext("parcels", MessageField.VALUE))
    if payment is None or sent is None:
        raise RunningError("the serializers made nothing")
    write(bootstrap, "payments", [(None, payment)])
    write(bootstrap, "parcels", [(None, sent)])
