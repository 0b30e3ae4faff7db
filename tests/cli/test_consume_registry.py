"""kbroker consume --registry: what serializers of a registry have written, stock ones among them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.testing import RunningBroker
from kbroker.wire.record_batch import Record
from tests.cli_command import Run
from tests.patience import LONG
from tests.schemas.registry_server import Registry, running_registry

pytest.importorskip("fastavro")

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"]}],
}

ORDER_ID = 1


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """Its first schema is that of ``orders``."""
    with running_registry() as running:
        assert running.add("orders-value", json.dumps(ORDER)) == ORDER_ID
        yield running


@pytest.fixture(scope="module")
def orders(broker: RunningBroker, registry: Registry) -> str:
    """A topic with a good record, one whose schema is not there, one that does not fit its schema, and plain text."""
    schema_id = ORDER_ID.to_bytes(4)
    values = [
        b"\0" + schema_id + b"\x0e\x02\x08Oslo",
        b"\0\0\0\x03\xe7\x0e",
        b"\0" + schema_id + b"\x0e\x09",
        b"plain",
        None,
        b"\0" + schema_id + b"\x10\0",
    ]
    with Client(broker.bootstrap_servers) as client:
        producer = Producer(
            client, "orders", client.partitions_of("orders", allow_auto_topic_creation=True), on_refused=print
        )
        for number, value in enumerate(values):
            producer.send(Record(0, 1_700_000_000_000, b"k%d" % number, value), number)
        producer.flush()
    return "orders"


def test_one_bad_record_does_not_end_the_reading(kb: Run, orders: str, registry: Registry) -> None:
    found = kb("consume", orders, "--registry", registry.url)
    assert [line.partition(" 0:")[2] for line in found.out.splitlines()] == [
        '0 k0 {"id": 7, "city": "Oslo"}',
        "1 k1 0x00000003e70e (not decoded: the registry has no schema 999)",
        found.out.splitlines()[2].partition(" 0:")[2],
        "3 k3 plain",
        "4 k4 null",
        '5 k5 {"id": 8, "city": null}',
    ]
    third = found.out.splitlines()[2]
    assert "2 k2 0x00000000010e09 (not decoded: its bytes do not fit its Avro schema: " in third
    assert found.err == (
        "kbroker: 2 keys or values could not be decoded; the first: the value at offset 1 of partition 0: the registry"
        " has no schema 999\n"
    )


def test_decoded_records_as_json_and_by_a_template(kb: Run, orders: str, registry: Registry) -> None:
    rows = kb("consume", orders, "--registry", registry.url, "--json").json_lines
    assert rows[0]["value"] == {"id": 7, "city": "Oslo"} and rows[0]["value_schema"] == {"id": 1, "type": "AVRO"}
    assert rows[1]["value_base64"] == "AAAAA+cO" and rows[1]["value_error"] == "the registry has no schema 999"
    assert rows[3]["value"] == "plain" and "value_schema" not in rows[3]
    found = kb("consume", orders, "--registry", registry.url, "--format", "{key}={value}\\n", "-n", "1")
    assert found.out == 'k0={"id": 7, "city": "Oslo"}\n'
    found = kb("consume", orders, "--registry", registry.url, "--filter", "$.city = Oslo", "--value-only")
    assert found.out == '{"id": 7, "city": "Oslo"}\n'
    found = kb("consume", orders, "--registry", registry.url, "--latest-per-key", "--filter", "$.id > 7")
    assert found.out.endswith('5 k5 {"id": 8, "city": null}\n') and len(found.rows) == 1


def test_the_original_records_are_exported_and_replayed(
    kb: Run, orders: str, registry: Registry, tmp_path: Path
) -> None:
    kb("topic", "create", "oslo", "-p", "1")
    kb("replay", orders, "oslo", "--registry", registry.url, "--filter", "$.city = Oslo")
    path = tmp_path / "oslo.jsonl"
    kb("export", orders, str(path), "--registry", registry.url, "--filter", "$.city = Oslo")
    assert "for --filter" in kb("replay", orders, "oslo", "--registry", registry.url, code=2).err
    [exported] = map(json.loads, path.read_text().splitlines())
    [replayed] = kb("consume", "oslo", "--json").json_lines
    assert exported["value"] == replayed["value"] == "\0\0\0\0\x01\x0e\x02\x08Oslo"


def test_a_registry_by_properties(kb: Run, orders: str, registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"schema.registry.url={registry.url}\nbasic.auth.user.info=ann:secret\n")
    registry.authorization = "Basic YW5uOnNlY3JldA=="
    try:
        found = kb("consume", orders, "--command-config", str(file), "-n", "1")
        assert '{"id": 7, "city": "Oslo"}' in found.out and found.err == ""
        assert "0x00000000010e02084f736c6f" in kb("consume", orders, "--command-config", str(file), "--hex").out
        found = kb("consume", orders, "--registry", registry.url, code=1)
        assert found.err.count("\n") == 1 and "status 401" in found.err and "basic.auth.user.info" in found.err
    finally:
        registry.authorization = None
    assert "exclude each other" in kb("consume", orders, "--registry", registry.url, "--hex", code=2).err
    gone = ("--registry", "http://127.0.0.1:9", "--timeout", "1")
    found = kb("consume", orders, *gone, code=1)
    assert found.err.startswith("kbroker: schema registry: http://127.0.0.1:9/") and found.err.count("\n") == 1
    assert kb("consume", orders, *gone, "--from", "3", "--until", "5").err == ""


def test_a_registry_by_a_profile(
    kb: Run, orders: str, broker: RunningBroker, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "client.properties").write_text(f"schema.registry.url={registry.url}\n")
    (tmp_path / "kbroker").mkdir()
    (tmp_path / "kbroker" / "profiles.toml").write_text(
        f'[profiles.shop]\nbootstrap = "{broker.bootstrap_servers}"\ncommand-config = "{tmp_path}/client.properties"\n'
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = kb("consume", orders, "--profile", "shop", "-n", "1")
    assert '{"id": 7, "city": "Oslo"}' in found.out and found.err == ""


# --- Stock serializers ----------------------------------------------------------------------------------------------


def stock(broker: RunningBroker, topic: str, serializer: Any, values: list[Any], **more: Any) -> None:
    """Produce by confluent-kafka's ``SerializingProducer``."""
    from confluent_kafka import SerializingProducer
    from confluent_kafka.serialization import StringSerializer

    settings = {"key.serializer": StringSerializer(), "value.serializer": serializer, **more}
    producer = SerializingProducer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    for value in values:
        producer.produce(topic, key="k", value=value, headers=[])
    assert producer.flush(LONG) == 0


