"""Copies that fail in the middle, or whose page is loaded again: they go on from there, and nothing is stored twice."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests.brokers import Broker
from compat_tests.console.conftest import NO_PLAYWRIGHT, OpenPage, RunningConsole, choose, running_console
from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.reader import Chunk, Reader
from kbroker.client.topics import NewTopic, create_topics, list_ranges
from kbroker.testing import RunningBroker, running_broker
from kbroker.testing.cluster import RunningCluster, running_cluster
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record
from tests.patience import LONG_MS, eventually

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from playwright.sync_api import Dialog, Locator, Page, Route, expect

ROWS = 12_000
FILLER = "x" * 200
"""Makes the file four pieces."""

KEPT = {"retention.ms": "-1"}
"""For records of long ago."""


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


@pytest.fixture(scope="module")
def holding(broker: Broker) -> Iterator[RunningBroker]:
    """A broker whose topics can be made to take nothing."""
    if broker.name == "apache":
        pytest.skip("faults are kbroker's own")
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def keeping(holding: RunningBroker) -> Iterator[RunningConsole]:
    """A console beside that broker, which tries for as long as a test may take."""
    with running_console("-b", holding.bootstrap_servers, "--writes", "--timeout", "600") as running:
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


def begin_import(page: Page, file: Path) -> None:
    choose(page, "Actions", "Import")
    page.get_by_label("File", exact=True).set_input_files(file)
    page.get_by_role("dialog").get_by_role("button", name="Import").click()


def begin_replay(page: Page, to: str) -> None:
    choose(page, "Export", "Replay")
    page.get_by_label("To topic").fill(to)
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()


def copy_on(page: Page, text: str | re.Pattern[str]) -> Locator:
    """The line of the session's copy with a text."""
    return page.get_by_label("Copies of records").locator(".copy").filter(has_text=text)


def go_on(copy: Locator, told: str) -> None:
    """Have the copy go on until it is done: a slow machine may need longer for a step than its console waits."""

    def is_done() -> bool:
        copy.get_by_role("button", name="Go on").evaluate_all("all => all.forEach((each) => each.click())")
        text = copy.inner_text()
        return told in text and "done" in text

    eventually(is_done, told)


def test_an_import_and_a_replay_go_on(
    open_page: OpenPage, cluster: RunningCluster, impatient: RunningConsole, tmp_path: Path
) -> None:
    with cluster.client() as client:
        create_topics(client, [NewTopic("whole", 2, 1), NewTopic("whole-again", 2, 1)])
    file = tmp_path / "rows.csv"
    file.write_text("key,value\n" + "".join(f"k{number % 9},{number} {FILLER}\n" for number in range(ROWS)))
    page = open_page("#/topic?name=whole", url=impatient.url, expect=(502,))
    page.route("**/api/copies/piece", killing(cluster, 3))
    begin_import(page, file)
    copy = copy_on(page, "stored in whole")
    expect(copy).to_contain_text(re.compile("connect|closed|in time"), timeout=LONG_MS)
    cluster.nodes[0].start()
    go_on(copy, f"{ROWS:,} records stored in whole")
    expect(copy.get_by_role("button", name="Dismiss")).to_be_visible()
    stored = values(cluster, "whole")
    assert (len(stored), stored.total()) == (ROWS, ROWS)

    page.goto(f"{impatient.url}#/topic?name=whole&tab=records&again=1")
    page.route("**/api/copies/replay", killing(cluster, 1))
    begin_replay(page, "whole-again")
    dialog = page.get_by_role("dialog")  # what cannot be begun is told there
    expect(dialog.get_by_role("alert")).to_contain_text(re.compile("connect|closed|in time"), timeout=LONG_MS)
    cluster.nodes[0].start()
    dialog.get_by_role("button", name="Replay").click()
    go_on(copy_on(page, "sent to whole-again"), f"{ROWS:,} records sent to whole-again")
    assert values(cluster, "whole-again") == stored


def test_a_replay_goes_on_while_its_page_is_loaded_again(
    open_page: OpenPage, holding: RunningBroker, keeping: RunningConsole
) -> None:
    with Client(holding.bootstrap_servers) as client:
        create_topics(client, [NewTopic(name, 1, 1, KEPT) for name in ("first", "kept", "given-up")])
        producer = Producer(client, "first", [0], on_refused=print)
        for number in range(5):
            producer.send(Record(0, 1, None, b"%d" % number), number, 0)
        producer.flush()
    page = open_page("#/topic?name=first", url=keeping.url)
    # The topic takes nothing for now, and the copy tries again.
    with holding.faults.error("Produce", "NOT_ENOUGH_REPLICAS", topic="kept"):
        begin_replay(page, "kept")
        expect(copy_on(page, "sent to kept")).to_contain_text("under way")
        page.reload()
        expect(copy_on(page, "sent to kept")).to_contain_text("under way")
    expect(copy_on(page, "5 records sent to kept")).to_contain_text("done", timeout=LONG_MS)
    with holding.faults.error("Produce", "NOT_ENOUGH_REPLICAS", topic="given-up"):
        begin_replay(page, "given-up")
        copy = copy_on(page, "sent to given-up")
        copy.get_by_role("button", name="Cancel").click()
        expect(copy).to_contain_text("cancelled")  # it is, or is to be once the topic has answered
    expect(copy.locator(".badge")).to_have_text("cancelled", timeout=LONG_MS)
    copy.get_by_role("button", name="Dismiss").click()
    expect(copy).to_have_count(0)
    page.reload()
    expect(copy_on(page, "done")).to_have_count(1)
    expect(copy).to_have_count(0)


