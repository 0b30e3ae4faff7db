"""The page for Prometheus of nodes that serve stock clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.errors import FatalError
from kbroker.testing import RunningBroker, running_broker
from tests.node.metrics_pages import LISTENER, ask, port_of, scrape, value
from tests.patience import LONG, SHORT

RECORDS, SIZE = 120, 500


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(LISTENER) as it:
        yield it


def use(bootstrap: str, topic: str, group: str) -> None:
    """Write RECORDS records, read half of them and commit."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    for _ in range(RECORDS):
        producer.produce(topic, b"x" * SIZE, partition=0)
    assert producer.flush(LONG) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = 0
    while read < RECORDS:
        message = consumer.poll(LONG)
        assert message is not None and message.error() is None
        read += 1
    consumer.commit(offsets=[TopicPartition(topic, 0, RECORDS // 2)], asynchronous=False)
    consumer.close()


def test_traffic_lag_and_requests_of_a_stock_client(broker: RunningBroker) -> None:
    use(broker.bootstrap_servers, "traffic", "readers")
    values = scrape(port_of(broker))
    assert value(values, "kafka_server_brokertopicmetrics_messagesin_total", topic="traffic") == RECORDS
    assert value(values, "kafka_server_brokertopicmetrics_bytesin_total", topic="traffic") > RECORDS * SIZE
    assert value(values, "kafka_server_brokertopicmetrics_bytesout_total", topic="traffic") > RECORDS * SIZE
    assert value(values, "kafka_server_brokertopicmetrics_messagesin_total") >= RECORDS
    assert value(values, "kafka_log_log_logendoffset", topic="traffic", partition="0") == RECORDS
    assert value(values, "kafka_log_log_size", topic="traffic", partition="0") > RECORDS * SIZE
    lag = value(values, "kafka_consumergroup_lag", consumergroup="readers", topic="traffic", partition="0")
    assert lag == RECORDS - RECORDS // 2
    served = sum(
        count
        for (name, labels), count in values.items()
        if name == "kafka_network_requestmetrics_requests_total" and dict(labels)["request"] == "FetchConsumer"
    )
    assert served >= 1
    times = {
        name: value(values, f"kafka_network_requestmetrics_{name}timems", request="Produce", quantile="0.999")
        for name in ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total")
    }
    assert 0 < times["local"] <= times["total"] * 1.125 and 0 < times["responsesend"] <= times["total"] * 1.125
    assert times["total"] <= 1.125 * 5 * max(time for name, time in times.items() if name != "total")
    assert value(values, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert 0 <= value(values, "kafka_network_socketserver_networkprocessoravgidle_percent") <= 1


def test_a_batch_that_is_refused_is_counted(broker: RunningBroker) -> None:
    name = "kafka_server_brokertopicmetrics_failedproducerequests_total"
    use(broker.bootstrap_servers, "refused", "others")
    before = value(scrape(port_of(broker)), name, topic="refused")
    config = {"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 3_000_000}
    producer = Producer(config)
    failures: list[Any] = []
    producer.produce("refused", b"x" * 2_000_000, partition=0, on_delivery=lambda error, _: failures.append(error))
    producer.flush(LONG)
    assert failures[0] is not None
    assert value(scrape(port_of(broker)), name, topic="refused") == before + 1


def test_records_that_are_compressed_anew_are_counted(broker: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("lz4", 1, config={"compression.type": "lz4"})])["lz4"].result()
    for codec in ("gzip", "lz4"):
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec})
        for number in range(7):
            producer.produce("lz4", f"{number}" * 200, partition=0)
        assert producer.flush(LONG) == 0
    name = "kafka_server_brokertopicmetrics_producemessageconversions_total"
    assert value(scrape(port_of(broker)), name, topic="lz4") == 7


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("strimzi", "kafka_server_replicamanager_isrshrinks_total"),
        ("confluent", "kafka_server_replicamanager_isrshrinkspersec"),
        ("reporter", "kafka_server_replicamanager_isrshrinkspersec_total"),
    ],
)
def test_each_dialect(broker: RunningBroker, dialect: str, name: str) -> None:
    assert value(scrape(port_of(broker), dialect), name) == 0


def test_what_else_is_asked_over_http(broker: RunningBroker) -> None:
    port = port_of(broker)
    assert ask(port, "/ready") == (200, "ready\n")
    assert ask(port, "/health") == (200, "ok\n")
    assert ask(port, "/metrics", "HEAD") == (200, "")
    assert ask(port, "/metrics?dialect=german")[0] == 400
    assert ask(port, "/nothing")[0] == 404
    assert ask(port, "//[")[0] == 400
    assert ask(port, "/metrics", "POST")[0] == 405


@pytest.mark.parametrize(
    "said", [b"\x00\x00\x00\x10\x00\x12", b"GET /" + b"x" * 20_000, b"GET / HTTP/1.1\r\n: bad\r\n\r\n"]
)
def test_nonsense_is_refused_and_the_next_reader_served(broker: RunningBroker, said: bytes) -> None:
    port = port_of(broker)
    with socket.create_connection(("127.0.0.1", port), timeout=SHORT) as stream:
        stream.sendall(said)
        try:
            stream.shutdown(socket.SHUT_WR)
            answer = stream.makefile("rb").read()
        except OSError:  # closed with bytes that nobody has read
            answer = b""
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert ask(port, "/health")[0] == 200


def test_many_silent_readers_keep_nobody_away_from_the_broker(broker: RunningBroker) -> None:
    port = port_of(broker)
    silent = [socket.create_connection(("127.0.0.1", port), timeout=SHORT) for _ in range(60)]
    try:
        use(broker.bootstrap_servers, "beside", "beside")
    finally:
        for stream in silent:
            stream.close()


def test_a_deleted_topic_leaves_the_page(broker: RunningBroker) -> None:
    from confluent_kafka.admin import AdminClient

    use(broker.bootstrap_servers, "gone", "gone")
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    total = value(scrape(port_of(broker)), name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["gone"])["gone"].result(LONG)
    values = scrape(port_of(broker))
    assert not any(dict(labels).get("topic") == "gone" for found, labels in values if found == name)
    assert value(values, name) >= total


def test_a_port_that_is_taken_ends_the_start_with_one_line(broker: RunningBroker) -> None:
    taken = {"prometheus.metrics.reporter.listener": f"http://127.0.0.1:{port_of(broker)}"}
    with pytest.raises(FatalError, match="metrics: cannot listen on 127"), running_broker(taken):
        pass


def test_a_node_without_metrics_counts_nothing() -> None:
    with running_broker() as plain:
        assert plain.in_broker(lambda node: node.metrics_port) is None
        assert plain.in_broker(lambda node: node.replica_manager.progress.traffic) is None
        with pytest.raises(KafkaException):
            Producer({"bootstrap.servers": ""}).list_topics(timeout=0.01)
