"""Kafdrop shows what is there: nodes, topics, records and the lag of a group, by its pages and in JSON; a node is away
meanwhile. With TLS and SASL it shows what its user may see."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests.brokers import Broker
from compat_tests.client import Record
from compat_tests.security.conftest import kind_of
from compat_tests.security.servers import SecureServers
from compat_tests.security.world import World, running_world
from compat_tests.works_with.connect import run_script
from compat_tests.works_with.judge import (
    committed,
    config_of,
    create_topics,
    end_offsets,
    leader,
    place_of,
    read_all,
    text_of,
    topics_of,
    write,
)
from compat_tests.works_with.kafdrop.console import Console, running_console
from compat_tests.works_with.nodes import node_count, without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import wait_until
from tests.patience import SHORT, eventually

RECORDS = 300
READ = 90
SOME_RECORDS = "/topic/orders/messages?partition=0&offset=10&count=25"

Partition = tuple[int, int, list[int], int]
"""Number, leader, replicas in sync, and end of a partition."""


@pytest.fixture(scope="module")
def console(program: Program, bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """The console of the broker under test."""
    with running_console(program, bootstrap, tmp_path_factory.mktemp("kafdrop")) as running:
        yield running


@pytest.fixture
def secured(request: pytest.FixtureRequest, broker: Broker) -> Iterator[World]:
    """A cluster of as many nodes of the broker under test, with TLS, users and rights."""
    servers = SecureServers(*[kind_of(request.config)] * node_count(broker), mechanism_between="SCRAM-SHA-512")
    with running_world(servers) as world:
        yield world


def partitions_of(bootstrap: str, topic: str) -> list[Partition]:
    """The partitions of a topic, as the other client knows them."""
    known = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=SHORT).topics[topic].partitions
    ends = end_offsets(bootstrap, topic)
    return [(number, one.leader, sorted(one.isrs), ends[topic, number]) for number, one in sorted(known.items())]


def partitions_shown(topic: Any) -> list[Partition]:
    """The partitions of a topic in an answer of the console."""
    return [
        (
            each["id"],
            each["leader"]["id"] if each["leader"] else -1,
            [replica["id"] for replica in each["inSyncReplicas"]],
            each["size"],
        )
        for each in topic["partitions"]
    ]


def commit_in_the_middle(bootstrap: str) -> None:
    """Have the group billing commit a part of each partition of the orders."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    wait_until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 3, "billing to have its partitions")
    places = [TopicPartition("orders", partition, READ // 3) for partition in range(3)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def test_shows_what_is_there(program: Program, broker: Broker, console: Console, seen: Callable[..., None]) -> None:
    bootstrap = broker.bootstrap
    create_topics(bootstrap, {"orders": 3}, retention_ms="7200000")
    write(bootstrap, "orders", [(f"customer {number % 17}", f"order {number}") for number in range(RECORDS)])
    commit_in_the_middle(bootstrap)

    console.await_json(f"{SOME_RECORDS}&isAnyProto=false", lambda found: len(found) == 25, "records")
    told = run_script(program, "ask.sh", KAFDROP=console.address)
    cluster, topic, records, groups, group = map(json.loads, told.splitlines())
    assert len(cluster["brokers"]) == node_count(broker)
    assert sum(each["controller"] for each in cluster["brokers"]) == 1
    assert {each["name"]: len(each["partitions"]) for each in cluster["topics"]} == topics_of(bootstrap)
    assert cluster["summary"]["underReplicatedCount"] == 0
    assert partitions_shown(topic) == partitions_of(bootstrap, "orders")
    assert topic["config"]["retention.ms"] == config_of(bootstrap, "orders")["retention.ms"]
    there = [message for message in read_all(bootstrap, "orders") if place_of(message)[0] == 0]
    assert [(each["offset"], each["key"], each["message"]) for each in records] == [
        (place_of(message)[1], text_of(message.key()), text_of(message.value())) for message in there[10:35]
    ]
    assert [each["groupId"] for each in groups] == ["billing"]
    (shown,) = group["topics"]
    assert shown["topic"] == "orders" and shown["lag"] == RECORDS - READ
    offsets = {("orders", each["partitionId"]): each["offset"] for each in shown["partitions"]}
    assert offsets == committed(bootstrap, "billing")

    pages = {"/": "orders", "/topic/orders": "billing", "/consumer/billing": str(RECORDS - READ), "/broker/1": "orders"}
    for path, text in pages.items():
        assert text in console.ask(path), path
    plain = "isAnyProto=false&keyFormat=DEFAULT&format=DEFAULT"
    search = "/topic/orders/search-messages?searchText=order+123&partition=-1&maximumCount=10"
    console.await_page(f"{SOME_RECORDS}&{plain}", f">{text_of(there[10].value())}<")
    console.await_page(f"{search}&startTimestamp=1970-01-01+00:00:00.000&{plain}", ">order 123<")

    seen(
        f"{node_count(broker)} nodes and the controller, all topics with their configuration, and partitions with "
        f"leader, replicas in sync and end; {len(records)} records from an offset on, and a search through all "
        f"{RECORDS}",
        f"group billing, which has read {READ} of {RECORDS} records: it shows a lag of {RECORDS - READ}",
    )


def test_goes_on_without_a_node(broker: Broker, console: Console, seen: Callable[..., None]) -> None:
    bootstrap, nodes = broker.bootstrap, node_count(broker)
    create_topics(bootstrap, {"parcels": 3})
    write(bootstrap, "parcels", [(None, f"parcel {number}") for number in range(RECORDS)])
    dead = leader(bootstrap, "parcels")
    left = nodes - 1 if nodes > 1 else nodes

    def has_nodes(count: int) -> Callable[[Any], bool]:
        return lambda found: len(found["brokers"]) == count

    with without_a_node(broker, dead):
        there = console.await_json("/", has_nodes(left), f"{left} nodes shown")
        if nodes > 1:
            assert dead not in {each["id"] for each in there["brokers"]}

        def is_right(found: Any) -> bool:
            if nodes > 1 and any(number == dead for _, number, _, _ in partitions_shown(found)):
                return False
            try:
                return partitions_shown(found) == partitions_of(bootstrap, "parcels")
            except KafkaException:  # it asked the node that was just killed
                return False

        shown = console.await_json("/topic/parcels", is_right, "leaders as they are")
        assert nodes == 1 or all(each["underReplicated"] for each in shown["partitions"])
        records = console.await_json(
            "/topic/parcels/allmessages?count=1000", lambda found: len(found) >= RECORDS, "all records"
        )
        assert sorted(each["message"] for each in records) == sorted(f"parcel {number}" for number in range(RECORDS))
        # Kafdrop says that this is JSON; it is the page.
        form = {"name": "made-by-kafdrop", "partitionsNumber": "2", "replicationFactor": str(min(2, nodes))}
        console.ask("/topic", form, accept="*/*")
        wait_until(lambda: topics_of(bootstrap).get("made-by-kafdrop") == 2, "the topic to be there")
    there = console.await_json(
        "/",
        lambda found: has_nodes(nodes)(found) and not found["summary"]["underReplicatedCount"],
        f"{nodes} nodes and all replicas in sync",
    )
    assert "made-by-kafdrop" in {each["name"] for each in there["topics"]}
    console.ask("/topic/made-by-kafdrop/delete", {})
    wait_until(lambda: "made-by-kafdrop" not in topics_of(bootstrap), "the topic to be gone")
    if nodes > 1:
        seen(
            f"a node was killed: it shows the {left} that are left, the new leaders and what is under-replicated, read "
            f"all {RECORDS} records and made a topic; with the node back, all is in sync again"
        )
    seen("a topic made and deleted by its forms is there and gone for the other client")


def test_shows_what_its_user_may_see(
    program: Program, secured: World, tmp_path: Path, seen: Callable[..., None]
) -> None:
    mine, hidden = secured.topic(partitions=3), secured.topic()
    secured.allow("alice", "topic", mine, "describe", "describe_configs", "read")
    secured.peer.produce(mine, [Record(f"value {number}".encode(), partition=number % 3) for number in range(30)])
    security = secured.servers.plain("alice", "SASL_SSL")
    bootstrap = secured.servers.bootstrap("SASL_SSL")
    eventually(lambda: secured.sees(bootstrap, security, mine))
    with running_console(program, bootstrap, tmp_path, security.java_properties()) as console:
        found = console.await_json("/", lambda found: len(found["brokers"]) == secured.servers.count, "all nodes shown")
        assert [each["name"] for each in found["topics"]] == [mine] and hidden in secured.peer.list_topics()
        records = console.await_json(f"/topic/{mine}/allmessages?count=100", lambda found: len(found) >= 30, "records")
        assert sorted(each["message"] for each in records) == sorted(f"value {number}" for number in range(30))
        acls = console.json("/acl")
        rights = {(each["name"], each["operation"]) for each in acls if each["principal"] == "User:alice"}
        assert rights == {(mine, operation) for operation in ("DESCRIBE", "DESCRIBE_CONFIGS", "READ")}
    seen(
        f"over TLS, logged in by SASL (PLAIN), on {secured.servers.count} nodes: of two topics it shows the one that "
        f"its user may see, with its {len(records)} records, and which ACLs there are"
    )
