"""Kafdrop shows what is there: nodes, topics, records and the lag of a group, by its pages and in JSON; it writes and
searches records, while a node is away, too."""

from __future__ import annotations

import json
import os
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.brokers import Broker
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
from compat_tests.works_with.nodes import node_count, without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, wait_until
from kbroker.cli.cluster_plan import free_ports

RECORDS = 300
READ = 90


def jar_of(program: Program) -> Path:
    """The jar to be tested; see build.py."""
    return Path(os.environ.get("KAFDROP_JAR") or program.cache / f"kafdrop-{program.version}.jar")


@pytest.fixture(scope="module")
def console(program: Program, bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """A function that asks the console for a path, with a form to be posted where that is given."""
    jar = jar_of(program)
    if not jar.exists():
        pytest.skip(f"{jar.name} is not there: build it (compat_tests/works_with/kafdrop/build.py) or set KAFDROP_JAR")
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"

    def ask(path: str, form: dict[str, str] | None = None, accept: str = "text/html") -> str:
        data = urllib.parse.urlencode(form).encode() if form else None
        request = urllib.request.Request(address + path, data, {"Accept": accept})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def answers() -> bool:
        try:
            return bool(ask("/", accept="application/json"))
        except OSError:
            return False

    directory = tmp_path_factory.mktemp("kafdrop")
    environment = {"KAFKA": bootstrap, "PORT": str(port), "KAFDROP_JAR": str(jar)}
    with Running(["sh", program.file("kafdrop.sh")], directory, "kafdrop", environment) as running:
        running.until(answers, "to answer", 240)
        ask.__dict__["address"] = address
        yield ask


def test_shows_and_writes(
    program: Program, broker: Broker, console: Callable[..., str], seen: Callable[..., None]
) -> None:
    bootstrap = broker.bootstrap
    create_topics(bootstrap, {"orders": 3}, retention_ms="7200000")
    write(bootstrap, "orders", [(f"customer {number % 17}", f"order {number}") for number in range(RECORDS)])
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    consumer.subscribe(["orders"])
    wait_until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 3, "billing to have its partitions")
    places = [TopicPartition("orders", partition, READ // 3) for partition in range(3)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()

    told = run_script(program, "ask.sh", KAFDROP=console.__dict__["address"])
    cluster, topic, records, group = map(json.loads, told.splitlines())
    assert len(cluster["brokers"]) == node_count(broker)
    assert sum(each["controller"] for each in cluster["brokers"]) == 1
    assert {each["name"] for each in cluster["topics"]} == set(topics_of(bootstrap))
    assert cluster["summary"]["underReplicatedCount"] == 0
    assert [each["size"] for each in topic["partitions"]] == list(end_offsets(bootstrap, "orders").values())
    assert topic["config"]["retention.ms"] == config_of(bootstrap, "orders")["retention.ms"]
    there = [message for message in read_all(bootstrap, "orders") if place_of(message)[0] == 0]
    assert [(each["offset"], each["key"], each["message"]) for each in records] == [
        (place_of(message)[1], text_of(message.key()), text_of(message.value())) for message in there
    ]
    (shown,) = group["topics"]
    assert shown["topic"] == "orders" and shown["lag"] == RECORDS - READ
    offsets = {("orders", each["partitionId"]): each["offset"] for each in shown["partitions"]}
    assert offsets == committed(bootstrap, "billing")

    pages = {"/": "orders", "/topic/orders": "billing", "/consumer/billing": str(RECORDS - READ), "/acl": "ACL"}
    for path, text in pages.items():
        assert text in console(path), path
    last = text_of(there[-1].value())
    plain = "isAnyProto=false&keyFormat=DEFAULT&format=DEFAULT"
    assert last in console(f"/topic/orders/messages?partition=0&offset={len(there) - 50}&count=100&{plain}")

    with without_a_node(broker, leader(bootstrap, "orders", 1)):
        form = {"topic": "orders", "topicPartition": "1", "key": "by hand", "value": "order by hand"}
        assert "order by hand" in console("/topic/orders/addmessage", form)
        found = json.loads(console("/topic/orders/allmessages?count=1000", accept="application/json"))
        assert len(found) == RECORDS + 1
        search = "/topic/orders/search-messages?searchText=by+hand&partition=-1&maximumCount=10"
        assert "order by hand" in console(f"{search}&startTimestamp=1970-01-01+00:00:00.000&{plain}")
        wanted = {"name": "made-by-kafdrop", "partitionsNumber": "2", "replicationFactor": "1"}
        console("/topic", wanted, accept="*/*")
        assert topics_of(bootstrap)["made-by-kafdrop"] == 2
    assert [text_of(message.key()) for message in read_all(bootstrap, "orders")].count("by hand") == 1
    seen(
        f"{node_count(broker)} nodes and the controller, all topics with their partitions and configuration, "
        f"the {len(records)} records of a partition with keys and offsets",
        f"group billing, which has read {READ} of {RECORDS} records: it shows a lag of {RECORDS - READ}",
        "a record was written, all records were read and searched and a topic was made while a node was away",
    )