def test_an_import_goes_on_with_its_file_chosen_again(
    open_page: OpenPage, holding: RunningBroker, keeping: RunningConsole, tmp_path: Path
) -> None:
    with Client(holding.bootstrap_servers) as client:
        create_topics(client, [NewTopic("reloaded", 1, 1)])
    rows = 4000
    file = tmp_path / "rows.csv"
    file.write_text("value\n" + "".join(f"{number} {FILLER}\n" for number in range(rows)))
    page = open_page("#/topic?name=reloaded", url=keeping.url)
    page.on("dialog", lambda dialog: dialog.accept())
    asked: list[Route] = []

    def hold_second(route: Route) -> None:
        asked.append(route)
        if len(asked) != 2:
            route.continue_()

    page.route("**/api/copies/piece", hold_second)
    begin_import(page, file)
    while len(asked) < 2:
        page.wait_for_timeout(10)
    page.reload()
    copy = copy_on(page, "stored in reloaded of rows.csv")
    expect(copy).to_contain_text("waits for its file")
    other = tmp_path / "other.csv"
    other.write_text("value\n1\n")
    again = copy.get_by_label("Choose rows.csv again")
    again.set_input_files(other)
    expect(page.get_by_text("this is not the file")).to_be_visible()
    again.set_input_files(file)
    expect(copy_on(page, f"{rows:,} records stored in reloaded")).to_contain_text("done", timeout=LONG_MS)
    with Client(holding.bootstrap_servers) as client:
        assert list_ranges(client, [TopicPartition("reloaded", 0)])[TopicPartition("reloaded", 0)] == (0, rows)


def test_a_replay_is_asked_for_while_the_page_imports(
    open_page: OpenPage, holding: RunningBroker, keeping: RunningConsole, tmp_path: Path
) -> None:
    with Client(holding.bootstrap_servers) as client:
        create_topics(client, [NewTopic(name, 1, 1, KEPT) for name in ("beside", "beside-again")])
        producer = Producer(client, "beside", [0], on_refused=print)
        for number in range(5):
            producer.send(Record(0, 1, None, b"%d" % number), number, 0)
        producer.flush()
    file = tmp_path / "two.jsonl"
    file.write_text('{"value": "one"}\n{"value": "two"}\n')
    page = open_page("#/topic?name=beside", url=keeping.url)
    with holding.faults.error("Produce", "NOT_ENOUGH_REPLICAS", topic="beside-again"):
        begin_replay(page, "beside-again")
        expect(copy_on(page, "sent to beside-again")).to_contain_text("under way")
        begin_import(page, file)
        expect(copy_on(page, "2 records stored in beside")).to_contain_text("done", timeout=LONG_MS)
    expect(copy_on(page, "5 records sent to beside-again")).to_contain_text("done", timeout=LONG_MS)


def test_a_parquet_file_goes_on_where_it_was_with_the_console(
    open_page: OpenPage, holding: RunningBroker, keeping: RunningConsole, tmp_path: Path
) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    with Client(holding.bootstrap_servers) as client:
        create_topics(client, [NewTopic("columns", 1, 1)])
    rows = 900
    file = tmp_path / "rows.parquet"
    values = [f"{number} ".encode() + random.Random(number).randbytes(1000) for number in range(rows)]
    parquet.write_table(arrow.table({"value": values}), file)
    page = open_page("#/topic?name=columns", url=keeping.url, expect=(507,))
    begun: list[int] = []

    def break_second(route: Route) -> None:
        begun.append(json.loads(route.request.post_data or "")["at"])
        if len(begun) == 2:
            route.fulfill(status=507, json={"error": "the disk is full", "name": None})
        else:
            route.continue_()

    page.route("**/api/records/upload", break_second)
    begin_import(page, file)
    copy = copy_on(page, "columns")
    expect(copy).to_contain_text("the disk is full. It can go on from there, and nothing is stored twice.")
    copy.get_by_role("button", name="Go on").click()
    expect(copy).to_contain_text(f"{rows} records stored in columns", timeout=LONG_MS)
    expect(copy).to_contain_text("done", timeout=LONG_MS)
    assert begun == [0, 512 << 10, 512 << 10], "what the console has is not sent again"


def test_the_browser_asks_before_a_copy_is_left(
    open_page: OpenPage, holding: RunningBroker, keeping: RunningConsole, tmp_path: Path
) -> None:
    with Client(holding.bootstrap_servers) as client:
        create_topics(client, [NewTopic("left", 1, 1)])
    file = tmp_path / "rows.jsonl"
    file.write_text('{"value": "one"}\n')
    page = open_page("#/topic?name=left", url=keeping.url)
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
    held: list[Route] = []
    page.route("**/api/copies/piece", lambda route: held.append(route) if not held else route.continue_())
    begin_import(page, file)
    while not held:
        page.wait_for_timeout(10)
    with page.expect_event("dialog"):
        page.evaluate("() => { setTimeout(() => location.reload(), 0); }")
    held[0].continue_()
    expect(copy_on(page, "1 record stored in left")).to_contain_text("done")
    assert asked == ["beforeunload"]
    # What is finished is left without a question.
    page.reload()
    expect(page.locator("tr[data-record]")).to_have_count(1)
    assert asked == ["beforeunload"]
