import os

from kafka import KafkaConsumer, KafkaProducer
from testcontainers.community.kafka import KafkaContainer

# The tag is to be a version of Confluent Platform from 7.0.0 on: the module looks whether it has KRaft.
IMAGE = os.environ.get("KBROKER_IMAGE", "kbroker:8.4.0")


def test_written_and_read() -> None:
    with KafkaContainer(IMAGE).with_kraft() as kafka:
        bootstrap = kafka.get_bootstrap_server()
        producer = KafkaProducer(bootstrap_servers=bootstrap)
        producer.send("greetings", b"hello").get(timeout=10)
        producer.close()
        consumer = KafkaConsumer("greetings", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        assert next(consumer).value == b"hello"
        consumer.close()
