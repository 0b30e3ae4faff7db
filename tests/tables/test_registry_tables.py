"""Tables of what confluent-kafka's serializers have written with the schemas of a real registry."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kbroker.testing import RunningBroker
from tests.cli_command import Run, command_for
from tests.patience import LONG, eventually
from tests.schemas.registry_server import running_registry

deltalake: Any = pytest.importorskip("deltalake")
confluent_kafka: Any = pytest.importorskip("confluent_kafka")
schema_registry: Any = pytest.importorskip("confluent_kafka.schema_registry")
for package in ("fastavro", "h11", "google.protobuf", "jsonschema"):
    pytest.importorskip(package, reason=f"{package} is not installed")

CUSTOMER = '{"type": "record", "name": "shop.Customer", "fields": [{"name": "name", "type": "string"}]}'
ORDER = """{"type": "record", "name": "shop.Order", "fields": [
    {"name": "number", "type": "int"}, {"name": "customer", "type": "shop.Customer"}]}"""


@pytest.fixture
def registry(kafka_broker: RunningBroker) -> Any:
    return schema_registry.SchemaRegistryClient({"url": kafka_broker.registry_url})


@pytest.fixture
def kbr(kafka_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return command_for(kafka_broker.bootstrap_servers, monkeypatch, capsys)


def produced(broker: RunningBroker, topic: str, serializer: Any, *values: Any) -> None:
    from confluent_kafka.serialization import MessageField, SerializationContext

    producer = confluent_kafka.Producer(broker.librdkafka_properties())
    for value in values:
        headers: dict[str, Any] = {}
        data = serializer(value, SerializationContext(topic, MessageField.VALUE, headers))
        producer.produce(topic, data, headers=headers)
    assert producer.flush(LONG) == 0


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows = deltalake.DeltaTable(str(path)).to_pyarrow_table().sort_by("_offset").to_pylist()
    return [{name: each for name, each in row.items() if name[0] != "_"} for row in rows]


def test_avro_with_references_and_ids_in_headers(
    kbr: Run, kafka_broker: RunningBroker, kafka_topic: str, registry: Any, tmp_path: Path
) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.avro import AvroSerializer

    registry.register_schema(f"{kafka_topic}-customer", Schema(CUSTOMER, "AVRO"))
    reference = [SchemaReference("shop.Customer", f"{kafka_topic}-customer", 1)]
    order = {"number": 7, "customer": {"name": "Ann"}}
    produced(kafka_broker, kafka_topic, AvroSerializer(registry, Schema(ORDER, "AVRO", reference)), order)
    grown = ORDER[:-2] + ', {"name": "currency", "type": "string", "default": "EUR"}]}'
    in_header = {"schema.id.serializer": schema_registry.header_schema_id_serializer}
    newer = {**order, "number": 8, "currency": "USD"}
    produced(
        kafka_broker, kafka_topic, AvroSerializer(registry, Schema(grown, "AVRO", reference), conf=in_header), newer
    )
    words = ["table", "follow", kafka_topic, "--once", "--registry", kafka_broker.registry_url]
    kbr(*words, "--to", f"delta:{tmp_path / 'nested'}", "--value", "avro")
    assert rows_of(tmp_path / "nested") == [{**order, "currency": None}, newer]
    kbr(*words, "--to", f"delta:{tmp_path / 'flat'}", "--value", "avro", "--flatten", "--partition-by", "customer_name")
    assert rows_of(tmp_path / "flat")[1] == {"number": 8, "customer_name": "Ann", "currency": "USD"}
    assert list((tmp_path / "flat").glob("customer_name=Ann/*.parquet"))
    told = kbr(*words[:4], "--to", f"delta:{tmp_path / 'nested'}", code=1).err
    assert told == "kbroker: values that are avro need the registry of their schemas: give --registry URL\n"


def test_protobuf_with_all_its_types(
    kbr: Run, kafka_broker: RunningBroker, kafka_topic: str, registry: Any, tmp_path: Path
) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        message_factory,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    file = descriptor_pb2.FileDescriptorProto(
        name=f"{kafka_topic}.proto",
        package="shop",
        syntax="proto3",
        dependency=[f"google/protobuf/{each}.proto" for each in ("timestamp", "struct", "wrappers")],
    )
    item = file.message_type.add(name="Item")
    item.field.add(name="name", number=1, type=9, label=1)
    kind = file.message_type.add(name="Order")
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    kind.oneof_decl.add(name="_maybe")
    kind.field.add(name="maybe", number=1, type=5, label=1, proto3_optional=True, oneof_index=0)
    kind.field.add(name="plain", number=2, type=5, label=1)
    kind.field.add(name="huge", number=3, type=4, label=1)
    kind.field.add(name="colours", number=4, type=14, label=3, type_name=".shop.Colour")
    kind.field.add(name="items", number=5, type=11, label=3, type_name=".shop.Item")
    kind.field.add(name="item", number=6, type=11, label=1, type_name=".shop.Item")
    kind.field.add(name="at", number=7, type=11, label=1, type_name=".google.protobuf.Timestamp")
    kind.field.add(name="any", number=8, type=11, label=1, type_name=".google.protobuf.Struct")
    kind.field.add(name="wrapped", number=9, type=11, label=1, type_name=".google.protobuf.Int64Value")
    entry = kind.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".shop.Item")
    kind.field.add(name="counts", number=10, type=11, label=3, type_name=".shop.Order.CountsEntry")
    pool = descriptor_pool.DescriptorPool()
    for each in (timestamp_pb2, struct_pb2, wrappers_pb2):
        pool.AddSerializedFile(each.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    full = order(maybe=0, plain=5, huge=2**64 - 1, colours=[0, 1, 7], items=[{"name": "a"}, {}], item={"name": "b"})
    full.at.FromDatetime(datetime(2026, 11, 30, 12, 0, 0, 123456))
    full.any.update({"x": [1, None]})
    full.wrapped.value = 0
    full.counts["k"].name = "v"
    produced(kafka_broker, kafka_topic, ProtobufSerializer(order, registry), full, order())
    words = ["--once", "--registry", kafka_broker.registry_url, "--value", "protobuf"]
    kbr("table", "follow", kafka_topic, "--to", f"delta:{tmp_path / 'p'}", *words)
    first, empty = rows_of(tmp_path / "p")
    assert first == {
        "maybe": 0,
        "plain": 5,
        "huge": Decimal(2**64 - 1),
        "colours": ["RED", "BLUE", "7"],
        "items": [{"name": "a"}, {"name": ""}],
        "item": {"name": "b"},
        "at": datetime(2026, 11, 30, 12, 0, 0, 123456, UTC),
        "any": '{"x": [1.0, null]}',
        "wrapped": 0,
        "counts": [("k", {"name": "v"})],
    }
    absent = dict.fromkeys(("maybe", "item", "at", "any", "wrapped"))
    assert empty == {**absent, "plain": 0, "huge": Decimal(0), "colours": [], "items": [], "counts": []}


def test_json_schema_with_a_reference(
    kbr: Run, kafka_broker: RunningBroker, kafka_topic: str, registry: Any, tmp_path: Path
) -> None:
    import json

    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    customer = {"$id": "customer.json", "type": "object", "properties": {"name": {"type": "string"}}}
    registry.register_schema(f"{kafka_topic}-customer", Schema(json.dumps(customer), "JSON"))
    order = {
        "title": "Order",
        "type": "object",
        "properties": {"customer": {"$ref": "customer.json"}, "day": {"type": "string", "format": "date"}},
    }
    schema = Schema(json.dumps(order), "JSON", [SchemaReference("customer.json", f"{kafka_topic}-customer", 1)])
    produced(kafka_broker, kafka_topic, JSONSerializer(schema, registry), {"customer": {"name": "Ann"}})
    (tmp_path / "tables.toml").write_text(
        f'[[table]]\ntopic = "{kafka_topic}"\nto = "delta:{tmp_path / "j"}"\nvalue = "json-schema"\n'
        f'registry = "{kafka_broker.registry_url}"\nflatten = true\n'
    )
    kbr("table", "run", str(tmp_path / "tables.toml"), "--once")
    assert rows_of(tmp_path / "j") == [{"customer_name": "Ann", "day": None}]


def test_a_registry_with_a_password_that_is_away_for_a_while(
    kbr: Run, kafka_broker: RunningBroker, kafka_topic: str, tmp_path: Path
) -> None:
    """The follower waits for it; nothing is a dead letter, and nothing is lost."""
    import base64

    kbr("topic", "create", kafka_topic)
    path = tmp_path / "t"
    with running_registry() as registry:
        registry.authorization = "Basic " + base64.b64encode(b"ann:secret").decode()
        registry.fails_with = 503
        schema_id = registry.add("x", '"string"').to_bytes(4)
        producer = confluent_kafka.Producer(kafka_broker.librdkafka_properties())
        producer.produce(kafka_topic, b"\0" + schema_id + b"\x04ok")
        assert producer.flush(LONG) == 0
        config = tmp_path / "client.properties"
        config.write_text(f"schema.registry.url={registry.url}\nbasic.auth.user.info=ann:secret\n")
        words = [sys.executable, "-m", "kbroker", "table", "follow", kafka_topic, "--to", f"delta:{path}"]
        words += ["--every", "10ms", "--value", "avro", "-b", kafka_broker.bootstrap_servers]
        said = tmp_path / "said"
        with said.open("w") as out:
            follower = subprocess.Popen(
                [*words, "--command-config", str(config)],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                stderr=out,
            )
        try:
            eventually(lambda: "status 503; trying again" in said.read_text() or follower.poll() is not None)
            assert follower.poll() is None, said.read_text()
            registry.fails_with = None
            eventually(lambda: rows_of(path) == [{"value": "ok"}])
            follower.send_signal(signal.SIGTERM)
            assert follower.wait(2 * LONG) == 0
        finally:
            follower.kill()
    assert not (tmp_path / "t_dead_letters").exists()
