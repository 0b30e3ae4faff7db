"""confluent-kafka's serializers with the registry, and kbroker's own commands that read by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbroker.testing import RunningBroker, running_broker
from tests.cli_command import command_for
from tests.patience import LONG

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
schema_registry = pytest.importorskip("confluent_kafka.schema_registry", reason="confluent-kafka has no serializers")
for package in ("fastavro", "h11", "google.protobuf", "jsonschema"):
    pytest.importorskip(package, reason=f"{package} is not installed")

CUSTOMER = '{"type": "record", "name": "shop.Customer", "fields": [{"name": "name", "type": "string"}]}'
ORDER = """{"type": "record", "name": "shop.Order", "fields": [
    {"name": "number", "type": "long"}, {"name": "customer", "type": "shop.Customer"}]}"""


@pytest.fixture
def registry(kafka_broker: RunningBroker) -> Any:
    return schema_registry.SchemaRegistryClient({"url": kafka_broker.registry_url})


def produced(broker: RunningBroker, topic: str, serializer: Any, *values: Any) -> None:
    from confluent_kafka.serialization import MessageField, SerializationContext

    producer = confluent_kafka.Producer(broker.librdkafka_properties())
    for value in values:
        producer.produce(topic, serializer(value, SerializationContext(topic, MessageField.VALUE)))
    assert producer.flush(LONG) == 0


def consumed(broker: RunningBroker, topic: str, deserializer: Any, count: int) -> list[Any]:
    from confluent_kafka.serialization import MessageField, SerializationContext

    settings = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(broker.librdkafka_properties() | settings)
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(count, LONG)
        return [deserializer(each.value(), SerializationContext(topic, MessageField.VALUE)) for each in messages]
    finally:
        consumer.close()


def test_avro_with_references_and_a_schema_that_grows(
    kafka_broker: RunningBroker, kafka_topic: str, registry: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    customer = f"{kafka_topic}-customer"
    registry.register_schema(customer, Schema(CUSTOMER, "AVRO"))
    reference = [SchemaReference("shop.Customer", customer, 1)]
    order = {"number": 7, "customer": {"name": "Ann"}}
    produced(kafka_broker, kafka_topic, AvroSerializer(registry, Schema(ORDER, "AVRO", reference)), order)
    grown = ORDER[:-2] + ', {"name": "currency", "type": "string", "default": "EUR"}]}'
    schema = Schema(grown, "AVRO", reference)
    newer = {**order, "number": 8, "currency": "USD"}
    produced(kafka_broker, kafka_topic, AvroSerializer(registry, schema), newer)
    read = consumed(kafka_broker, kafka_topic, AvroDeserializer(registry, schema), 2)
    assert read == [{**order, "currency": "EUR"}, newer]
    wrong = AvroSerializer(registry, Schema(ORDER.replace("long", "boolean"), "AVRO", reference))
    with pytest.raises(Exception, match="409"):
        produced(kafka_broker, kafka_topic, wrong, {**order, "number": True})
    assert registry.get_versions(f"{kafka_topic}-value") == [1, 2]
    assert not registry.test_compatibility(f"{kafka_topic}-value", Schema('"int"', "AVRO"))
    latest = registry.get_latest_version(f"{kafka_topic}-value")
    assert latest.version == 2 and registry.lookup_schema(f"{kafka_topic}-value", schema).schema_id == latest.schema_id
    run = command_for(kafka_broker.bootstrap_servers, monkeypatch, capsys)
    shown = run("consume", kafka_topic, "--json", "--registry", kafka_broker.registry_url).json_lines
    assert [each["value"] for each in shown] == [order, newer]


def test_an_id_in_a_header(kafka_broker: RunningBroker, kafka_topic: str, registry: Any) -> None:
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    in_header = {"schema.id.serializer": schema_registry.header_schema_id_serializer}
    serializer = AvroSerializer(registry, CUSTOMER, conf=in_header)
    headers: dict[str, str | bytes | None] = {}
    context = SerializationContext(kafka_topic, MessageField.VALUE, headers)
    value = serializer({"name": "Annabel"}, context)
    assert list(headers) == ["__value_schema_id"]
    by_header = {"schema.id.deserializer": schema_registry.dual_schema_id_deserializer}
    assert AvroDeserializer(registry, conf=by_header)(value, context) == {"name": "Annabel"}


def test_json_with_a_reference(kafka_broker: RunningBroker, kafka_topic: str, registry: Any) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    customer = {"$id": "customer.json", "type": "object", "properties": {"name": {"type": "string"}}}
    registry.register_schema(f"{kafka_topic}-customer", Schema(json.dumps(customer), "JSON"))
    order = {"title": "Order", "type": "object", "properties": {"customer": {"$ref": "customer.json"}}}
    schema = Schema(json.dumps(order), "JSON", [SchemaReference("customer.json", f"{kafka_topic}-customer", 1)])
    values = [{"customer": {"name": "Ann"}}, {"customer": {"name": "Bob"}}]
    produced(kafka_broker, kafka_topic, JSONSerializer(schema, registry), *values)
    assert consumed(kafka_broker, kafka_topic, JSONDeserializer(schema, schema_registry_client=registry), 2) == values


def test_protobuf_with_references(
    kafka_broker: RunningBroker, kafka_topic: str, registry: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    from tests.schemas.protobuf_files import INT64, STRING, classes_of, file_of, message_of

    customer = file_of(f"{kafka_topic}.proto", "shop", message_of("Customer", {"name": STRING}))
    fields: dict[str, int | str] = {"number": INT64, "customer": ".shop.Customer", "at": ".google.protobuf.Timestamp"}
    imports = (customer.name, "google/protobuf/timestamp.proto")
    of = classes_of(customer, file_of("order.proto", "shop", message_of("Order", fields), imports=imports))
    kind = of("shop.Order")
    value = kind(number=7, customer={"name": "Ann"}, at={"seconds": 60})
    produced(kafka_broker, kafka_topic, ProtobufSerializer(kind, registry), value)
    assert registry.get_latest_version(f"{kafka_topic}-value").schema.references[0].name == customer.name
    [read] = consumed(kafka_broker, kafka_topic, ProtobufDeserializer(kind, schema_registry_client=registry), 1)
    assert read == value
    run = command_for(kafka_broker.bootstrap_servers, monkeypatch, capsys)
    [shown] = run("consume", kafka_topic, "--json", "--registry", kafka_broker.registry_url).json_lines
    assert (shown["value"]["number"], shown["value"]["customer"]) == ("7", {"name": "Ann"})


def test_all_is_there_after_a_restart_and_behind_a_secure_listener() -> None:
    from confluent_kafka.schema_registry import Schema

    with running_broker(security="sasl_ssl", super_users=["admin"]) as broker:
        client = schema_registry.SchemaRegistryClient({"url": broker.registry_url})
        known = client.register_schema("a", Schema(CUSTOMER, "AVRO"))
        client.set_compatibility("a", "FULL")
        broker.restart()
        client = schema_registry.SchemaRegistryClient({"url": broker.registry_url})
        assert client.register_schema("b", Schema(CUSTOMER, "AVRO")) == known
        assert client.get_subjects() == ["a", "b"] and client.get_compatibility("a") == "FULL"
        assert client.delete_subject("a") == [1] and client.get_subjects() == ["b"]
