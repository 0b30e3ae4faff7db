"""A node takes clients' metrics, from librdkafka and from hostile clients (KIP-714)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from confluent_kafka import Producer

from kbroker.client.cluster import Client
from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs, describe_configs
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode as E
from kbroker.errors import FatalError
from kbroker.node.rules.connection_calls import AwaitedCalls
from kbroker.node.telemetry.receivers import MetricsFile
from kbroker.node.telemetry.telemetry import Telemetry
from kbroker.observe.telemetry.otlp import Point
from kbroker.rules import ClientMetrics
from kbroker.runtime.env import RealEnv
from kbroker.security.principal import ANONYMOUS
from kbroker.testing import running_broker
from kbroker.tools.cli.client import latest_pushes
from kbroker.wire.compression import CompressionType, compress
from kbroker.wire.messages.client_telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from tests.node.metrics_pages import LISTENER, found, port_of, scrape
from tests.node.metrics_pages import value as value_of
from tests.node.node_harness import running_node
from tests.patience import LONG, eventually
from tests.telemetry.test_otlp import payload, point

MOST_BYTES = 100_000


class Peer(SimpleNamespace):
    """A connection; each is another one."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class World:
    """The part of a node, without one; each client has a connection of its own."""

    def __init__(self, receive: Any) -> None:
        self.telemetry = Telemetry(RealEnv(seed=1), [AwaitedCalls(receive, "receive", "test", "nothing")], MOST_BYTES)

    def context(self) -> Any:
        connection = Peer(
            peer="127.0.0.1:5", client_software_name="x", client_software_version="1", listener_name="L", when_closed=[]
        )
        return SimpleNamespace(
            connection=connection,
            header=SimpleNamespace(client_id="me"),
            principal=ANONYMOUS,
            host="127.0.0.1",
            services=SimpleNamespace(node_id=1),
        )

    async def push(self, data: bytes, codec: int = 0) -> E:
        ctx = self.context()
        got = self.telemetry.subscriptions_of(GetTelemetrySubscriptionsRequest(), ctx)
        request = PushTelemetryRequest(
            client_instance_id=got.client_instance_id,
            subscription_id=got.subscription_id,
            compression_type=codec,
            metrics=data,
        )
        error = await self.telemetry.push(request, ctx)
        ctx.connection.when_closed[0]()
        return error


GOOD = payload(point(Point("a.b", "gauge", 7, {"k": "v"}, 1)))


async def test_a_callable_gets_what_is_pushed_and_no_bomb() -> None:
    got: list[ClientMetrics] = []
    world = World(got.append)
    for codec in CompressionType:
        data = GOOD if codec is CompressionType.NONE else compress(codec, GOOD)
        assert await world.push(data, codec) == E.NONE
        if codec is not CompressionType.NONE:
            bomb = compress(codec, bytes(MOST_BYTES * 10))
            assert len(bomb) < MOST_BYTES and await world.push(bomb, codec) == E.INVALID_RECORD
            assert await world.push(b"\xff" * 99, codec) == E.INVALID_RECORD
    assert await world.push(b"\xff" * 99) == E.INVALID_RECORD
    assert await world.push(bytes(MOST_BYTES + 1)) == E.TELEMETRY_TOO_LARGE
    assert await world.push(b"") == E.NONE  # as the last push of a client without anything to say
    assert [(pushed.client_id, pushed.points, pushed.payload, pushed.push_interval_ms) for pushed in got] == [
        ("me", (Point("a.b", "gauge", 7, {"k": "v"}, 1),), GOOD, 300_000)
    ] * len(CompressionType)


def test_a_receiver_that_fails_is_told_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    def receive(pushed: ClientMetrics) -> None:
        raise RuntimeError("secret")

    assert trio.run(World(receive).push, GOOD) == E.INVALID_RECORD
    assert "test fails, and nothing" in caplog.text and "secret" not in caplog.text


async def test_the_file_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    world = World(MetricsFile(str(path), 3000))
    for _ in range(30):
        assert await world.push(GOOD) == E.NONE
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "metrics.1"]
    for file in tmp_path.iterdir():
        assert file.stat().st_size <= 3000 and file.stat().st_mode & 0o777 == 0o600
        assert all(json.loads(line)["points"][0]["value"] == 7 for line in file.read_text().splitlines())


@pytest.mark.parametrize(
    ("value", "text"),
    [("file:metrics", "the path must be absolute"), ("python:nothing", "is not of the form python:MODULE:NAME")],
)
def test_a_reporter_that_there_is_not_is_refused(value: str, text: str) -> None:
    with pytest.raises(FatalError, match=text):
        BrokerConfig.from_properties(
            {
                "process.roles": "broker",
                "node.id": "1",
                "controller.quorum.voters": "2@h:1",
                "controller.listener.names": "C",
                "metric.reporters": value,
            }
        )


