"""The tasks of each page, done in the browser."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from compat_tests.brokers import Broker
from compat_tests.console.conftest import NO_PLAYWRIGHT, OpenPage, RunningConsole, choose
from compat_tests.console.packing import Packing
from compat_tests.console.world import HOSTILE, World, make_topics
from kbroker.client.topics import NewTopic
from tests.patience import LONG_MS, eventually

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from playwright.sync_api import Page, Route, expect


def rows(page: Page, table: str) -> list[list[str]]:
    """The texts of a table's rows, once it has any, all of one moment: a page that lives puts others in their place."""
    found = page.get_by_role("table", name=table, exact=True).locator("tbody tr:not(.space)")
    expect(found.first).to_be_visible()
    texts: list[list[str]] = found.evaluate_all(
        "rows => rows.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.innerText.trim()))"
    )
    return texts


def test_the_overview_says_how_the_cluster_is(open_page: OpenPage) -> None:
    page = open_page("#/overview")
    expect(page.get_by_role("heading", name="The cluster is well")).to_be_visible()
    brokers = rows(page, "Brokers")
    assert "serves" in brokers[0][2]
    eventually(lambda: any(row[1] == "leader" for row in rows(page, "Metadata quorum")), "the quorum has a leader")
    page.get_by_role("table", name="Brokers").get_by_role("link").first.click()
    expect(page.get_by_role("heading", name=re.compile(r"^Broker \d+$"))).to_be_visible()
    page.get_by_label("Filter configs").fill("log.retention.ms")
    expect(page.get_by_role("table", name="Configs")).to_contain_text("log.retention.ms")


def test_the_overview_does_not_judge_groups_that_are_still_watched(open_page: OpenPage) -> None:
    page = open_page("#/topics")

    def watched(route: Route) -> None:
        told = route.fetch(timeout=LONG_MS).json()
        row = {"group": "new", "kind": "unknown", "lag": 3, "waiting": 3, "reasons": [], "needs_attention": False}
        told["rows"] = [{**row, "since": None, "course": [], "topics": {}, "members": 1, "state": "Stable"}]
        route.fulfill(json=told)

    page.route("**/api/groups/lags**", watched)
    page.get_by_role("link", name="Overview").click()
    expect(page.locator(".health")).to_contain_text("1 lagging group is being watched")
    expect(page.locator(".health")).not_to_contain_text("No group is stuck")


def test_topics_are_found_in_the_list_and_in_the_tree(open_page: OpenPage, world: World) -> None:
    page = open_page("#/topics")
    page.keyboard.press("/")
    page.keyboard.type(f"{world.run} orders")
    expect(page.get_by_role("status").first).to_have_text(re.compile(r"^1 of "))
    [row] = rows(page, "Topics")
    assert row[:4] == [world.orders, "in sync", "3", "1"]
    page.get_by_label("Filter topics by name").fill(world.run)
    page.get_by_role("button", name="Tree").click()
    page.locator("summary", has_text=f"shop-{world.run}.").click()
    page.locator("summary", has_text="eu.").click()
    page.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", name=world.orders)).to_be_visible()


