"""`python -m benchmarks.console_scale`: the console beside a node with 100,000 topics, and a tail of 50,000 records/s.

    python -m benchmarks.console_scale --topics 100000 --rate 50000
    python -m benchmarks.console_scale --topics 1000 --seconds 5         a short look

    python -m benchmarks.console_scale --json FILE --write-docs          measured, and told in docs/console.md
    python -m benchmarks.console_scale --render FILE                     the figures of an earlier run are told there

Prints a table, and writes it as JSON where `--json FILE` says. The browser's part needs `kbroker[browser]` and
Chromium, the tail confluent-kafka.
"""

from __future__ import annotations

import argparse
import datetime
import http.client
import json
import math
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from benchmarks.console_figures import write_docs
from benchmarks.raw import API_VERSIONS, frame
from benchmarks.servers import commit
from kbroker.client import Client, ClientError
from kbroker.client.topics import NewTopic, create_topics
from spark_examples.processes import first_match, process

if TYPE_CHECKING:
    from playwright.sync_api import Page

BATCH = 1000
TAILED = "bench.live"
ROUNDS = 5

Figures = dict[str, float]

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]

ASK_ALL = """
import sys, time
from kbroker.client import Client
from kbroker.client.topics import list_topics, partition_sizes
with Client(sys.argv[1], timeout=120) as client:
    client.refresh(())
    for ask in (list_topics, partition_sizes):
        time.sleep(2)
        began = time.monotonic()
        found = ask(client)
        print(began, time.monotonic(), len(found), flush=True)
"""

PRODUCE = """
import sys, time
from confluent_kafka import Producer
servers, topic, rate, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "queue.buffering.max.messages": 1000000})
began = time.monotonic()
sent = 0
while (passed := time.monotonic() - began) < seconds:
    for _ in range(int(passed * rate) - sent):
        producer.produce(topic, b'{"id": %d, "state": "paid", "total": 12.5, "customer": "c-%d"}' % (sent, sent % 100))
        sent += 1
    producer.poll(0)
    time.sleep(0.01)
producer.flush(30)
print(sent / (time.monotonic() - began), flush=True)
"""

WATCH = """() => {
    window.kbrokerLooked = { events: [], tasks: [] };
    const put = (list) => (entries) => list.push(...entries.getEntries().map((entry) => entry.duration));
    new PerformanceObserver(put(window.kbrokerLooked.events)).observe({ type: "event", durationThreshold: 16 });
    new PerformanceObserver(put(window.kbrokerLooked.tasks)).observe({ type: "longtask" });
}"""


NEXT_FRAME = """async () => {
    const began = performance.now();
    await new Promise(requestAnimationFrame);
    return performance.now() - began;
}"""


def topic_names(count: int) -> list[str]:
    """Names as many teams would give them, a tree of three levels."""
    return [f"team-{number % 100:02}.service-{number // 100 % 50:02}.topic-{number:06}" for number in range(count)]


def resident(running: subprocess.Popen[str]) -> float:
    """MB of memory of a process."""
    return float(psutil.Process(running.pid).memory_info().rss) / 1e6


