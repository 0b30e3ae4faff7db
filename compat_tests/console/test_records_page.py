"""The records' page: its row of controls, its columns, and what is done with one record."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from compat_tests.console.accessibility import violations
from compat_tests.console.conftest import NO_PLAYWRIGHT, OpenPage, RunningConsole, choose
from compat_tests.console.world import World, make_topics
from kbroker.client import Client
from kbroker.client.groups import commit_offsets, committed_offsets
from kbroker.client.topics import NewTopic
from kbroker.types import TopicPartition
from tests.patience import eventually

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from playwright.sync_api import Page, expect

ROW = "tr[data-record]"


def heads(page: Page) -> list[str]:
    return [text.strip() for text in page.get_by_role("table", name="Records").locator("th").all_inner_texts()]


def opened(open_page: OpenPage, topic: str, key: str) -> Page:
    """The page of a topic with the newest record of a key opened."""
    page = open_page(f"#/topic?name={topic}", permissions=["clipboard-read", "clipboard-write"])
    page.locator(ROW, has_text=key).first.click()
    expect(page.locator("tr.detail .code").first).to_be_visible()
    return page


def test_the_controls_are_one_row_and_the_value_has_the_room(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}")
    expect(page.locator(ROW).first).to_be_visible()
    controls = page.locator(".records-form").locator("input:visible, select:visible, button.primary:visible")
    tops = {round(controls.nth(index).bounding_box()["y"]) for index in range(controls.count())}  # type: ignore[index]
    assert controls.count() == 5 and max(tops) - min(tops) < 3
    value, region = (page.locator(each).first.bounding_box() for each in (f"{ROW} td.value", ".records"))
    assert value is not None and region is not None and value["width"] > region["width"] / 2
    assert heads(page)[0] == f"Time, {page.evaluate('Intl.DateTimeFormat().resolvedOptions().timeZone')}"
    expect(page.locator(f"{ROW} .json-name").first).to_have_text('"id"')
    page.get_by_label("Range").select_option("-5m")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".status")).to_contain_text("3 records shown")


def test_columns_are_chosen_and_made_wider_and_kept(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}")
    expect(page.locator(ROW).first).to_be_visible()
    choose(page, "View", "Columns")
    dialog = page.get_by_role("dialog")
    for name in ("$.customer.id", "header.trace"):
        dialog.get_by_label(name, exact=True).check()
    dialog.get_by_label("Partition", exact=True).uncheck()
    dialog.get_by_label("Another").fill("$.state")
    dialog.get_by_role("button", name="Show").click()
    assert violations(page) == []
    assert heads(page)[1:] == ["Offset", "Key", "$.customer.id", "header.trace", "$.state", "Value"]
    row = page.locator(ROW, has_text="order-19").first
    assert row.locator("td").nth(3).inner_text() == "19" and row.locator("td").nth(5).inner_text() == '"sent"'
    grip = page.get_by_role("separator", name="Width of Key")
    before = int(grip.get_attribute("aria-valuenow") or 0)
    grip.focus()
    page.keyboard.press("ArrowRight")
    assert grip.get_attribute("aria-valuenow") == str(before + 16)
    box = grip.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(box["x"] + 44, box["y"] + 4)
    page.mouse.up()
    assert grip.get_attribute("aria-valuenow") == str(before + 56)
    page.reload()
    expect(page.locator(ROW).first).to_be_visible()
    assert heads(page)[3] == "$.customer.id" and grip.get_attribute("aria-valuenow") == str(before + 56)


def test_a_record_has_a_link_a_copy_and_a_file(open_page: OpenPage, world: World, tmp_path: Path) -> None:
    page = opened(open_page, world.orders, "order-19")
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text(re.compile(r"CreateTime\s*\d{4}-\d\d-\d\d [\d:.]+ [+-]\d\d:\d\d"))
    expect(detail).to_contain_text(re.compile(r"UTC\s*[\d-]+T[\d:.]+Z"))
    page.get_by_role("button", name="Copy as JSON").click()
    expect(page.locator(".toast")).to_have_text("copied")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert copied["topic"] == world.orders and copied["value"]["customer"]["id"] == 19
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download value").click()
    assert json.loads(Path(downloading.value.path()).read_text()) == copied["value"]
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".toast")).to_have_count(2)
    page.goto(page.evaluate("navigator.clipboard.readText()"))
    expect(page.locator(ROW).first).to_have_attribute("data-record", f"{copied['partition']}:{copied['offset']}")
    expect(page.locator("tr.detail .code").first).to_be_visible()


def test_a_record_is_sent_again_with_changes(open_page: OpenPage, world: World) -> None:
    topic = f"again-{world.run[::-1]}"
    make_topics(world.bootstrap, NewTopic(topic, 1, 1, {"retention.ms": "86400000"}))
    page = open_page(f"#/topic?name={topic}")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key", exact=True).fill("k-1")
    dialog.get_by_label("Value", exact=True).fill('{"cut": ')
    dialog.get_by_label("Headers").fill("trace=7")
    dialog.get_by_role("button", name="Produce").click()
    page.locator(ROW).first.click()
    page.get_by_role("button", name="Send again").click()
    assert dialog.get_by_label("Key", exact=True).input_value() == "k-1"
    dialog.get_by_label("Value", exact=True).fill('{"cut": false}')
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(ROW)).to_have_count(2)
    page.locator(ROW).first.click()
    expect(page.locator("tr.detail")).to_contain_text('"cut": false')
    expect(page.locator("tr.detail .headers")).to_contain_text("7")


def test_a_record_is_skipped_for_one_group(open_page: OpenPage, world: World, console: RunningConsole) -> None:
    """A stranger's way: from the group's page to the record, and there."""
    group, topic = f"skips-{world.run[::-1]}", world.orders
    with Client(world.bootstrap) as client:
        assert not commit_offsets(client, group, {TopicPartition(topic, number): 50 for number in range(3)})
    page = open_page(f"#/group?group={group}")
    page.get_by_role("link", name=f"Look at the next record of {topic}-1").first.click()
    expect(page.locator(ROW).first).to_have_attribute("data-record", "1:50")
    page.get_by_role("button", name="Skip for a group").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("status")).to_contain_text(f"{group} goes on at offset 51 instead of 50")
    assert violations(page) == []
    dialog.get_by_role("button", name="Skip", exact=True).click()
    expect(page.locator(".toast")).to_contain_text(f"1 offset of group {group} is reset")
    with Client(world.bootstrap) as client:
        offsets = committed_offsets(client, group)
    assert [offsets[TopicPartition(topic, number)].offset for number in range(3)] == [50, 51, 50]
    eventually(lambda: any("reset-offsets" in line and group in line for line in console.audit), "it is audited")
    # A record further on: what it would lose is said before.
    page.locator(ROW).nth(5).click()
    page.locator("tr.detail").last.get_by_role("button", name="Skip for a group").click()
    expect(dialog.get_by_role("status")).to_contain_text("4 offsets before it would be skipped, too.")


def test_filters_are_saved_by_name_and_ask_for_types(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}", expect=(400,))
    text = page.get_by_label("Filter", exact=True)
    text.fill("$.total is not number and value is not null")
    choose(page, "Saved", "Save this filter")
    page.get_by_role("dialog").get_by_label("Name").fill("no number")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    page.reload()
    page.get_by_role("button", name="Saved").click()
    assert violations(page) == []
    page.locator(".menu").get_by_role("button", name="no number", exact=True).click()
    expect(page.locator(".status")).to_contain_text("2 records shown")
    text.fill("key matches ^order-1[0-3]$ and value is json")
    page.keyboard.press("Enter")
    expect(page.locator(".status")).to_contain_text("records shown (903")
    keys = set(page.locator(f"{ROW} td.key").all_inner_texts())
    assert keys == {"order-10", "order-11", "order-12", "order-13"}
    text.fill("total > 3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("a member of a JSON value looks like $.total = 42")
    page.get_by_role("button", name="Saved").click()
    page.get_by_role("button", name="Forget no number").click()
    page.get_by_role("button", name="Saved").click()
    expect(page.locator(".menu").get_by_role("button", name="no number")).to_have_count(0)


def test_a_phone_shows_values_and_folds_the_controls(open_page: OpenPage, world: World) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    page = open_page(f"#/topic?name={world.orders}", **phone)
    value = page.locator(f"{ROW} td.value").nth(3)
    expect(value).to_be_in_viewport()
    expect(page.get_by_label("Partitions")).to_be_hidden()
    page.get_by_role("button", name="From, range").tap()
    expect(page.get_by_label("Partitions")).to_be_visible()
    page.locator(ROW).nth(3).tap()
    expect(page.locator("tr.detail .code").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