def test_the_list_is_sorted_by_its_heads(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topics?filter={world.run}")
    expect(page.get_by_role("link", name=world.orders)).to_be_visible()
    page.get_by_role("button", name="Size").click()
    expect(page.locator("tr[aria-rowindex='2']").get_by_role("link").first).to_have_text(world.orders)
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"


def test_the_list_tells_cleanup_the_last_write_and_the_lag_of_groups(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topics?filter={world.run}")
    row = page.get_by_role("row", name=world.orders)
    expect(row).to_contain_text(re.compile(r"delete\s*\d+ (s|min|h) ago"))
    expect(page.get_by_role("row", name=world.empty)).to_contain_text(re.compile(r"delete\s*(never|\d+ (s|min|h) ago)"))
    row.get_by_role("link", name=re.compile(r"Lag of \d+ groups?: [\d,]+")).click()
    expect(page.get_by_role("table", name="Groups with offsets of this topic")).to_contain_text(world.group)


def test_traffic_is_drawn(open_page: OpenPage, world: World) -> None:
    """On the overview and beside a topic's partitions, from the second look on."""
    page = open_page("#/overview")
    chart = page.get_by_role("img", name=re.compile("Bytes . s, .* at most"))
    expect(chart).to_be_visible()
    page.goto(f"{page.url.split('#')[0]}#/topic?name={world.orders}&tab=partitions")
    expect(chart).to_be_visible()


def test_partitions_and_configs_of_a_topic(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}&tab=partitions")
    expect(page.get_by_role("table", name="Partitions")).to_be_visible()
    found = rows(page, "Partitions")
    assert sum(int(row[4].replace(",", "")) for row in found) == 903
    page.get_by_role("link", name="Configs").click()
    expect(page.get_by_role("row", name=re.compile("retention.ms 86400000"))).to_contain_text("set on the topic")


def test_records_are_read_newest_first_and_on(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}")
    status = page.locator(".status")
    expect(status).to_contain_text("100 records shown")
    first = page.locator("tr[data-record]").first
    expect(first).to_contain_text("order-1")
    expect(first).to_contain_text("null")
    page.get_by_role("button", name="More").click()
    expect(status).to_contain_text("200 records shown")
    places = page.locator("tr[data-record]").evaluate_all("rows => rows.map(row => row.dataset.record)")
    assert len(set(places)) == 200


def test_records_are_read_from_an_offset_a_time_and_one_partition(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}&from=offset&at=10&partitions=1")
    expect(page.locator("tr[data-record]").first).to_have_attribute("data-record", "1:10")
    page.get_by_label("From", exact=True).select_option("earliest")
    page.get_by_label("Range").select_option("times")
    at = page.evaluate(
        "ms => new Date(ms - new Date().getTimezoneOffset() * 60000).toISOString().slice(0, 19)",
        world.now - 3_600_000 + 600_000,
    )
    page.get_by_label("Since").fill(at)
    page.get_by_label("Partitions").fill("")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".status")).to_contain_text("100 records shown")
    page.locator("tr[data-record]").first.click()
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text('"id": ')
    number = int(re.search(r'"id": (\d+)', detail.inner_text())[1])  # type: ignore[index]
    assert 598 <= number <= 601
    # A record a second: ten of them until ten seconds later.
    until = page.evaluate("at => new Date(Date.parse(at + 'Z') + 10000).toISOString().slice(0, 19)", at)
    page.get_by_label("Until").fill(until)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".status")).to_contain_text("10 records shown")


def test_a_filter_finds_the_records_that_fit(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}", expect=(400,))
    page.get_by_label("Filter", exact=True).fill('$.state = paid and $.customer.id = 7 or value ~ "onerror"')
    page.keyboard.press("Enter")
    expect(page.locator(".status")).to_contain_text("903 records read")
    values = page.locator("tr[data-record] td.value").all_inner_texts()
    assert len(values) == 9
    assert values[0] == f"not JSON {HOSTILE}"
    assert all(json.loads(value)["state"] == "paid" for value in values[1:])
    page.get_by_label("Filter", exact=True).fill("$.state = ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("has no value after it")


def test_a_record_is_shown_as_json_text_and_bytes(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}")
    page.locator("tr[data-record]", has_text="t-").first.or_(page.locator("tr[data-record]").nth(3)).first.click()
    value = page.locator("tr.detail").get_by_label("Value", exact=True)
    expect(value).to_contain_text('"customer": {\n')
    page.locator("tr.detail").get_by_role("group", name="How the value is shown").get_by_role(
        "button", name="Hex"
    ).click()
    expect(value).to_contain_text("000000  7b 22 69 64")
    page.locator("tr[data-record]", has_text="bytes").first.click()
    expect(page.locator("tr.detail").first).to_contain_text("000010  10 11 12 13")


def test_hostile_records_are_only_text(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}")
    page.locator("tr[data-record]", has_text="hostile").first.click()
    expect(page.locator("tr.detail")).to_contain_text(HOSTILE)
    assert page.locator("main img, main script").count() == 0
    assert world.orders in page.title()


def test_the_latest_record_of_each_key(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}")
    page.get_by_role("button", name="View").click()
    page.get_by_label("latest per key").check()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".status")).to_contain_text("42 records shown")
    keys = page.locator("tr[data-record] td.key").all_inner_texts()
    assert len(set(keys)) == 42