class Probe:
    """Asks a node a question of a few bytes again and again: while its event loop is held up, nobody answers."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._over = threading.Event()
        self.seen: list[tuple[float, float]] = []
        """When each was asked, and the seconds that its answer took."""
        self._gone = False
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        request = frame(API_VERSIONS, 0, b"")
        with self._socket.makefile("rb") as answers:
            while not self._over.wait(0.002):
                began = time.monotonic()
                self._socket.sendall(request)
                size = answers.read(4)
                if len(answers.read(int.from_bytes(size, "big"))) == 0:
                    self._gone = True
                    return
                self.seen.append((began, time.monotonic() - began))

    def longest(self, begin: float, end: float) -> float:
        """The longest wait of a question asked between two moments, in ms."""
        return 1000 * max((took for at, took in self.seen if begin <= at <= end), default=0)

    def close(self) -> None:
        """Ask no more. RuntimeError if the node has closed the connection: the figures are not whole."""
        self._over.set()
        self._thread.join(60)
        self._socket.close()
        if self._gone:
            raise RuntimeError("the node has closed the connection")


def make_topics(bootstrap: str, count: int, node: subprocess.Popen[str]) -> Figures:
    """Create topics of one partition; the figures of as many as there are when the node takes no more."""
    before = resident(node)
    began = time.monotonic()
    made = 0
    with Client(bootstrap, timeout=60) as client:
        create_topics(client, [NewTopic(TAILED, 3, 1)])
        names = topic_names(count)
        for at in range(0, count, BATCH):
            try:
                results = create_topics(client, [NewTopic(name, 1, 1) for name in names[at : at + BATCH]])
            except ClientError as error:
                print(f"after {made:,} topics: {error}", file=sys.stderr)
                break
            wrong = [result for result in results.values() if isinstance(result, Exception)]
            made += len(results) - len(wrong)
            if wrong:
                print(f"after {made:,} topics: {wrong[0]}", file=sys.stderr)
                break
            if made % 10_000 == 0:
                print(f"{made:,} topics, {time.monotonic() - began:.0f} s, {resident(node):.0f} MB", file=sys.stderr)
    return {
        "topics made": made,
        "s to make them": time.monotonic() - began,
        "node: KB of memory a topic": (resident(node) - before) * 1000 / max(made, 1),
    }


def hold_ups(bootstrap: str) -> Figures:
    """Measure the wait of others while a client asks for everything."""
    probe = Probe(bootstrap)
    asking = subprocess.run([sys.executable, "-c", ASK_ALL, bootstrap], capture_output=True, text=True, check=True)
    probe.close()
    looks = [line.split() for line in asking.stdout.splitlines()]
    figures: Figures = {}
    for name, (begin, end, _) in zip(("Metadata", "DescribeLogDirs"), looks, strict=True):
        figures[f"{name} of all: s to answer and to read it"] = float(end) - float(begin)
        figures[f"{name} of all: ms that others waited at most"] = probe.longest(float(begin) - 0.1, float(end))
    quiet = probe.longest(float(looks[0][0]) - 1.5, float(looks[0][0]) - 0.2)
    figures["nothing asked: ms that others waited at most"] = quiet
    return figures


def answer_times(url: str, names: list[str]) -> Figures:
    """Seconds of the answers to what the pages ask: the very first, and the median and longest of those after."""
    host = urlsplit(url).netloc

    def ask(path: str) -> float:
        connection = http.client.HTTPConnection(host, timeout=300)
        began = time.monotonic()
        connection.request("GET", f"/api/{path}")
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        return time.monotonic() - began

    paths = {
        "overview": "overview",
        "list, first rows": "topics?counts=1&limit=100&offset=0",
        "list, rows in the middle": f"topics?counts=1&limit=100&offset={len(names) // 2}",
        "list, sorted by size": "topics?counts=1&limit=100&sort=size&descending=1",
        "search": f"topics?counts=1&limit=100&filter={names[-1][-6:]}",
        "tree": "topics/tree",
        "tree, a level down": "topics/tree?prefix=team-07.",
        "topic": f"topic?name={names[len(names) // 3]}",
        "its records": f"records?topic={names[len(names) // 3]}",
        "its configs": f"topic/configs?name={names[len(names) // 3]}",
        "groups": "groups",
        "lags of groups": "groups/lags",
    }
    figures: Figures = {"console: s of the very first answer": ask("topics?counts=1&limit=100")}
    taken: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(ROUNDS):
        for name, path in paths.items():
            taken[name].append(ask(path))
        time.sleep(2)
    for name, times in taken.items():
        figures[f"console, {name}: s, median"] = statistics.median(times)
        figures[f"console, {name}: s, longest"] = max(times)
    return figures


@contextmanager
def browser_page(url: str) -> Iterator[Page]:
    """The console in Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        page.goto(url)
        page.wait_for_selector("main h1")
        yield page
        browser.close()


