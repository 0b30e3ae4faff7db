"""The protocol explorer's page: a node that is started anew, the clients that are connected, files of what is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.brokers import Broker
from compat_tests.console.accessibility import violations
from compat_tests.console.conftest import (
    NO_PLAYWRIGHT,
    SCREENSHOTS,
    OpenPage,
    RunningConsole,
    await_followed,
    running_console,
)
from kbroker.observe.explorer.exchange import Exchange
from kbroker.observe.explorer.lines import read_items
from kbroker.testing.cluster import RunningCluster, running_cluster
from kbroker.testing.replay import replay
from kbroker.tools.cli import main
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG, eventually

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from confluent_kafka import Producer
from playwright.sync_api import Download, Page, expect


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[RunningCluster]:
    """A node with an explorer whose address stays, and which is killed and started anew."""
    if broker.name == "apache":
        pytest.skip("the explorer is kbroker's own")
    (port,) = free_ports(1)
    with running_cluster(1, {"kbroker.explorer.listener": f"http://127.0.0.1:{port}"}) as running:
        running.explorer = port  # type: ignore[attr-defined]
        yield running


@pytest.fixture(scope="module")
def watching(cluster: RunningCluster) -> Iterator[RunningConsole]:
    """A console that watches it."""
    explorer = f"127.0.0.1:{cluster.explorer}"  # type: ignore[attr-defined]
    with running_console("-b", cluster.bootstrap_servers, "--explorer", explorer) as running:
        yield running


TOO_WIDE = """(box) => [box, ...box.querySelectorAll("td")].filter((each) => each.scrollWidth > each.clientWidth)
    .map((each) => each.textContent)"""


def writer(cluster: RunningCluster) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "writer", "linger.ms": 0})


def write(producer: Producer, topic: str, *values: str) -> None:
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
        assert producer.flush(LONG) == 0


def open_explorer(open_page: OpenPage, console: RunningConsole) -> Page:
    page = open_page("#/explorer", url=console.url)
    expect(page.get_by_role("heading", name="Protocol explorer")).to_be_visible()
    await_followed(page)
    return page


def exchanges_of(download: Download, file: Path) -> list[Exchange]:
    download.save_as(file)
    with file.open("rb") as lines:
        return [item for item in read_items(lines) if isinstance(item, Exchange)]


def test_who_is_connected_is_a_page(open_page: OpenPage, cluster: RunningCluster, watching: RunningConsole) -> None:
    page = open_page("#/overview", url=watching.url)
    producer = writer(cluster)
    write(producer, "seldom", "tea")
    page.get_by_role("link", name="Clients").click()
    expect(page.get_by_role("heading", name="Clients", exact=True)).to_be_visible()
    expect(page.locator(".clients tbody tr", has_text="writer").first).to_be_visible()
    # On a laptop each is a line, whole, with the columns that there is width for; of the chosen one all is told.
    assert page.get_by_role("region", name="Connected clients").evaluate(TOO_WIDE) == []
    requests = page.get_by_role("region", name="Requests")
    expect(requests).to_be_hidden()
    page.get_by_role("button", name="Only the requests of writer").first.click()
    expect(requests).to_be_visible()
    for told in ("User:ANONYMOUS", "no TLS", "PLAINTEXT", "-rdkafka-"):
        expect(page.locator(".client-facts")).to_contain_text(told)


def test_fetches_that_brought_nothing_are_one_row_and_a_request_opens_beside_the_list(
    open_page: OpenPage, watching: RunningConsole
) -> None:
    page = open_page("#/overview", url=watching.url, expect=(404,))  # nobody has made them

    def event(number: int, answer: str) -> str:
        told: dict[str, object] = dict.fromkeys(("principal", "peer", "run"), "")
        told |= {"groups": [], "topics": {}, "errors": [], "sequences": [], "is_internal": False, "took_ms": 1.0}
        told |= {"node": 1, "connection": 1, "exchange": number, "at_ms": 0, "client_id": "reader", "request": "Fetch"}
        return f"event: exchange\ndata: {json.dumps(told | {'answer': answer})}\n\n"

    body = "".join(event(number, "9 records" if number % 10 == 0 else "nothing new") for number in range(1, 101))
    page.route("**/explorer/events", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    page.goto(page.url.split("#")[0] + "#/explorer")
    rows = page.locator(".exchanges tbody tr")
    expect(rows).to_have_count(11)
    expect(rows.first).to_have_text("Show 90 fetches with nothing new of reader 90")
    expect(page.locator(".explorer .state")).to_contain_text("10 of 100 requests shown")
    rows.first.get_by_role("button").click()
    expect(rows).to_have_count(101)
    rows.first.get_by_role("button").click()
    expect(rows).to_have_count(11)
    list_of_them, details = page.get_by_role("region", name="Requests"), page.locator(".details")
    whole = page.evaluate("document.querySelector('.panes').clientWidth")
    box = list_of_them.bounding_box()
    assert box is not None and box["width"] == whole
    assert rows.evaluate_all("rows => new Set(rows.map((row) => row.clientHeight)).size") == 1, "one line a row"
    expect(details).to_be_hidden()
    rows.nth(1).get_by_role("button").click()
    expect(details).to_be_visible()
    details.get_by_role("button", name="Close the request").click()
    expect(details).to_be_hidden()


def test_a_request_that_is_looked_for_stays_among_more_than_are_kept(
    open_page: OpenPage, watching: RunningConsole
) -> None:
    """The page is told of 3,000 others after it, and keeps 2,000 to 2,199 requests."""
    page = open_page("#/overview", url=watching.url)

    def event(number: int, client: str) -> str:
        told: dict[str, object] = dict.fromkeys(("answer", "principal", "peer", "run"), "")
        told |= {"groups": [], "topics": {}, "errors": [], "sequences": [], "is_internal": False, "took_ms": 1.0}
        told |= {"node": 1, "connection": 1, "exchange": number, "at_ms": 0, "client_id": client, "request": "Fetch"}
        return f"event: exchange\ndata: {json.dumps(told)}\n\n"

    body = event(1, "seldom") + "".join(event(number, "often") for number in range(2, 3002))
    page.route("**/explorer/events", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    page.goto(page.url.split("#")[0] + "#/explorer?filter=seldom")
    state = page.locator(".explorer .state")
    expect(state).to_contain_text("1000 older ones are kept no more")
    expect(page.locator(".exchanges tbody tr")).to_have_count(1)
    page.get_by_label("Filter: words").fill("often")
    page.get_by_label("Filter: words").fill("seldom")
    expect(page.locator(".exchanges tbody tr")).to_have_count(1)


NOTE_WHAT_IS_DRAWN = """(() => {
  window.drawn = 0;
  const own = EventSource.prototype.addEventListener;
  EventSource.prototype.addEventListener = function (name, work) {
    const note = () => (window.drawn += name === "exchange");
    own.call(this, name, (event) => (work(event), requestAnimationFrame(() => setTimeout(note))));
  };
})()"""
"""The number of requests that the page was told of, a frame and a turn ago."""


def test_a_request_is_chosen_though_others_come_while_the_mouse_is_down(
    open_page: OpenPage, cluster: RunningCluster, watching: RunningConsole
) -> None:
    page = open_page("#/overview", url=watching.url)
    page.add_init_script(NOTE_WHAT_IS_DRAWN)
    page.goto(f"{watching.url}#/explorer?filter=produce+busy")
    page.reload()
    await_followed(page)
    producer = writer(cluster)
    write(producer, "busy", "tea")
    rows = page.locator(".exchanges tbody tr")
    expect(rows).to_have_count(1)
    rows.get_by_role("button").first.hover()
    page.mouse.down()
    before = page.evaluate("window.drawn")
    write(producer, "busy", "coffee")
    eventually(lambda: page.evaluate("window.drawn") > before, "the page is told of another request")
    page.mouse.up()
    expect(page.locator(".details table.fields").first).to_contain_text("value 'tea'")
    expect(rows).to_have_count(2)


def test_requests_of_a_node_that_was_started_anew_are_shown_beside_those_before(
    open_page: OpenPage, cluster: RunningCluster, watching: RunningConsole
) -> None:
    page = open_explorer(open_page, watching)
    write(writer(cluster), "drinks", "before")
    page.get_by_label("Filter: words").fill("produce drinks")
    rows = page.locator(".exchanges tbody tr")
    expect(rows).to_have_count(1)
    cluster.nodes[0].kill()
    state = page.locator(".explorer .state")
    expect(state).to_contain_text("127.0.0.1")
    cluster.nodes[0].start()
    expect(state).not_to_contain_text("127.0.0.1")
    write(writer(cluster), "drinks", "after")
    expect(rows).to_have_count(2)
    expect(state).to_contain_text(re.compile(r"2 of \d+ requests shown"))
    for row, value in ((1, "before"), (0, "after")):
        rows.nth(row).get_by_role("button").first.click()
        expect(page.locator("table.fields").first).to_contain_text(f"value '{value}'")


def test_a_client_is_followed_and_its_requests_are_saved_decoded_and_sent_again(
    open_page: OpenPage,
    cluster: RunningCluster,
    watching: RunningConsole,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    page = open_explorer(open_page, watching)
    producer = writer(cluster)
    write(producer, "hot", "tea", "coffee")
    page.get_by_label("Filter: words").fill("produce hot")
    rows = page.locator(".exchanges tbody tr")
    expect(rows).to_have_count(2)
    rows.first.get_by_role("button").first.click()
    told = page.locator(".details")
    expect(told.locator("table.fields").first).to_contain_text("value 'coffee'")
    found = re.search(r"Connection (\d+) of node 1", told.inner_text())
    assert found is not None
    # The client of this connection, in the table of those that are connected.
    page.get_by_label("Filter: words").fill("")
    page.locator("summary", has_text="Clients").focus()
    page.keyboard.press("Enter")
    client = page.get_by_role("button", name=f"Only the requests of writer, connection {found[1]} of node 1")
    expect(client).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d+ of \d+ connections shown"))).to_be_visible()
    row = page.locator(".clients tbody tr").filter(has=client)
    cells = row.locator("td").all_inner_texts()
    assert cells[1].startswith("confluent-kafka-python") and cells[3:5] == ["User:ANONYMOUS", "1"]
    assert re.fullmatch(r"(\S+ )?\d\d:\d\d:\d\d", cells[5])
    hidden = row.locator("td").evaluate_all("(cells) => cells.slice(8, 12).map((cell) => cell.textContent)")
    assert hidden == ["no TLS", "none", "PLAINTEXT", "client"]
    requests = int(cells[6].replace(",", ""))
    write(producer, "hot", "milk")

    def is_counted() -> bool:
        return int(row.locator("td").nth(6).inner_text().replace(",", "")) > requests

    eventually(is_counted, "its request is counted")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.screenshot(path=SCREENSHOTS / f"clients-{theme}.png")
        assert violations(page) == []
    client.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name=f"only connection {found[1]} of node 1")).to_be_visible()
    expect(rows.filter(has_not_text="writer")).to_have_count(0)
    # A file of what is shown, one of all.
    page.get_by_label("Filter: words").fill("produce hot")
    expect(rows).to_have_count(3)
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Save what fits").click()
    file = tmp_path / "saved.exchanges"
    saved = exchanges_of(downloading.value, file)
    assert len(saved) == 3 and {each.connection for each in saved} == {int(found[1])}
    expect(page.locator(".explorer .state")).to_contain_text("3 saved")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Save all").click()
    assert len(exchanges_of(downloading.value, tmp_path / "all.exchanges")) > 3
    assert main(["decode", str(file)]) == 0
    text = capfd.readouterr().out
    assert text.count("A producer hands over batches of records") == 3 and "value 'milk'" in text
    for each in (file, tmp_path / "all.exchanges"):
        assert main(["watch", "--read", str(each), "--client", "writer", "--api", "Produce"]) == 0
        assert "hot-0 1 record" in capfd.readouterr().out
    done = replay(file, cluster.bootstrap_servers)
    assert len(done) == 3 and not any(each.differences for each in done)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
