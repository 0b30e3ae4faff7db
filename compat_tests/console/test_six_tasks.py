"""Six tasks by somebody who knows nothing but what the page says, each within a minute; their times are told."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from compat_tests.console.conftest import NO_PLAYWRIGHT, SCREENSHOTS, OpenPage
from compat_tests.console.story import Story
from kbroker.client import Client
from kbroker.client.groups import committed_offsets
from kbroker.types import TopicPartition
from tests.patience import LONG_MS

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
pytest.importorskip("confluent_kafka")
from playwright.sync_api import expect

MOST_SECONDS = 60.0


def test_six_tasks_take_less_than_a_minute_each(open_page: OpenPage, bootstrap: str) -> None:
    story = Story(bootstrap)
    story.begin()
    partition, offset = story.bad
    taken: dict[str, float] = {}

    @contextmanager
    def task(name: str) -> Iterator[None]:
        began = time.monotonic()
        page.goto(page.url.split("#")[0] + "#/overview")
        yield
        taken[name] = round(time.monotonic() - began, 1)

    page = open_page("#/overview", expect=(409,))
    pages = page.get_by_role("navigation", name="Pages")
    behind = page.get_by_role("table", name="Lagging groups")
    # What is wrong has to have lasted for a while before it is called so; that is not the reader's time.
    for group in (story.billing, story.mailer):
        expect(behind.get_by_role("row", name=group)).to_contain_text("stuck for", timeout=LONG_MS)

    with task("a stuck group, and why"):
        behind.get_by_role("link", name=story.billing, exact=True).click()
        reason = page.locator(".troubles li", has_text=f"{story.orders}-{partition}")
        expect(reason).to_contain_text(f"is stuck at offset {offset}")
    with task("the bad record"):
        behind.get_by_role("link", name=story.billing, exact=True).click()
        reason.get_by_role("link", name="Look at record").click()
        expect(page.locator("tr[data-record]").first).to_contain_text("not JSON")
        expect(page.locator("tr.detail")).to_contain_text("It begins like JSON and is none")
    with task("a transaction as it commits"):
        pages.get_by_role("link", name="Transactions", exact=True).click()
        page.get_by_label("Filter transactions by id").fill(story.checkout)
        course = page.get_by_role("table", name="Seen since this page was opened")
        expect(course.get_by_role("row", name="has committed").first).to_contain_text(f"{story.shipments}-0")
    with task("a hung transaction, from the overview, ended"):
        behind.get_by_role("row", name=story.mailer).get_by_role("link", name="See the transaction").click()
        page.get_by_role("button", name=f"Abort {story.settlement}").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label(re.compile("^Type")).fill(story.settlement)
        dialog.get_by_role("button", name="Abort", exact=True).click()
        expect(page.get_by_role("table", name="Transactions")).to_contain_text(re.compile("Empty|CompleteAbort"))
    with task("a topic that keeps its records for a week"):
        pages.get_by_role("link", name="Topics", exact=True).click()
        page.get_by_role("button", name="New topic").click()
        name = f"weekly-{story.billing}"
        dialog.get_by_label("Name", exact=True).fill(name)
        dialog.get_by_label("Retention time").fill("7d")
        dialog.get_by_role("button", name="Create").click()
        expect(page.get_by_role("heading", name=name)).to_be_visible()
        page.get_by_role("link", name="Configs", exact=True).click()
        expect(page.get_by_role("row", name=re.compile(r"retention\.ms 604800000"))).to_contain_text("set on the topic")
    story.end()  # offsets of a group are changed while its program stands still
    with task("a record skipped for one group"):
        pages.get_by_role("link", name="Groups", exact=True).click()
        page.get_by_role("link", name=story.billing, exact=True).click()
        page.get_by_role("link", name=f"Look at the next record of {story.orders}-{partition}").first.click()
        page.get_by_role("button", name="Skip for a group").click()
        expect(dialog.get_by_label("Group")).to_have_value(story.billing)
        dialog.get_by_role("button", name="Skip", exact=True).click()
        expect(page.locator(".toast").last).to_contain_text(f"1 offset of group {story.billing} is reset")
    with Client(bootstrap) as client:
        assert committed_offsets(client, story.billing)[TopicPartition(story.orders, partition)].offset == offset + 1
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / "six-tasks.json").write_text(json.dumps(taken, indent=1) + "\n")
    assert len(taken) == 6 and max(taken.values()) < MOST_SECONDS, taken
