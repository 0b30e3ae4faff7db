"""``kbroker watch --web``: the explorer as a page, over HTTP and in a real browser."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.chromium import FLAGS, find_chromium
from kbroker.node.explorer import budget
from kbroker.testing import RunningBroker, running_broker
from kbroker.tools.cli import main
from tests.patience import LONG, LONG_MS

SCREENSHOTS = Path(__file__).parents[2] / "out" / "screenshots"


@pytest.fixture(scope="module", autouse=True)
def _affords_all() -> Iterator[None]:
    """All that tests ask is seen, on a slow machine and after a test that asked much."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "SHARE", 1.0)
        patch.setattr(budget, "SAVED", 10.0)
        yield


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"kbroker.explorer.listener": "http://127.0.0.1:0"}) as it:
        yield it


@contextmanager
def page_of(broker: RunningBroker) -> Iterator[str]:
    """A page that shows the broker: its address."""
    port = broker.in_broker(lambda node: node.explorer_port)
    command = [sys.executable, "-m", "kbroker", "watch", "-b", f"127.0.0.1:{port}", "--web"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://(\S+)/", process.stdout.readline())
        assert found is not None
        try:
            yield found[1]
        finally:
            process.terminate()


def ask(address: str, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=LONG)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    connection.close()
    return response.status, text


def work(broker: RunningBroker, topic: str) -> None:
    """A record that is written, and read by a group."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "writer"})
    producer.produce(topic, b"<b>tea</b>")
    assert producer.flush(LONG) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "shop", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(1, LONG)) == 1
    consumer.close()


def test_a_page_is_fed_by_events(broker: RunningBroker) -> None:
    with page_of(broker) as address:
        connection = http.client.HTTPConnection(address, timeout=LONG)
        connection.request("GET", "/events")
        response = connection.getresponse()
        assert response.headers["Content-Type"] == "text/event-stream"
        threading.Thread(target=work, args=(broker, "fed"), daemon=True).start()
        exchange: dict[str, Any] = {}
        while exchange.get("api") != "Produce":
            line = response.readline().decode()
            exchange = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
        assert exchange["topics"] == {"fed": [0]} and exchange["client_id"] == "writer"
        status, text = ask(
            address, f"/exchange?node={exchange['node']}&run={exchange['run']}&number={exchange['exchange']}"
        )
        assert status == 200 and any("tea" in row["text"] for row in json.loads(text)["request_fields"]["rows"])
        assert ask(address, "/exchange?node=1&number=x")[0] == 404
        assert ask(address, "/saved.exchanges")[1].startswith('{"kbroker-exchanges":1')
        clients = json.loads(ask(address, "/clients?words=plaintext")[1])
        assert (clients["silent"], len(clients["rows"])) == ({}, clients["total"])
        for path in ("/", "/clients.js", "/elements.js", "/explorer.js", "/explorer.css", "/main.js"):
            assert ask(address, path)[0] == 200
        assert ask(address, "/../watch_page.py")[0] == 404
        assert ask(address, "x://[")[0] == 400
        assert ask(address, "/saved.exchanges", **{"Sec-Fetch-Site": "same-site"})[0] == 403
        assert ask(address, "/events", Host="evil.example")[0] == 403
        assert ask(address, "/saved.exchanges", Origin="http://evil.example")[0] == 403
        connection.close()


def test_what_the_page_does_itself_is_refused() -> None:
    assert main(["watch", "--web", "--json"]) == 2


def test_a_browser_shows_it(broker: RunningBroker) -> None:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    complaints: list[str] = []
    with page_of(broker) as address, api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(LONG_MS)
        api.expect.set_options(timeout=LONG_MS)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"http://{address}/")
        page.wait_for_selector("h1")
        work(broker, "shown")
        page.fill("input[type=search]", "produce shown")
        row = page.locator("tbody tr").first
        api.expect(row.locator("td").nth(1)).to_have_text("writer")
        row.click()
        page.get_by_text("A producer hands over batches of records").wait_for()
        api.expect(page.locator("table.fields")).to_have_count(2)
        page.get_by_text("<b>tea</b>").first.wait_for()
        page.fill("input[type=search]", "shop joingroup")
        page.locator("tbody .chip").first.click()
        page.fill("input[type=search]", "")
        page.get_by_text("only the rebalance of group shop").wait_for()
        page.locator("tbody tr").nth(1).wait_for()
        page.locator("tbody tr button.plain").first.focus()
        page.keyboard.press("ArrowDown")
        page.locator("tr.chosen").wait_for()
        page.get_by_role("button", name="Pause").click()
        work(broker, "later")
        page.get_by_text(re.compile("paused, [1-9]")).wait_for()
        page.get_by_role("button", name="Go on").click()
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.get_by_text("only the rebalance").click()
        page.screenshot(path=SCREENSHOTS / "explorer.png")
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        browser.close()
    assert complaints == []
