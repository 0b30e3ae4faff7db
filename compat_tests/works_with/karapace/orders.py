"""Orders in Avro. python orders.py write 100 | write-with-currency 100 | write-wrong 1 | read 200"""

import os
import sys

from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import StringDeserializer, StringSerializer

ORDER = """{"type": "record", "name": "Order", "fields": [
    {"name": "number", "type": "long"},
    {"name": "customer", "type": "string"}]}"""
WITH_CURRENCY = (
    ORDER[:-2]
    + """,
    {"name": "currency", "type": "string", "default": "EUR"}]}"""
)
WRONG = ORDER.replace('"long"', '"boolean"')

registry = SchemaRegistryClient({"url": os.environ.get("REGISTRY", "http://127.0.0.1:8081")})
brokers = {"bootstrap.servers": os.environ["KAFKA"]}


def write(count, schema, order):
    serializer = AvroSerializer(registry, schema)
    producer = SerializingProducer(
        {**brokers, "key.serializer": StringSerializer(), "value.serializer": serializer, "acks": "all"}
    )
    for number in range(count):
        producer.produce("orders", key=f"customer-{number % 5}", value=order(number))
    producer.flush()


def read(count):
    deserializer = AvroDeserializer(registry, WITH_CURRENCY)  # old orders get the default
    consumer = DeserializingConsumer(
        {
            **brokers,
            "key.deserializer": StringDeserializer(),
            "value.deserializer": deserializer,
            "group.id": "orders",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    for _ in range(count):
        while (message := consumer.poll()) is None:
            pass
        print(message.key(), message.value())
    consumer.close()


command, count = sys.argv[1], int(sys.argv[2])
if command == "write":
    write(count, ORDER, lambda number: {"number": number, "customer": f"customer-{number % 5}"})
elif command == "write-with-currency":
    write(count, WITH_CURRENCY, lambda number: {"number": number, "customer": "x", "currency": "USD"})
elif command == "write-wrong":
    write(count, WRONG, lambda number: {"number": True, "customer": "x"})
else:
    read(count)
