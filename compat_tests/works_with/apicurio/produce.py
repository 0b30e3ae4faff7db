"""Writes payments in Avro; the first registers the schema. KAFKA: the brokers; REGISTRY_URL: .../apis/ccompat/v7"""

import os

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

SCHEMA = """{"type": "record", "name": "Payment", "fields": [
    {"name": "customer", "type": "string"}, {"name": "cents", "type": "long"}]}"""

registry = SchemaRegistryClient({"url": os.environ["REGISTRY_URL"]})
to_avro = AvroSerializer(registry, SCHEMA)
where = SerializationContext("payments", MessageField.VALUE)
producer = Producer({"bootstrap.servers": os.environ["KAFKA"]})
for number in range(100):
    payment = {"customer": f"customer-{number % 7}", "cents": 100 * number}
    producer.produce("payments", to_avro(payment, where), key=str(number))
producer.flush()