def timed(work: Callable[[], object]) -> float:
    """The seconds that it takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def look_around(url: str, names: list[str]) -> Figures:
    """Seconds until a person sees what was asked for, in the browser."""
    with browser_page(url) as page:
        first, last = names[0], names[-1]
        figures: Figures = {}

        def go(place: str, selector: str) -> float:
            def see() -> None:
                page.evaluate("place => { location.hash = place; }", place)
                page.wait_for_selector(selector)

            return timed(see)

        figures["browser, overview: s"] = go("#/overview", "table[aria-label='Metadata quorum']")
        figures["browser, list: s"] = go("#/topics", f"a:text-is('{first}')")

        def search() -> None:
            page.keyboard.press("/")
            page.keyboard.type(last[-6:])
            page.wait_for_selector(f"a:text-is('{last}')")

        figures["browser, search as it is typed: s"] = timed(search)
        figures["browser, tree: s"] = go("#/topics?view=tree", "summary")
        figures["browser, a topic: s"] = go(f"#/topic?name={last}", ".status:has-text('read in')")
        go("#/topics?", f"a:text-is('{first}')")
        page.evaluate(WATCH)
        page.evaluate(
            """async () => {
                const box = document.querySelector(".tall");
                for (let step = 1; step <= 40; step += 1) {
                    box.scrollTop = (box.scrollHeight * step) / 41;
                    await new Promise(requestAnimationFrame);
                }
                box.scrollTop = box.scrollHeight;
            }"""
        )
        figures["browser, to the end of the list: s"] = timed(lambda: page.wait_for_selector(f"a:text-is('{last}')"))
        figures["browser, scrolling: ms of the longest task"] = longest(page, "tasks")
        return figures


def longest(page: Page, what: str) -> float:
    """The longest of what was looked for, in ms; 0 if nothing was long enough to be told."""
    return float(page.evaluate("what => Math.max(0, ...window.kbrokerLooked[what])", what))


def tail(url: str, bootstrap: str, rate: int, seconds: float) -> Figures:
    """The live tail while records come faster than anybody reads: how soon keys that are typed are answered."""
    with browser_page(f"{url}#/topic?name={TAILED}") as page:
        page.get_by_role("button", name="Live").click()
        page.get_by_text("records/s").wait_for()
        words = [sys.executable, "-c", PRODUCE, bootstrap, TAILED, str(rate), str(seconds)]
        producer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        time.sleep(2)
        page.evaluate(WATCH)
        page.locator("tr[data-record] button.open").first.focus()
        page.keyboard.press("Enter")  # a record is opened: one that is clicked would have to stand still
        page.get_by_label("Filter", exact=True).focus()
        page.screenshot(path=Path(tempfile.gettempdir()) / "kbroker-live.png")
        until = time.monotonic() + seconds - 5
        frames = []
        while time.monotonic() < until:
            page.keyboard.press("a")
            frames.append(page.evaluate(NEXT_FRAME))
            time.sleep(0.1)
        told = page.locator(".live-bar").inner_text()
        paused = timed(lambda: page.get_by_role("button", name="Pause").click())
        page.evaluate(NEXT_FRAME)
        events = page.evaluate("() => window.kbrokerLooked.events")
        output, _ = producer.communicate(timeout=120)
        print(told.replace("\n", " "), file=sys.stderr)
        shown = re.search(r"([\d,]+) records/s · ([\d,]+) shown(?: · ([\d,]+) not shown)?", told)
        assert shown is not None, told
        numbers = [float((each or "0").replace(",", "")) for each in shown.groups()]
        return {
            "tail: records/s that were written": float(output),
            "tail: records/s as the page tells": numbers[0],
            "tail: records shown": numbers[1],
            "tail: records told as not shown": numbers[2],
            "tail: ms from a key or click to what it paints, longest": max(events, default=0),
            "tail: ms from a key or click to what it paints, median of those above 16": statistics.median(events)
            if events
            else 0,
            "tail: ms of the longest wait for a frame": max(frames),
            "tail: ms of the longest task": longest(page, "tasks"),
            "tail: s until a click on Pause is done": paused,
        }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console_scale")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=50_000, help="records a second of the tail")
    parser.add_argument("--seconds", type=float, default=20, help="how long records come")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    parser.add_argument("--without-browser", action="store_true")
    parser.add_argument("--write-docs", action="store_true", help="put the figures into docs/console.md")
    parser.add_argument("--render", type=Path, metavar="JSON", help="only do that, with the figures of an earlier run")
    options = parser.parse_args()
    if options.render:
        write_docs(json.loads(options.render.read_text()))
        return
    figures: Figures = {"processors": os.cpu_count() or 1}
    with tempfile.TemporaryDirectory(prefix="bench-console-") as directory:
        place = Path(directory)
        logs = place / "node.log", place / "console.log"
        words = ["start", "--port", "0", "--data-dir", str(place / "data")]
        with process(*words, log=logs[0], stop_seconds=120) as node:
            bootstrap = first_match(node, r"kbroker ready: (\S+)", logs[0])
            figures |= make_topics(bootstrap, options.topics, node)
            names = topic_names(int(figures["topics made"]))
            figures |= hold_ups(bootstrap)
            with process("console", "-b", bootstrap, "--listen", "127.0.0.1:0", log=logs[1]) as console:
                url = first_match(console, r"(http://\S+)", logs[1])
                probe = Probe(bootstrap)
                figures |= answer_times(url, names)
                probe.close()
                figures["console asks: ms that others waited at most"] = probe.longest(0, math.inf)
                if not options.without_browser:
                    figures |= look_around(url, names)
                    figures |= tail(url, bootstrap, options.rate, options.seconds)
                figures["console: MB of memory"] = resident(console)
            figures["node: MB of memory"] = resident(node)
            began = time.monotonic()
        figures["node: s to stop"] = time.monotonic() - began
        for log in logs:
            if text := log.read_text().strip():
                print(f"{log.name}:\n{text[-1500:]}", file=sys.stderr)
    for name, value in figures.items():
        print(f"{name:<60} {value:>14,.3f}")
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    run = {"date": date, "commit": commit(), "figures": figures}
    if options.json:
        options.json.write_text(json.dumps(run, indent=1))
    if options.write_docs:
        write_docs(run)


if __name__ == "__main__":
    main()
