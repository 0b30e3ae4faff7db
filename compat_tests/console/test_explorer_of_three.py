"""The explorer's page on three nodes, one of which ends and is started anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from compat_tests.brokers import Broker
from compat_tests.case import await_everywhere
from compat_tests.console.conftest import NO_PLAYWRIGHT, OpenPage, RunningConsole, await_followed, running_console
from kbroker.client import Client
from kbroker.config.listeners import EXPLORER_LISTENER
from kbroker.testing.cluster import RunningCluster
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect


@dataclass(frozen=True)
class Watched:
    """A cluster, the addresses of its nodes' explorers, which stay, and a console that watches them."""

    cluster: RunningCluster
    explorers: list[str]
    console: RunningConsole


@pytest.fixture(scope="module")
def watched(broker: Broker) -> Iterator[Watched]:
    if broker.name == "apache":
        pytest.skip("the explorer is kbroker's own")
    cluster = RunningCluster(3)
    explorers = [f"127.0.0.1:{port}" for port in free_ports(3)]
    for node, address in zip(cluster.nodes, explorers, strict=True):
        with node.data_dir.with_name(f"{node.data_dir.name}.properties").open("a") as file:
            file.write(f"\n{EXPLORER_LISTENER}=http://{address}\n")
    with cluster, running_console("-b", cluster.bootstrap_servers, "--explorer", ",".join(explorers)) as console:
        yield Watched(cluster, explorers, console)


def write(bootstrap: str, value: str, partition: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": value, "linger.ms": 0})
    producer.produce("letters", value.encode(), partition=partition)
    assert producer.flush(LONG) == 0


def test_the_page_goes_on_with_the_others_and_takes_up_a_node_that_is_back(
    open_page: OpenPage, watched: Watched
) -> None:
    cluster, bootstrap = watched.cluster, watched.cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("letters", 3, 3)]).values():
        future.result(LONG)
    await_everywhere(bootstrap, "letters", 3)
    page = open_page("#/explorer", url=watched.console.url, hurried=True)  # it asks for the clients again and again
    state = page.locator(".explorer .state")
    clients = page.locator("details.connected > p.quiet")
    page.locator("summary", has_text="Clients").click()
    await_followed(page)
    page.get_by_label("Filter: words").fill("produce letters")
    # A leader that has not heard of it yet refuses a record, which is sent again.
    rows = page.locator(".exchanges tbody tr:not(.failed)")
    for partition in range(3):
        write(bootstrap, f"before-{partition}", partition)
    expect(rows).to_have_count(3)
    ended = cluster.leader_of("letters", 0)
    address = watched.explorers[ended.id - 1]
    ended.kill()
    for told in (state, clients):
        expect(told).to_contain_text(address)
        for other in watched.explorers:
            if other != address:
                expect(told).not_to_contain_text(other)
    # The others are followed: one of them leads the partition now.
    write(bootstrap, "meanwhile", 0)
    expect(rows.filter(has_text="meanwhile")).to_have_count(1)
    expect(rows).to_have_count(4)
    ended.start()
    for told in (state, clients):
        expect(told).not_to_contain_text(address)
    # Nothing was done in the browser, and requests to the node itself are there.
    page.get_by_label("Filter: words").fill("metadata back-again")
    # One of librdkafka asks the others, too, as soon as it knows them.
    with Client(ended.bootstrap_servers, client_id="back-again", timeout=LONG) as again:
        again.refresh(())
    expect(rows.first).to_contain_text("back-again")
    rows.first.get_by_role("button").first.click()
    expect(page.locator(".details")).to_contain_text(re.compile(rf"Connection \d+ of node {ended.id}"))
    page.get_by_label("Filter: words").fill("produce letters")
    expect(rows).to_have_count(4)
