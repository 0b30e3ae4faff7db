"""The properties of a machine's nodes, out of those of one node."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.listeners import METRICS_LISTENER, OTHER_METRICS
from kbroker.config.node_per_core import core_properties
from kbroker.errors import FatalError
from kbroker.tools.cli.start import development_properties

STOCK = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    "log.dirs": "/tmp/kraft-combined-logs",
}
"""The listeners and directories of Apache Kafka's config/server.properties."""


def nodes(properties: dict[str, str], cores: int) -> list[BrokerConfig]:
    return [
        BrokerConfig.from_properties(core_properties(properties, core, cores, "box")) for core in range(1, cores + 1)
    ]


def ports(config: BrokerConfig) -> list[int]:
    return [listener.port for listener in config.broker_listeners]


def test_a_stock_file_is_the_first_node_and_the_others_follow() -> None:
    first, second, third = nodes(STOCK, 3)
    assert first.listeners == BrokerConfig.from_properties(STOCK).listeners
    assert [first.node_id, second.node_id, third.node_id] == [1, 2, 3]
    assert [ports(each) for each in (first, second, third)] == [[9092], [9094], [9095]], "9093 is the controller's"
    assert [each.advertised_listeners[0].port for each in (second, third)] == [9094, 9095]
    assert [each.process_roles for each in (first, second)] == [{"broker", "controller"}, {"broker"}]
    assert first.log_dirs == ("/tmp/kraft-combined-logs",)
    assert third.log_dirs == ("/tmp/kraft-combined-logs/core3",)
    assert {each.broker_rack for each in (first, second, third)} == {"box"}


def test_the_ports_of_a_node_do_not_depend_on_how_many_there_are() -> None:
    properties = STOCK | {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,SSL://:9095",
        "advertised.listeners": "PLAINTEXT://a:9092,SSL://proxy:29095",
    }
    few, many = nodes(properties, 2), nodes(properties, 4)
    assert [ports(each) for each in many] == [[9092, 9095], [9094, 9096], [9097, 9098], [9099, 9100]]
    assert ports(few[1]) == ports(many[1])
    assert str(many[1].advertised_listeners[1]) == "SSL://proxy:29096", "as far from the first as the port itself"


def test_the_page_of_metrics_of_the_first_knows_the_others() -> None:
    properties = development_properties() | {METRICS_LISTENER: "http://0.0.0.0:9404"}
    properties["listeners"] += ",CONTROLLER://127.0.0.1:9093"
    first, second, third = nodes(properties, 3)
    assert first.raw[OTHER_METRICS] == "2@127.0.0.1:9405,3@127.0.0.1:9406"
    assert third.raw[METRICS_LISTENER] == "http://0.0.0.0:9406" and OTHER_METRICS not in second.raw


def test_what_a_machine_has_once_is_shared() -> None:
    properties = STOCK | {
        "queued.max.request.bytes": "1000000000",
        "log.cleaner.io.max.bytes.per.second": "50000000",
        "max.connections": "100",
        "broker.rack": "cellar",
        "log.dirs": "/a, /b",
        "cordoned.log.dirs": "/b",
        "metadata.log.dir": "/m",
    }
    first, second = nodes(properties, 2)
    for each in (first, second):
        assert each.queued_max_request_bytes == 500_000_000
        assert each.log_cleaner_io_max_bytes_per_second == 25_000_000
        assert each.log_cleaner_dedupe_buffer_size == 64 << 20
        assert each.log_scrub_bytes_per_second == 5 << 20
        assert each.max_connections == 100, "a client connects to each node"
        assert each.broker_rack == "cellar"
    assert second.log_dirs == ("/a/core2", "/b/core2") and second.cordoned_log_dirs == ("/b/core2",)
    assert second.metadata_log_dir == "/m/core2"
    smallest = nodes(STOCK | {"queued.max.request.bytes": "104857600"}, 8)[7]
    assert smallest.queued_max_request_bytes == 104_857_600, "one request has to have room"


def test_ids_of_other_machines_are_refused_by_name() -> None:
    voters = STOCK | {"controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093"}
    with pytest.raises(FatalError, match=r"controller.quorum.voters must not contain node.id 2"):
        nodes(voters, 2)
    with pytest.raises(FatalError, match=r"node.id is required"):
        core_properties({"listeners": "PLAINTEXT://:9092"}, 2, 2, "box")