def test_librdkafka_pushes_and_the_command_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    with running_broker({"metric.reporters": f"file:{path}"}) as broker:
        subscribe(broker.bootstrap_servers)
        with pushing(broker.bootstrap_servers, "other"):
            with pushing(broker.bootstrap_servers, "mine") as produce:
                eventually(lambda: produce() or b'"mine"' in path.read_bytes())
            eventually(lambda: b'"terminating":true' in path.read_bytes())  # comes at once, as the client ends
    command = [sys.executable, "-m", "kbroker", "client", "list", "--json", str(path)]
    [shown] = json.loads(subprocess.check_output(command))
    assert shown["client_id"] == "mine" and shown["terminating"] and shown["principal"] == "User:ANONYMOUS"
    assert any(found["name"].startswith("org.apache.kafka.producer.") for found in shown["points"])


def test_what_clients_push_is_on_the_page_for_prometheus_without_another_receiver() -> None:
    """KIP-714; and KIP-1076, by a client that adds a metric of an application's own."""
    with running_broker(LISTENER) as broker:
        subscribe(broker.bootstrap_servers)

        def shown() -> list[dict[str, str]]:
            page = scrape(port_of(broker))
            return [dict(labels) for name, labels in page if name.startswith("org_apache_kafka_producer_")]

        with pushing(broker.bootstrap_servers, "mine") as produce, pushing(broker.bootstrap_servers, "other"):
            eventually(lambda: produce() or shown())
        of_clients = {(labels["client_id"], labels["client_instance_id"]) for labels in shown()}
        assert len(of_clients) == 1 and of_clients.pop()[0] == "mine"
        with Client(broker.bootstrap_servers, client_id="mine") as client:
            got = client.ask_any(GetTelemetrySubscriptionsRequest())
            for value in (40, 2):
                data = payload(point(Point("my.app.orders", "sum", value, {"shop": "a"}, 1, True)))
                push = PushTelemetryRequest(
                    client_instance_id=got.client_instance_id, subscription_id=got.subscription_id, metrics=data
                )
                eventually(partial(is_accepted, client, push))  # in its interval
        page = scrape(port_of(broker))
        ((labels, orders),) = found(page, "my_app_orders_total").items()
        assert orders == 42 and dict(labels)["shop"] == "a"
        assert value_of(page, "kbroker_client_metrics_clients") == 2
        assert value_of(page, "kbroker_client_metrics_dropped_total") == 0


def test_no_subscription_no_metrics_of_clients() -> None:
    with running_broker(LISTENER) as broker, Client(broker.bootstrap_servers) as client:
        got = client.ask_any(GetTelemetrySubscriptionsRequest())
        assert got.error_code == E.NONE and got.requested_metrics == []
        assert value_of(scrape(port_of(broker)), "kbroker_client_metrics_series") == 0


async def test_a_thousand_clients_on_one_connection(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    async with running_node(tmp_path / "node", **{"metric.reporters": f"file:{path}"}) as node:
        client = await node.connect()
        for _ in range(1000):
            got = await client.ask(GetTelemetrySubscriptionsRequest())
            assert got.error_code == E.NONE and got.push_interval_ms == 300_000
            push = PushTelemetryRequest(
                client_instance_id=got.client_instance_id, subscription_id=got.subscription_id, metrics=GOOD
            )
            assert (await client.ask(push)).error_code == E.NONE
        assert (await client.ask(push)).error_code == E.THROTTLING_QUOTA_EXCEEDED
    clients = latest_pushes([path])
    assert len(clients) == 1000 and all(len(client["points"]) == 1 for client in clients.values())


def subscribe(bootstrap_servers: str) -> None:
    """Have the client ``mine`` asked for a producer's metrics. The node knows of it when this returns: a client that
    comes before is asked for nothing, and comes again after five minutes."""
    changes = {"metrics": "org.apache.kafka.producer.", "match": "client_id=mine", "interval.ms": "100"}
    with Client(bootstrap_servers) as client:
        wanted = [ConfigChange(name, Operation.SET, value) for name, value in changes.items()]
        alter_configs(client, ResourceType.CLIENT_METRICS, "s", wanted)

        def told() -> dict[str, str | None]:
            return {entry.name: entry.value for entry in describe_configs(client, ResourceType.CLIENT_METRICS, "s")}

        eventually(lambda: told() == changes)


@contextmanager
def pushing(bootstrap_servers: str, client_id: str) -> Iterator[Callable[[], None]]:
    """A producer of librdkafka, which ends with the block; the callable has it produce a record."""
    settings = {"bootstrap.servers": bootstrap_servers, "client.id": client_id, "enable.metrics.push": True}
    producers = [Producer(settings)]

    def produce() -> None:
        producers[0].produce("t", b"x")
        assert producers[0].flush(LONG) == 0

    produce()
    yield produce
    producers.clear()


def is_accepted(client: Client, push: PushTelemetryRequest) -> bool:
    return client.ask_any(push).error_code == E.NONE