def shown(kb: Run, topic: str, registry: Registry) -> list[Any]:
    found = kb("consume", topic, "--registry", registry.url, "--json")
    assert found.err == ""
    return [row["value"] for row in found.json_lines]


def stock_client(registry: Registry) -> Any:
    module = pytest.importorskip("confluent_kafka.schema_registry")
    return module.SchemaRegistryClient({"url": registry.url})


def test_avro_of_a_stock_serializer(kb: Run, broker: RunningBroker, registry: Registry) -> None:
    client = stock_client(registry)
    avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
    kb("topic", "create", "stock-avro", "-p", "1")
    values = [{"id": 1, "city": "Oslo"}, {"id": 2, "city": None}]
    key = avro.AvroSerializer(client, '"string"')
    stock(broker, "stock-avro", avro.AvroSerializer(client, json.dumps(ORDER)), values, **{"key.serializer": key})
    assert shown(kb, "stock-avro", registry) == values
    [first, _] = kb("consume", "stock-avro", "--registry", registry.url, "--json").json_lines
    assert first["key"] == "k" and first["key_schema"]["type"] == "AVRO"


def test_an_avro_schema_with_a_reference(kb: Run, broker: RunningBroker, registry: Registry) -> None:
    client = stock_client(registry)
    avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
    from confluent_kafka.schema_registry import Schema, SchemaReference

    client.register_schema("order", Schema(json.dumps(ORDER), "AVRO"))
    top = {"type": "record", "name": "Parcel", "fields": [{"name": "order", "type": "shop.Order"}]}
    schema = Schema(json.dumps(top), "AVRO", [SchemaReference("shop.Order", "order", 1)])
    kb("topic", "create", "stock-parcels", "-p", "1")
    values = [{"order": {"id": 1, "city": "Oslo"}}]
    stock(broker, "stock-parcels", avro.AvroSerializer(client, schema), values)
    assert shown(kb, "stock-parcels", registry) == values


def test_an_id_in_a_header(kb: Run, broker: RunningBroker, registry: Registry) -> None:
    client = stock_client(registry)
    avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
    from confluent_kafka.schema_registry import header_schema_id_serializer

    kb("topic", "create", "stock-headers", "-p", "1")
    by_header = {"schema.id.serializer": header_schema_id_serializer}
    serializer = avro.AvroSerializer(client, json.dumps(ORDER), conf=by_header)
    stock(broker, "stock-headers", serializer, [{"id": 5, "city": None}])
    assert shown(kb, "stock-headers", registry) == [{"id": 5, "city": None}]


def test_json_schema_of_a_stock_serializer(kb: Run, broker: RunningBroker, registry: Registry) -> None:
    client = stock_client(registry)
    module = pytest.importorskip("confluent_kafka.schema_registry.json_schema")
    kb("topic", "create", "stock-json", "-p", "1")
    schema = {"title": "Order", "type": "object", "properties": {"id": {"type": "number"}}}
    stock(broker, "stock-json", module.JSONSerializer(json.dumps(schema), client), [{"id": 3, "text": "ä"}])
    assert shown(kb, "stock-json", registry) == [{"id": 3, "text": "ä"}]


def test_protobuf_of_a_stock_serializer(kb: Run, broker: RunningBroker, registry: Registry) -> None:
    client = stock_client(registry)
    module = pytest.importorskip("confluent_kafka.schema_registry.protobuf")
    from tests.schemas.protobuf_files import INT64, STRING, classes_of, file_of, message_of

    city = file_of("shop/city.proto", "shop", message_of("City", {"name": STRING}))
    times = ("shop/city.proto", "google/protobuf/timestamp.proto")
    inner = message_of("Inner", {"id": INT64, "city": ".shop.City", "at": ".google.protobuf.Timestamp"})
    order = file_of("shop/order.proto", "shop", message_of("Other", {}), message_of("Order", {}, inner), imports=times)
    kind = classes_of(city, order)("shop.Order.Inner")
    value = kind(id=2**60, city={"name": "Oslo"}, at={"seconds": 1_700_000_000})
    kb("topic", "create", "stock-protobuf", "-p", "1")
    stock(broker, "stock-protobuf", module.ProtobufSerializer(kind, client), [value])
    assert shown(kb, "stock-protobuf", registry) == [
        {"id": str(2**60), "city": {"name": "Oslo"}, "at": "2023-11-14T22:13:20Z"}
    ]