def test_masked_parts_are_shown_nowhere(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.masked}")
    expect(page.locator(".status")).to_contain_text("masked")
    row = page.locator("tr[data-record]").first
    expect(row).to_contain_text("12.5")
    row.click()
    expect(page.locator("tr.detail")).to_contain_text('"card": "•••"')
    text = page.content()
    with page.expect_download() as downloading:
        choose(page, "Export", "Export JSON lines")
    text += Path(downloading.value.path()).read_text()
    assert "number-4111" not in text and "hidden-header" not in text
    page.get_by_label("Filter", exact=True).fill("number-4111")
    page.keyboard.press("Enter")
    expect(page.locator(".status")).to_contain_text("No record fits")


def test_records_are_exported(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}")
    page.get_by_label("Filter", exact=True).fill("$.state = sent")
    with page.expect_download() as downloading:
        choose(page, "Export", "Export JSON lines")
    lines = [json.loads(line) for line in Path(downloading.value.path()).read_text().splitlines()]
    assert len(lines) == 300
    assert downloading.value.suggested_filename == f"{world.orders}.jsonl"
    page.get_by_label("Filter", exact=True).fill("")
    with page.expect_download() as downloading:
        choose(page, "Export", "Export CSV")
    table = list(csv.reader(io.StringIO(Path(downloading.value.path()).read_text(), newline="")))
    assert len(table) == 904
    assert table[0] == [
        *("partition", "offset", "timestamp", "key", "value", "headers", "key_encoding", "value_encoding")
    ]
    assert any(row[4] == HOSTILE for row in table)
    page.get_by_role("button", name="View").click()
    page.get_by_label("latest per key").check()
    page.keyboard.press("Escape")
    with page.expect_download() as downloading:
        choose(page, "Export", "Export JSON lines")
    assert len(Path(downloading.value.path()).read_text().splitlines()) == 42


