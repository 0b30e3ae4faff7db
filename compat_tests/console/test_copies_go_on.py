"""Copies whose node is killed in the middle: the page goes on from there, and nothing is stored twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests.brokers import Broker
from compat_tests.console.conftest import NO_PLAYWRIGHT, OpenPage, RunningConsole, running_console
from kbroker.client import Client
from kbroker.client.reader import Chunk, Reader
from kbroker.client.topics import NewTopic, create_topics, list_ranges
from kbroker.testing.cluster import RunningCluster, running_cluster
from kbroker.types import TopicPartition

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from playwright.sync_api import Dialog, Page, Route, expect

PATIENCE = 60_000
ROWS = 12_000
LONG = "x" * 200
"""Makes the file four pieces."""


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[RunningCluster]:
    """A node of kbroker, which can be killed; the page does the same with other brokers."""
    if broker.name == "apache":
        pytest.skip("a node of kbroker's own is killed")
    with running_cluster(1) as running:
        yield running


@pytest.fixture(scope="module")
def impatient(cluster: RunningCluster) -> Iterator[RunningConsole]:
    """A console that soon tells that a node is not there."""
    with running_console("-b", cluster.bootstrap_servers, "--writes", "--timeout", "8") as running:
        yield running


def values(cluster: RunningCluster, topic: str) -> Counter[bytes | None]:
    """Each value of a topic, and how often it is there."""
    found: Counter[bytes | None] = Counter()
    with Client(cluster.bootstrap_servers) as client:
        names = [TopicPartition(topic, number) for number in client.partitions_of(topic)]
        limits = {each.partition: known for each, known in list_ranges(client, names).items()}
        ends = {number: known[1] for number, known in limits.items() if isinstance(known, tuple)}
        reader = Reader(client, topic, dict.fromkeys(ends, 0), ends=ends)
        while not reader.finished:
            for chunk in reader.poll(5):
                assert isinstance(chunk, Chunk)
                found.update(record.value for record in chunk.records)
    return found


def killing(cluster: RunningCluster, at: int) -> Callable[[Route], None]:
    """Kill the node before it hears of a step, counted from 1."""
    asked = 0

    def handle(route: Route) -> None:
        nonlocal asked
        asked += 1
        if asked == at:
            cluster.nodes[0].kill()
        route.continue_()

    return handle


def go_on(page: Page, cluster: RunningCluster, button: str) -> None:
    """See what the dialog tells of the failure, start the node again, and go on."""
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text(re.compile("connect|closed|in time"), timeout=PATIENCE)
    cluster.nodes[0].start()
    dialog.get_by_role("button", name=button).click()


def test_an_import_and_a_replay_go_on(
    open_page: OpenPage, cluster: RunningCluster, impatient: RunningConsole, tmp_path: Path
) -> None:
    with cluster.client() as client:
        create_topics(client, [NewTopic("whole", 2, 1), NewTopic("whole-again", 2, 1)])
    file = tmp_path / "rows.csv"
    file.write_text("key,value\n" + "".join(f"k{number % 9},{number} {LONG}\n" for number in range(ROWS)))
    page = open_page("#/topic?name=whole", url=impatient.url, expect=(502,))
    page.route("**/api/records/import", killing(cluster, 3))
    page.get_by_role("button", name="Import").click()
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("dialog").get_by_role("button", name="Import").click()
    go_on(page, cluster, "Import")
    expect(page.get_by_text(f"{ROWS:,} records stored in whole")).to_be_visible(timeout=PATIENCE)
    stored = values(cluster, "whole")
    assert (len(stored), stored.total()) == (ROWS, ROWS)

    page.goto(f"{impatient.url}#/topic?name=whole&tab=records&again=1")
    page.route("**/api/records/replay", killing(cluster, 1))
    page.get_by_role("button", name="Replay").click()
    page.get_by_label("To topic").fill("whole-again")
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    go_on(page, cluster, "Replay")
    expect(page.get_by_text(f"{ROWS:,} records sent to whole-again")).to_be_visible(timeout=PATIENCE)
    assert values(cluster, "whole-again") == stored


def test_the_browser_asks_before_a_copy_is_left(
    open_page: OpenPage, cluster: RunningCluster, impatient: RunningConsole, tmp_path: Path
) -> None:
    with cluster.client() as client:
        create_topics(client, [NewTopic("left", 1, 1)])
    file = tmp_path / "rows.jsonl"
    file.write_text('{"value": "one"}\n')
    page = open_page("#/topic?name=left", url=impatient.url)
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
    held: list[Route] = []
    page.route("**/api/records/import", lambda route: held.append(route))
    page.get_by_role("button", name="Import").click()
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("dialog").get_by_role("button", name="Import").click()
    page.wait_for_function("() => document.querySelector('dialog button[type=submit]').disabled")
    with page.expect_event("dialog"):
        page.evaluate("() => { setTimeout(() => location.reload(), 0); }")
    held[0].continue_()
    expect(page.get_by_text("1 record stored in left")).to_be_visible()
    assert asked == ["beforeunload"]
    # What is finished is left without a question.
    page.reload()
    expect(page.locator("tr[data-record]")).to_have_count(1)
    assert asked == ["beforeunload"]
