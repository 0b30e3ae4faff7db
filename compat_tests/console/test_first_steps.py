"""The way of somebody who has not read a manual: from the overview to what is wrong, by what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from compat_tests.console.conftest import NO_PLAYWRIGHT, SCREENSHOTS, OpenPage
from compat_tests.console.story import Story
from tests.patience import LONG_MS

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
pytest.importorskip("confluent_kafka")
from playwright.sync_api import expect


@pytest.fixture(scope="module")
def story(bootstrap: str) -> Iterator[Story]:
    """A consumer that fails at a record, and a transaction that stays open."""
    told = Story(bootstrap)
    told.begin()
    yield told
    told.end()


def test_from_the_overview_to_the_record_and_the_transaction(open_page: OpenPage, story: Story) -> None:
    page = open_page("#/overview")
    behind = page.get_by_role("table", name="Lagging groups")
    expect(behind.get_by_role("row", name=story.billing)).to_contain_text("stuck for", timeout=LONG_MS)
    # No green sentence is above a red row; one that has committed nothing is there, with its lag and its reason.
    health = page.locator(".health")
    expect(health).to_have_class(re.compile("warn"))
    expect(health).to_contain_text(re.compile(r"The brokers are well, \d groups are stuck"), timeout=LONG_MS)
    mailer = behind.get_by_role("row", name=story.mailer)
    expect(mailer).to_contain_text(re.compile(r"1\s*stuck for"), timeout=LONG_MS)
    expect(mailer).to_contain_text(f"{story.invoices}-0: an open transaction blocks readers of committed records")
    expect(mailer.get_by_role("link", name="See the transaction")).to_be_visible()
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "behind-light.png")
    behind.get_by_role("link", name=story.billing, exact=True).click()
    expect(page.get_by_role("heading", name="Why records wait")).to_be_visible()
    partition, offset = story.bad
    reason = page.locator(".troubles li", has_text=f"{story.orders}-{partition}")
    expect(reason).to_contain_text(f"{story.billing}-1 at 127.0.0.1 is stuck at offset {offset}")
    page.screenshot(path=SCREENSHOTS / "stands-light.png")
    reason.get_by_role("link", name="Look at record").click()
    first = page.locator("tr[data-record]").first
    expect(first).to_have_attribute("data-record", f"{partition}:{offset}")
    expect(first).to_contain_text("not JSON")
    expect(page.locator("tr.detail").get_by_label("Value", exact=True)).to_have_text(re.compile(r'^\{"id": 157'))
    expect(page.locator("tr.detail")).to_contain_text("It begins like JSON and is none")
    page.go_back()
    reason.get_by_role("link", name="Find values that are not JSON").click()
    expect(page.locator(".status")).to_contain_text("1 record shown")
    expect(first).to_have_attribute("data-record", f"{partition}:{offset}")
    # Where none fits, the page says where else there are records; an example of a filter is taken by a click.
    page.get_by_label("Filter", exact=True).fill("key is null and key is not null")
    page.get_by_label("Filter", exact=True).press("Enter")
    expect(page.locator(".status")).to_contain_text("There may be some in other partitions, or before that place.")
    page.get_by_role("button", name="How to filter").click()
    page.get_by_role("dialog").get_by_role("button", name="value is not json").click()
    page.get_by_label("Filter", exact=True).press("Enter")
    page.get_by_label("At offset").fill(str(offset + 1))
    page.get_by_label("Filter", exact=True).press("Enter")
    page.get_by_role("button", name="Read the whole topic").click()
    expect(page.locator(".status")).to_contain_text(re.compile(r"1 record shown \(300 records read"))

    page.goto(page.url.split("#")[0] + f"#/groups?filter={story.ledger}")
    page.get_by_role("link", name=f"Why {story.ledger} is stuck").click(timeout=LONG_MS)
    reason = page.locator(".troubles li", has_text=f"{story.payments}-0")
    expect(reason).to_contain_text("blocks readers of committed records at offset 10; 16 records wait", timeout=LONG_MS)
    reason.get_by_role("link", name="See the transaction").click()
    expect(page.get_by_label("Filter transactions by id")).to_have_value(story.settlement)
    expect(page.get_by_role("table", name="Transactions")).to_contain_text("Ongoing")
    # The records' own page says so, too.
    page.get_by_role("link", name=f"{story.payments}-0").click()
    expect(page.locator(".status")).to_contain_text("held back from readers of committed records")
    page.get_by_role("link", name="See which one").click()
    expect(
        page.get_by_role("table", name="Open transactions").get_by_role("link", name=story.settlement)
    ).to_be_visible()


def test_a_phone_shows_what_matters_of_groups(open_page: OpenPage, story: Story) -> None:
    """Their lag and progress, without a move to the right; and which page it is."""
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    page = open_page(f"#/groups?filter={story.billing}", expect=(409,), **phone)
    row = page.get_by_role("row", name=story.billing)
    expect(row.get_by_role("link", name=f"Why {story.billing} is stuck")).to_be_in_viewport(ratio=0.9, timeout=LONG_MS)
    expect(row.get_by_role("cell").filter(has_text=re.compile(r"^\d+$")).last).to_be_in_viewport(ratio=0.9)
    page.goto(f"{page.url.split('#')[0]}#/access")
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Access")).to_be_in_viewport(ratio=0.9)


def test_a_transaction_is_watched_as_it_commits(open_page: OpenPage, story: Story) -> None:
    page = open_page(f"#/transactions?filter={story.checkout}")
    course = page.get_by_role("table", name="Seen since this page was opened")
    expect(course).to_contain_text("has committed", timeout=LONG_MS)
    expect(course.get_by_role("row", name="has committed").first).to_contain_text(f"{story.shipments}-0")
