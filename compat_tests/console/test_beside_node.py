"""The console that a node brings along, in the browser: the protocol explorer, the files of the log, faults."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from compat_tests.console.accessibility import violations
from compat_tests.console.conftest import NO_PLAYWRIGHT, SCREENSHOTS, OpenPage, await_followed
from tests.patience import LONG

pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
from confluent_kafka import Consumer, Producer
from playwright.sync_api import expect

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


class Node:
    """``kbroker start --console``, or ``kbroker faults --console``, as a process."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kbroker", *words, "--port", "0", "--console", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.bootstrap = self._process.stdout.readline().removeprefix("kbroker ready: ").strip()
        found = re.search(r"http://\S+/", self._process.stdout.readline())
        assert found is not None, self._process.communicate(timeout=LONG)[1]
        self.url = found.group()

    def work(self, topic: str) -> None:
        """A record that is written, and read by a group."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "client.id": "writer"})
        producer.produce(topic, b"<b>tea</b>", b"drinks")
        assert producer.flush(LONG) == 0
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "shop", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        assert len(consumer.consume(1, LONG)) == 1
        consumer.close()

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(LONG) == 0
        self._process.communicate()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    data = str(tmp_path_factory.mktemp("node") / "data")
    running = Node("start", "--data-dir", data, "--explorer", "0", "--console-writes")
    yield running
    running.stop()


def test_the_protocol_is_a_page(open_page: OpenPage, node: Node) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page = open_page("", url=node.url)
    page.keyboard.press("g")
    page.keyboard.press("p")
    expect(page.get_by_role("heading", name="Protocol explorer")).to_be_visible()
    await_followed(page)
    node.work("drinks")
    page.keyboard.press("/")
    page.keyboard.type("produce drinks")
    row = page.locator(".exchanges tbody tr").first
    expect(row).to_contain_text("writer")
    page.keyboard.press("Escape")
    row.get_by_role("button").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("A producer hands over batches of records")).to_be_visible()
    expect(page.locator("table.fields")).to_have_count(2)
    assert page.get_by_text("<b>tea</b>").count() >= 1
    page.get_by_label("Filter: words").fill("shop joingroup")
    page.locator(".exchanges tbody .chip").first.click()
    page.get_by_label("Filter: words").fill("")
    expect(page.get_by_text("only the rebalance of group shop")).to_be_visible()
    page.locator(".exchanges tbody tr button.plain").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".exchanges tr.chosen")).to_have_count(1)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.screenshot(path=SCREENSHOTS / f"protocol-{theme}.png")
        assert violations(page) == []
    page.get_by_role("button", name="Pause").click()
    node.work("later")
    expect(page.get_by_text(re.compile("paused, [1-9]"))).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    # Nobody is watched any more by this page; it has what it had when it is shown again.
    page.go_back()
    page.get_by_label("Filter: words").fill("produce drinks")
    expect(page.locator(".exchanges tbody tr").first).to_contain_text("writer")
    page.set_viewport_size({"width": 390, "height": 844})
    page.screenshot(path=SCREENSHOTS / "protocol-phone.png")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_files_of_the_node_are_looked_into(open_page: OpenPage, node: Node) -> None:
    node.work("files")
    page = open_page("#/topic?name=files&tab=log", url=node.url)
    page.locator("summary", has_text="from offset 0").click()
    page.get_by_role("button", name=re.compile(r"^log ·")).click()
    entries = page.get_by_role("table", name=re.compile(r"Entries of 0{20}\.log"))
    expect(entries).to_contain_text("none")
    page.get_by_role("button", name=re.compile(r"^timeindex ·")).click()
    expect(
        page.get_by_role("table", name=re.compile(r"Entries of")).or_(page.get_by_text("It has no entries"))
    ).to_be_visible()
    page.screenshot(path=SCREENSHOTS / "segments-light.png")
    assert violations(page) == []
    page = open_page("#/topic?name=files&tab=log", url=node.url, **PHONE)
    page.locator("summary", has_text="from offset 0").click()
    page.screenshot(path=SCREENSHOTS / "segments-phone.png")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture
def faulty() -> Iterator[Node]:
    running = Node("faults")
    yield running
    running.stop()


def test_faults_are_switched(faulty: Node, open_page: OpenPage) -> None:
    page = open_page("#/faults", url=faulty.url, expect=(400,))
    page.get_by_label("What", exact=True).select_option("error")
    page.get_by_label("Requests").fill("Produce")
    page.get_by_label("More").fill("code=NONSENSE")
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("alert")).to_contain_text("Kafka has no error")
    page.get_by_label("More").fill("code=POLICY_VIOLATION topic=orders")
    page.keyboard.press("Enter")
    faults = page.get_by_role("table", name="Faults that are on")
    expect(faults).to_contain_text("error Produce")
    producer = Producer({"bootstrap.servers": faulty.bootstrap})
    refused: list[str] = []
    producer.produce("orders", b"x", on_delivery=lambda error, _: refused.append(str(error)))
    assert producer.flush(LONG) == 0 and "POLICY_VIOLATION" in refused[0]
    expect(page.get_by_role("table", name="What has been done")).to_contain_text("orders-0")
    expect(faults).to_contain_text("1 time")
    page.screenshot(path=SCREENSHOTS / "faults-light.png")
    assert violations(page) == []
    page.get_by_role("button", name="Undo fault 0").click()
    expect(page.get_by_text("No fault is on.")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