def test_parquet_is_exported_and_imported(open_page: OpenPage, world: World, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    copies = f"parquet-{world.run[::-1]}"
    make_topics(world.bootstrap, NewTopic(copies, 3, 1, {"retention.ms": "86400000"}))
    page = open_page(f"#/topic?name={world.orders}")
    with page.expect_download() as downloading:
        choose(page, "Export", "Export Parquet")
    file = tmp_path / downloading.value.suggested_filename
    downloading.value.save_as(file)
    assert file.name == f"{world.orders}.parquet"
    page.goto(f"{page.url.split('#')[0]}#/topic?name={copies}")
    choose(page, "Actions", "Import")
    page.get_by_label("File", exact=True).set_input_files(file)
    page.get_by_role("dialog").get_by_role("button", name="Import").click()
    expect(page.get_by_text(f"903 records stored in {copies}")).to_be_visible()


def test_what_keeps_an_export_from_beginning_is_told(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}", expect=(404,))
    page.get_by_label("Partitions").fill("7")
    choose(page, "Export", "Export CSV")
    expect(page.locator(".toast")).to_contain_text(f"Nothing is exported: topic {world.orders} has no partition 7")


def test_the_course_of_a_lag_is_drawn_and_told(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/group?group={world.group}")
    chart = page.get_by_role("img", name=re.compile("Lag in records, .* at most"))
    expect(chart).to_be_visible()
    page.get_by_text("As a table").first.click()
    expect(page.get_by_role("table", name="Trend of the lag").locator("tbody tr").first).to_be_visible()
    page.goto(f"{page.url.split('#')[0]}#/groups?filter={world.group}")
    expect(page.get_by_role("table", name="Groups").locator("svg.spark")).to_be_visible()


def test_records_are_replayed_and_imported(open_page: OpenPage, world: World, tmp_path: Path) -> None:
    copies = f"copies-{world.run[::-1]}"
    make_topics(world.bootstrap, NewTopic(copies, 3, 1, {"retention.ms": "86400000"}))
    page = open_page(f"#/topic?name={world.orders}")
    page.get_by_label("Filter", exact=True).fill("$.id < 30")
    choose(page, "Export", "Replay")
    page.get_by_label("To topic").fill(copies)
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    expect(page.get_by_text(f"30 records sent to {copies}")).to_be_visible()
    rows_of_csv = "".join(f'"{number}\n",{number % 3}\r\n' for number in range(100_000))
    file = tmp_path / "records.csv"
    file.write_text(f"value,partition\r\n{rows_of_csv}", newline="")
    page.goto(f"{page.url.split('#')[0]}#/topic?name={copies}&tab=records")
    expect(page.locator(".status")).to_contain_text("30 records shown")
    choose(page, "Actions", "Import")
    page.get_by_label("File", exact=True).set_input_files(file)
    page.get_by_role("dialog").get_by_role("button", name="Import").click()
    expect(page.get_by_text(f"100,000 records stored in {copies}")).to_be_visible(timeout=2 * LONG_MS)


def test_a_live_tail_is_paused_and_goes_on_without_a_loss(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.live}")
    page.get_by_role("button", name="Live").click()
    expect(page.locator(".live-bar")).to_contain_text("records/s")
    world.click("first click")
    expect(page.locator("tr[data-record]")).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    world.click("while paused 1", "while paused 2")
    expect(page.locator(".live-bar")).to_contain_text("paused")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("tr[data-record]")).to_have_count(3)
    world.click(*(f"burst {number}" for number in range(3000)))
    expect(page.locator("tr.gap").first).to_contain_text("not shown")
    expect(page.locator(".live-bar")).to_contain_text("too many at once")

    def all_told() -> bool:
        counts = re.search(r"([\d,]+) shown(?: · ([\d,]+) not shown)?", page.locator(".live-bar").inner_text())
        return counts is not None and sum(int((each or "0").replace(",", "")) for each in counts.groups()) == 3003

    eventually(all_told, "each record is shown or counted")
    page.get_by_role("button", name="Leave live").click()
    expect(page.locator(".status")).to_contain_text("100 records shown")


def test_the_lag_of_a_group_and_its_reset(open_page: OpenPage, world: World, console: RunningConsole) -> None:
    page = open_page("#/groups")
    page.get_by_label("Filter groups by name").fill(world.group)
    page.get_by_role("link", name=world.group, exact=True).click()
    expect(page.get_by_role("heading", name=world.group)).to_be_visible()

    def is_told() -> bool:
        before = rows(page, "Partitions")
        return (
            [row[2] for row in before] == ["100"] * 3
            and sum(int(row[4].replace(",", "") or "0") for row in before) == 603
            and all(re.fullmatch(r"\d+ (min|h|s)|1 h \d+ min", row[5]) for row in before)
        )

    eventually(is_told, "the lags of three partitions, in records and in time")
    # A list that was left, and is drawn late, is not what the address says.
    late = "async () => (await import('/js/router.js')).note('groups', {filter: 'late'})"
    address = page.url
    page.evaluate(late)
    assert page.url == address
    page.get_by_role("button", name="Reset offsets").click()
    page.go_back()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.go_forward()
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("To", exact=True).select_option("time")
    page.get_by_role("button", name="Preview").click()  # an hour ago, as the field says at first
    expect(page.get_by_role("table", name="What would change")).to_be_visible()
    page.get_by_label("To", exact=True).select_option("shift")
    page.get_by_label("Number").fill("-40")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("table", name="What would change")).to_be_visible()
    assert [row[2:5] for row in rows(page, "What would change")] == [["100", "60", "-40"]] * 3
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("3 offsets")
    eventually(lambda: [row[2] for row in rows(page, "Partitions")] == ["60"] * 3, "the offsets are new")

    def is_audited() -> bool:
        return any('"action": "reset-offsets"' in line and '"outcome": "done"' in line for line in console.audit)

    eventually(is_audited, "it is audited")
    # The topic tells its groups, too.
    page = open_page(f"#/topic?name={world.orders}&tab=groups")
    expect(page.get_by_role("table", name="Groups with offsets of this topic")).to_contain_text(world.group)


