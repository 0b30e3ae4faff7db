"""Names and values that are HTML are text on every page: of groups, clients, transactions, headers and configs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from compat_tests.console.conftest import NO_PLAYWRIGHT, OpenPage
from compat_tests.console.world import HOSTILE, STAYS, World, make_topics
from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic
from kbroker.wire.record_batch import Record
from tests.patience import LONG, LONG_MS, eventually

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from playwright.sync_api import Page, Route, expect


class Hostile:
    """A topic whose records have a hostile header, with a group, a member and a transaction that are named so."""

    def __init__(self, world: World) -> None:
        confluent_kafka = pytest.importorskip("confluent_kafka")
        self.topic, self.name = f"hostile-{world.run[::-1]}", f"{world.run} {HOSTILE}"
        make_topics(world.bootstrap, NewTopic(self.topic, 1, 1))
        with Client(world.bootstrap) as client:
            refused: list[object] = []
            producer = Producer(client, self.topic, [0], on_refused=refused.append)
            now = time.time_ns() // 1_000_000
            producer.send(Record(0, now, b"k", b"v", ((HOSTILE, HOSTILE.encode()),)), 0)
            producer.flush()
            assert refused == []
        settings = {"bootstrap.servers": world.bootstrap, "client.id": self.name}
        group = {"group.id": self.name, "auto.offset.reset": "earliest", "enable.auto.commit": False, **STAYS}
        self.consumer = confluent_kafka.Consumer({**settings, **group})
        self.consumer.subscribe([self.topic])
        until = time.monotonic() + LONG
        while (message := self.consumer.poll(1)) is None or message.error():
            assert time.monotonic() < until
        self.consumer.commit(message, asynchronous=False)
        patient = {"transactional.id": self.name, "transaction.timeout.ms": 600_000}
        self.producer = confluent_kafka.Producer({**settings, **patient})
        self.producer.init_transactions(LONG)
        self.producer.begin_transaction()
        self.producer.produce(self.topic, b"open")
        assert self.producer.flush(LONG) == 0

    def close(self) -> None:
        """End the transaction and leave the group."""
        self.producer.abort_transaction(LONG)
        self.consumer.close()


@pytest.fixture(scope="module")
def hostile(world: World) -> Iterator[Hostile]:
    made = Hostile(world)
    yield made
    made.close()


def is_text(page: Page, text: str) -> None:
    """The text is shown as it is, and nothing was made of it."""
    expect(page.get_by_text(text).first).to_be_visible()
    assert page.locator("main img, main script, dialog img, dialog script").count() == 0
    assert page.title() != "1"


def test_names_that_are_html_are_text(open_page: OpenPage, world: World, hostile: Hostile) -> None:
    page = open_page(f"#/groups?filter={quote(world.run)}")
    is_text(page, hostile.name)
    page.get_by_role("link", name=hostile.name, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(hostile.name)
    expect(page.get_by_role("table", name="Members")).to_contain_text(hostile.name)
    is_text(page, hostile.name)
    page.goto(f"{page.url.split('#')[0]}#/transactions?filter={quote(world.run)}")
    is_text(page, hostile.name)
    page.goto(f"{page.url.split('#')[0]}#/topic?name={hostile.topic}&tab=groups")
    is_text(page, hostile.name)
    page.goto(f"{page.url.split('#')[0]}#/topic?name={hostile.topic}&tab=records")
    page.locator("tr[data-record]").first.click()
    expect(page.locator("tr.detail dl.headers dt")).to_have_text(HOSTILE)
    expect(page.locator("tr.detail dl.headers dd")).to_have_text(HOSTILE)
    is_text(page, HOSTILE)


def test_a_config_that_is_html_is_text(open_page: OpenPage, world: World) -> None:
    """A broker may have such a value; no property that a topic takes can."""
    page = open_page("#/topics")

    def with_html(route: Route) -> None:
        told = route.fetch(timeout=LONG_MS).json()
        for entry in told:
            entry["value"] = HOSTILE
        route.fulfill(json=told)

    page.route("**/api/topic/configs**", with_html)
    page.goto(f"{page.url.split('#')[0]}#/topic?name={world.orders}&tab=configs")
    is_text(page, HOSTILE)


def test_a_tail_that_is_paused_before_it_begins_keeps_its_place(open_page: OpenPage, hostile: Hostile) -> None:
    page = open_page(f"#/topic?name={hostile.topic}")
    held: list[Route] = []
    page.route("**/api/records/tail**", lambda route: held.append(route))
    page.get_by_role("button", name="Live").click()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".live-bar")).to_contain_text("pausing")
    eventually(lambda: page.evaluate("true") and bool(held), "the tail is asked for")
    held[0].continue_()
    expect(page.locator(".live-bar")).to_contain_text("paused")
    page.unroute("**/api/records/tail**")
    with page.expect_request(lambda request: "records/tail" in request.url) as asked:
        page.get_by_role("button", name="Go on").click()
    assert "goon=0%3A" in asked.value.url
    page.get_by_role("button", name="Leave live").click()
