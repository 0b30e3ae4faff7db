"""Metrics of nodes by OTLP: what a receiver gets is what the page shows, and what a receiver does holds up nobody."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kbroker.client.cluster import Client
from kbroker.errors import ErrorCode
from kbroker.observe.metrics.otlp import NAMES, PERCENTILES
from kbroker.observe.telemetry.otlp import Point
from kbroker.testing import RunningBroker, running_broker
from kbroker.testing.cluster import running_cluster
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kbroker.wire.messages.push_telemetry import PushTelemetryRequest
from tests.node.metrics_pages import LISTENER, Values, port_of, ports_of, scrape, total
from tests.node.otlp_receiver import Key, Receiver, hang, number, refuse, running_receiver, talk_nonsense
from tests.telemetry.test_otlp import payload, point

RECORDS, COMMITTED, SIZE = 50, 20, 100
TOPICS = "kafka_server_brokertopicmetrics_"


def env(**variables: str) -> dict[str, str]:
    """The environment of a node that is a process of its own."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), **variables}


def otlp(endpoint: str, interval_ms: int = 100) -> dict[str, str]:
    return {"otel.exporter.otlp.endpoint": endpoint, "otel.metric.export.interval": str(interval_ms)}


@pytest.fixture(autouse=True, scope="module")
def environment() -> Iterator[None]:
    """Short waits of the exporter, and no proxy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
        patch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token")
        patch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=9")
        yield


@pytest.fixture(scope="module")
def receiver() -> Iterator[tuple[Receiver, str]]:
    it = Receiver()
    with running_receiver(it) as endpoint:
        yield it, endpoint


@pytest.fixture(scope="module")
def broker(receiver: tuple[Receiver, str]) -> Iterator[RunningBroker]:
    with running_broker({**LISTENER, **otlp(receiver[1])}) as it:
        yield it


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    for _ in range(RECORDS):
        producer.produce(topic, b"x" * SIZE, partition=0)
    assert producer.flush(100) == 0


def consume(bootstrap: str, topic: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(100)
    assert message is not None and message.error() is None
    consumer.commit(offsets=[TopicPartition(topic, 0, COMMITTED)], asynchronous=False)
    consumer.close()


def compare(exported: dict[Key, Any], before: Values, after: Values) -> set[str]:
    """Compare every counter and offset that two pages agree on with what was exported between; the names compared."""
    others = {*NAMES, *PERCENTILES}
    compared = set()
    for (name, labels), value in before.items():
        steady = name.endswith(("_total", "offset")) and after.get((name, labels)) == value
        if not steady or name in others or (name.startswith(TOPICS) and "topic" not in dict(labels)):
            continue
        if name.startswith(("process_", "org_apache", "my_app")):  # those of clients go on under their own names
            continue
        point = exported[name, labels]
        assert number(point) == value, (name, labels)
        assert point.time_unix_nano / 1e9 == pytest.approx(time.time(), abs=600)
        compared.add(name)
    return compared


def test_what_is_exported_is_what_the_page_shows(receiver: tuple[Receiver, str], broker: RunningBroker) -> None:
    it, _ = receiver
    produce(broker.bootstrap_servers, "traffic")
    consume(broker.bootstrap_servers, "traffic", "readers")
    before = scrape(port_of(broker))
    exported = it.await_look()
    compared = compare(exported["1"], before, scrape(port_of(broker)))
    assert {
        f"{TOPICS}messagesin_total",
        "kafka_log_log_logendoffset",
        "kafka_network_requestmetrics_requests_total",
    } <= compared

    assert it.value("kafka.message.count") == before[f"{TOPICS}messagesin_total", ()]
    assert it.value("kafka.network.io", direction="in") == before[f"{TOPICS}bytesin_total", ()]
    assert it.value("kafka.network.io", direction="out") == before[f"{TOPICS}bytesout_total", ()]
    assert it.value(f"{TOPICS}messagesin_total", topic="traffic") == RECORDS
    group = {"group": "readers", "topic": "traffic"}
    assert it.value("kafka.consumer_group.offset", **group, partition=0) == COMMITTED
    assert it.value("kafka.consumer_group.lag", **group, partition=0) == RECORDS - COMMITTED
    assert it.value("kafka.consumer_group.lag_sum", **group) == RECORDS - COMMITTED
    assert it.value("kafka.partition.current_offset", topic="traffic", partition=0) == RECORDS
    assert (it.value("kafka.brokers"), it.value("kafka.controller.active.count")) == (1, 1)


def test_shapes_and_times(receiver: tuple[Receiver, str], broker: RunningBroker) -> None:
    it, _ = receiver
    produce(broker.bootstrap_servers, "shapes")
    it.await_look()
    metrics = it.metrics["1"]
    count = metrics["kafka.message.count"]
    assert (count.sum.is_monotonic, count.sum.aggregation_temporality, count.unit) == (True, 2, "{messages}")
    (point,) = count.sum.data_points
    assert 0 < point.start_time_unix_nano < point.time_unix_nano
    assert not metrics["kafka.partition.count"].sum.is_monotonic
    assert metrics["kafka.lag.max"].WhichOneof("data") == "gauge"
    name = "kafka_network_requestmetrics_totaltimems"
    assert metrics[name].histogram.aggregation_temporality == 2
    times = it.values["1"][name, (("request", "Produce"),)]
    assert times.count == sum(times.bucket_counts) >= 1
    assert it.value("kafka.request.time.99p", type="Produce") > 0, "of recent times, as no page has taken them"
    assert times.sum > 0 and len(times.bucket_counts) == len(times.explicit_bounds) + 1


def test_a_histogram_grows_whatever_the_page_forgets(receiver: tuple[Receiver, str], broker: RunningBroker) -> None:
    it, _ = receiver
    key = ("kafka_network_requestmetrics_totaltimems", (("request", "Produce"),))
    produce(broker.bootstrap_servers, "histograms")
    it.await_look()
    before = it.values["1"][key]
    for _ in range(5):
        scrape(port_of(broker))
    it.await_look()
    after = it.values["1"][key]
    assert after.count >= before.count > 0
    assert all(now >= then for now, then in zip(after.bucket_counts, before.bucket_counts, strict=True))


def test_the_receiver_learns_who_it_is(receiver: tuple[Receiver, str], broker: RunningBroker) -> None:
    it, _ = receiver
    it.await_look()
    about = it.resources["1"]
    assert (about["service.name"], about["deployment.environment.name"]) == ("kbroker", "test")
    assert about["service.version"] == "9", "the environment has the last word"
    cluster_id = broker.in_broker(lambda node: node.metadata.cluster_id)
    assert about["kafka.cluster.id"] == cluster_id
    assert it.paths == {"/v1/metrics"}
    assert it.headers["authorization"] == "Bearer token"
    assert it.headers["content-type"] == "application/x-protobuf"
    assert it.headers["content-encoding"] == "gzip"


def test_what_clients_push_goes_on_under_their_names(receiver: tuple[Receiver, str], broker: RunningBroker) -> None:
    it, _ = receiver
    with Client(broker.bootstrap_servers, client_id="mine") as client:
        got = client.ask_any(GetTelemetrySubscriptionsRequest())
        pushed = payload(point(Point("my.app.orders", "sum", 42, {"shop": "a"}, 1, True)))
        answer = client.ask_any(
            PushTelemetryRequest(
                client_instance_id=got.client_instance_id, subscription_id=got.subscription_id, metrics=pushed
            )
        )
        assert answer.error_code == ErrorCode.NONE
    it.await_that(lambda: "my.app.orders" in it.metrics.get("1", {}))
    data = it.metrics["1"]["my.app.orders"].sum
    assert data.is_monotonic and data.aggregation_temporality == 2
    (point_,) = data.data_points
    attributes = {each.key: each.value.string_value for each in point_.attributes}
    assert number(point_) == 42 and attributes.pop("client_instance_id")
    assert attributes == {"client_id": "mine", "shop": "a"}


@pytest.mark.parametrize("behave", [refuse, talk_nonsense, hang], ids=lambda it: it.__name__)
def test_a_receiver_that_behaves_badly_holds_up_nobody(
    receiver: tuple[Receiver, str], broker: RunningBroker, caplog: pytest.LogCaptureFixture, behave: Any
) -> None:
    it, _ = receiver
    it.await_look()
    with caplog.at_level(logging.INFO, "kbroker.node.metrics.otlp"):
        it.behave = behave
        with it.condition:
            seen = it.requests
        it.await_that(lambda: it.requests > seen)
        produce(broker.bootstrap_servers, f"despite.{behave.__name__}")
        _await_log(caplog, "metrics cannot be exported to")
        it.await_that(lambda: it.requests > seen + 1)
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 1 and warnings[0].isprintable(), "one line, however often it fails"
        it.behave = None
        it.await_look()
        _await_log(caplog, "metrics are exported to")
    assert it.value(f"{TOPICS}messagesin_total", topic=f"despite.{behave.__name__}") == RECORDS


def _await_log(caplog: pytest.LogCaptureFixture, text: str) -> None:
    ends = time.monotonic() + 100
    while text not in caplog.text:
        assert time.monotonic() < ends, caplog.text
        time.sleep(0.02)


def test_a_receiver_that_is_down_and_comes(caplog: pytest.LogCaptureFixture) -> None:
    it = Receiver()
    [port] = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    with caplog.at_level(logging.INFO, "kbroker.node.metrics.otlp"), running_broker(otlp(endpoint)) as broker:
        _await_log(caplog, "metrics cannot be exported to")
        produce(broker.bootstrap_servers, "meanwhile")
        with running_receiver(it, port):
            it.await_look()
            assert it.value(f"{TOPICS}messagesin_total", topic="meanwhile") == RECORDS
    told = [record.getMessage() for record in caplog.records if "exported" in record.getMessage()]
    assert (
        told[0].startswith(f"metrics cannot be exported to {endpoint}/v1/metrics")
        and told[1] == f"metrics are exported to {endpoint}/v1/metrics"
    )


def test_the_process_ends_with_a_node_that_is_killed(tmp_path: Path) -> None:
    it = Receiver()
    with running_receiver(it) as endpoint:
        command = [sys.executable, "-m", "kbroker", "start", "--port", "0", "--otlp", endpoint]
        command += ["-o", "otel.metric.export.interval=100"]
        node = subprocess.Popen(
            command, cwd=tmp_path, env=env(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            it.await_look()
        finally:
            node.kill()
            _, log = node.communicate(timeout=100)  # until its process has let go of the pipe, too
    assert f"metrics are exported to {endpoint}/v1/metrics" in log and "Traceback" not in log


def test_headers_that_are_wrong_keep_a_node_from_starting_and_are_not_shown(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kbroker", "start", "--port", "0", "--otlp"]
    environment = env(OTEL_EXPORTER_OTLP_HEADERS="Authorization: Bearer secret")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "secret" not in done.stdout + done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("kbroker: OTEL_EXPORTER_OTLP_HEADERS: entry 1 is not") and "Traceback" not in done.stderr


def test_three_nodes() -> None:
    """Each partition is told of by its leader alone, and the cluster by each controller; as on their pages."""
    it = Receiver()
    messages = f"{TOPICS}messagesin_total"
    few = {"offsets.topic.num.partitions": "3"}
    with running_receiver(it) as endpoint, running_cluster(3, {**LISTENER, **few, **otlp(endpoint, 300)}) as cluster:
        produce(cluster.bootstrap_servers, "spread")
        consume(cluster.bootstrap_servers, "spread", "readers")
        nodes = [str(node.id) for node in cluster.nodes]
        sum_ = "kafka.consumer_group.lag_sum", (("group", "readers"), ("topic", "spread"))

        def lags() -> list[float]:
            """Of those that tell one: the group's coordinator. A follower's high watermark comes after the leader's."""
            return [number(it.values[node][sum_]) for node in nodes if sum_ in it.values.get(node, {})]

        it.await_that(lambda: lags() == [RECORDS - COMMITTED])
        before = [scrape(port) for port in ports_of(cluster)]
        exported = it.await_look(*nodes)
        after = [scrape(port) for port in ports_of(cluster)]
        for node, first, last in zip(nodes, before, after, strict=True):
            assert "kafka_log_log_logendoffset" in compare(exported[node], first, last)
        assert sum(it.value("kafka.controller.active.count", node) for node in nodes) == 1
        assert {it.value("kafka.brokers", node) for node in nodes} == {3}
        produced = [it.values[node].get((messages, (("topic", "spread"),))) for node in nodes]
    assert sum(number(point) for point in produced if point is not None) == RECORDS
    assert total(before, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert total(before, messages, topic="spread") == RECORDS
    assert total(before, "kafka_topic_partition_current_offset", topic="spread", partition="0") == RECORDS
    assert total(before, "kafka_topic_partition_replicas", topic="spread", partition="0") == 3
    assert total(before, f"{TOPICS}replicationbytesout_total") > 2 * RECORDS * SIZE
    lag = total(before, "kafka_consumergroup_lag", consumergroup="readers", topic="spread", partition="0")
    assert lag == RECORDS - COMMITTED