def test_who_holds_which_record_of_a_share_group(open_page: OpenPage, bootstrap: str, broker: Broker) -> None:
    packing = Packing(bootstrap)
    try:
        _see_who_holds_which(open_page, packing, broker)
    finally:
        packing.close()


def _see_who_holds_which(open_page: OpenPage, packing: Packing, broker: Broker) -> None:
    page = open_page(f"#/group?group={packing.group}")
    expect(page.get_by_role("heading", name="In flight")).to_be_visible()
    if broker.name == "apache":
        expect(page.get_by_text("The broker that leads 1 partition does not tell what is in flight")).to_be_visible()
        return

    def told() -> list[list[str]]:
        """Offsets, records, state, deliveries and client of each range."""
        return [[*row[2:6], row[6].split("\n")[0]] for row in rows(page, "In flight")]

    held = "held"
    begun = [
        ["0", "1", held, "1", "packer-1"],
        ["1", "1", held, "2", "packer-2"],
        ["2–3", "2", held, "1", "packer-1"],
        ["4–5", "2", held, "1", "packer-2"],
    ]
    eventually(lambda: told() == begun, "all that is held")
    [first, *_] = rows(page, "In flight")
    assert first[:2] == [packing.topic, "0"] and first[7] == "127.0.0.1" and re.fullmatch(r"\d+ (s|min)", first[8])
    packing.finish()
    rest = [["1", "1", held, "2", "packer-2"], ["4–5", "2", held, "1", "packer-2"]]
    eventually(lambda: told() == rest, "what is accepted is not in flight any more")
    page.get_by_role("link", name="4–5").click()
    expect(page.get_by_role("heading", name=packing.topic)).to_be_visible()


def test_a_topic_is_created_filled_changed_and_deleted(
    open_page: OpenPage, world: World, console: RunningConsole
) -> None:
    name = f"made-{world.run[::-1]}"
    page = open_page("#/topics", expect=(409,))
    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Partitions", exact=True).fill("2")
    page.get_by_label("Other configs").fill("cleanup.policy=compact")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    page.get_by_role("button", name="Produce").click()
    page.get_by_label("Key", exact=True).fill("k")
    page.get_by_label("Value", exact=True).fill("produced here")
    page.get_by_role("dialog").get_by_role("button", name="Produce").click()
    expect(page.locator("tr[data-record]")).to_contain_text("produced here")
    page.get_by_role("link", name="Configs").click()
    page.get_by_role("button", name="Change cleanup.policy").click()
    page.get_by_label("Value", exact=True).fill("nonsense")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("cleanup.policy")
    page.get_by_label("Value", exact=True).fill("delete")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("row", name=re.compile(r"cleanup\.policy delete"))).to_be_visible()
    choose(page, "Actions", "Add partitions")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".page-head")).to_contain_text("3 partitions")
    choose(page, "Actions", "Delete")
    page.get_by_role("dialog").get_by_role("textbox").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    eventually(lambda: any('"delete-topic"' in line and name in line for line in console.audit), "it is audited")
    actions = [json.loads(line.removeprefix("audit "))["action"] for line in console.audit if name in line]
    assert actions == [
        "create-topic",
        "produce",
        "change-topic-config",
        "change-topic-config",
        "add-partitions",
        "delete-topic",
    ]


def test_an_open_transaction_is_seen_and_aborted(open_page: OpenPage, world: World) -> None:
    world.open_transaction()
    page = open_page(f"#/topic?name={world.empty}&tab=groups")
    expect(page.get_by_role("table", name="Open transactions")).to_be_visible()
    page = open_page("#/transactions")
    page.get_by_label("Filter transactions by id").fill(world.transaction)
    expect(page.get_by_role("table", name="Transactions")).to_contain_text(f"{world.empty}-0")
    page.get_by_role("button", name=f"Abort {world.transaction}").click()
    page.get_by_role("dialog").get_by_role("textbox").fill(world.transaction)
    page.get_by_role("dialog").get_by_role("button", name="Abort", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("is aborted")
    expect(page.get_by_role("table", name="Transactions")).to_contain_text(re.compile("Empty|CompleteAbort"))


def test_the_log_is_looked_into(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}")
    page.get_by_role("link", name="Log", exact=True).click()
    expect(page.get_by_role("table", name="Batches")).to_be_visible()
    page.get_by_role("button", name="Bytes of the batch at offset 0", exact=True).focus()
    page.keyboard.press("Enter")
    bytes_of = page.get_by_role("table", name="Bytes of the batch at offset 0", exact=True)
    expect(bytes_of.get_by_role("row", name=re.compile("record 0 offset 0"))).to_be_visible()
    expect(bytes_of).to_contain_text("producer id")
    page.keyboard.press("Enter")
    expect(bytes_of).to_have_count(0)
    producers = rows(page, "Producers")
    assert producers and all(row[5] == "none open" for row in producers)
    expect(page.get_by_text("start it with --data DIR")).to_be_visible()
    page.get_by_label("From offset").fill("99999")
    page.keyboard.press("Enter")
    expect(page.get_by_text("There are no batches here.")).to_be_visible()


def test_moves_are_seen_before_they_are_done(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}&tab=partitions", expect=(400,))
    choose(page, "Actions", "Move partitions")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Look at the preview first")
    dialog.get_by_label("Partitions").fill("0,2")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("status")).to_contain_text("would change")
    # A preview that comes when the fields have changed is not shown, and is not what is done.
    held: list[Route] = []
    page.route("**/api/topic/move?**", lambda route: held.append(route))
    dialog.get_by_role("button", name="Preview").click()
    eventually(lambda: page.evaluate("true") and bool(held), "the preview is asked for")
    dialog.get_by_label("Partitions").fill("7-9")
    with page.expect_response(re.compile("/api/topic/move")):
        held[0].continue_()
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Look at the preview first")
    expect(dialog.get_by_role("status")).to_be_empty()
    page.unroute_all(behavior="ignoreErrors")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("status")).to_contain_text(f"topic {world.orders} has no partition 7")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_access_is_told_where_there_are_no_rules(open_page: OpenPage) -> None:
    page = open_page("#/access", expect=(409,))
    expect(page.get_by_text("The cluster has no authorizer")).to_be_visible()
    expect(page.get_by_text("There are no such users.")).to_be_visible()


def test_code_for_spark_names_what_is_shown(open_page: OpenPage, world: World) -> None:
    page = open_page(f"#/topic?name={world.orders}&from=offset&at=10&partitions=1")
    choose(page, "Export", "Code for Spark")
    code = page.get_by_role("dialog").locator("pre").inner_text()
    compile(code, "spark.py", "exec")
    assert f'"{world.orders}": {{"1": 10}}' in code
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
