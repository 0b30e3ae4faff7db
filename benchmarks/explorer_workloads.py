"""Many small requests to a node whose explorer a console watches, and to the same while nobody looks.

In ``explorer-watched`` a node without an explorer has its turns in between. All are measured in slices of a few
seconds, one after the other: the machine is hardly the same a minute later, and a ratio is of the slices of one cycle.
On two processors the console takes time from the client that makes the load, so that what counts is the processor time
of the node for a request.

Two processes of the same code differ by as much as a watched one and one that is not. In ``explorer-same-node`` one
node is under a load without a pause, watched and unwatched in turn: pairs, with a control (`benchmarks.pairs`). There,
too, less work a second is for the most part the console's doing, which runs beside the watched slices alone.
"""

from __future__ import annotations

import http.client
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks import pairs, raw
from benchmarks.clients import LoadError
from benchmarks.pairs import Slice, Turn
from benchmarks.servers import Kbroker, Server, explorer_of
from benchmarks.steady_load import SteadyLoad, ready_topic, steady_requests
from benchmarks.workloads import Bench, Figures, Workload, send_small_requests
from spark_examples.processes import first_match, process

PRODUCE = "Produce"
FIRST_SECONDS = 1.0
"""Seconds of the load before those that count: a node spends at first what it has saved in a rest."""

REST_SECONDS = 0.3

SETTLING_SECONDS = 1.5
"""Left out after each change of ``explorer-same-node``: a node sees within a second that a watcher has gone, and a
watched one has spent what it has saved in a rest. The control's slices have as much left out before them."""

SLICE_SECONDS = 2.0


class ExplorableKbroker(Kbroker):
    """kbroker with an explorer."""

    options = ("--explorer", "0")


class Looker:
    """A browser's part: it takes the events of a console's page Protocol, and counts what they tell."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        self._connection.request("GET", "/api/explorer/events")
        self._response = self._connection.getresponse()
        if self._response.status != 200:
            raise LoadError(f"the console answers with {self._response.status}")
        self.shown = self.skipped = 0
        self._follows = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        kind = ""
        try:
            while line := self._response.readline():
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    self._take(kind, line[6:])
        except (OSError, ValueError, AttributeError):
            return  # it is closed

    def _take(self, kind: str, data: bytes) -> None:
        if kind == "exchange":
            self.shown += PRODUCE.encode() in data
        elif kind == "skipped":
            self.skipped += json.loads(data)["counts"].get(PRODUCE, 0)
        elif kind == "nodes" and not json.loads(data)["silent"]:
            self._follows.set()

    def await_node(self) -> None:
        """Wait until the console follows the node. LoadError if it does not."""
        if not self._follows.wait(30):
            raise LoadError("the console does not follow the node's explorer")

    def await_rest(self) -> None:
        """Wait until the page has what it is shown: a console on a busy machine is behind its node."""
        seen = -1
        while seen != self.shown:
            seen = self.shown
            time.sleep(REST_SECONDS)

    def close(self) -> None:
        """Look no more."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._thread.join(30)
        self._connection.close()


@contextmanager
def looked_at(server: Server) -> Iterator[Looker]:
    """A console process that watches a node, and somebody who looks at its page, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="bench-explorer-") as directory:
        log = Path(directory) / "console.log"
        words = ["console", "-b", server.bootstrap, "--listen", "127.0.0.1:0", "--explorer", explorer_of(server)]
        with process(*words, log=log) as console:
            looker = Looker(first_match(console, r"(http://\S+)", log))
            try:
                looker.await_node()
                yield looker
            finally:
                looker.close()


def explorer_watched(bench: Bench, server: Server) -> Figures:
    """Small requests of 100 connections, as fast as they are answered: what watching them costs the node."""
    seconds, cycles = bench.amount(4, 2), bench.amount(9, 3)
    explorable, plain = ExplorableKbroker(), Kbroker()
    try:
        topics: dict[Server, str] = {}
        for each in (explorable, plain):
            each.start()
            each.await_port()
            raw.await_record(each.host, each.port, "first")
            topics[each] = bench.new_topic(each, 6)
            for partition in range(6):
                raw.await_record(each.host, each.port, topics[each], partition)
            send_small_requests(bench, each, topics[each], seconds)  # not counted: a node is slower at first

        shown = told = asked = 0.0

        def send(server: Server, seconds: float) -> tuple[Figures, float]:
            return send_small_requests(bench, server, topics[server], seconds)

        def measure(kind: str) -> Figures:
            nonlocal shown, told, asked
            server = plain if kind == "plain" else explorable
            if kind != "watched":
                send(server, FIRST_SECONDS)
                return send(server, seconds)[0]
            with looked_at(server) as looker:
                send(server, FIRST_SECONDS)
                looker.await_rest()
                seen_before, told_before = looker.shown, looker.shown + looker.skipped
                figures, requests = send(server, seconds)
                shown += looker.shown - seen_before
                told += looker.shown + looker.skipped - told_before
                asked += requests
            return figures

        kinds = ["plain", "unwatched", "watched"]
        rounds: list[dict[str, Figures]] = []
        for number in range(cycles):
            turn = number % len(kinds)
            rounds.append({kind: measure(kind) for kind in (*kinds[turn:], *kinds[:turn])})
    finally:
        explorable.stop()
        plain.stop()
    if not 0 < shown < told or told < 0.8 * asked:
        raise LoadError(f"of {asked:,.0f} requests {shown:,.0f} were shown, and {told - shown:,.0f} told as not shown")

    def growth(kind: str) -> float:
        figure = "cpu_us_per_request"
        return statistics.median(each[kind][figure] / each["plain"][figure] for each in rounds)

    return {
        "requests_per_s": statistics.median(each["watched"]["requests_per_s"] for each in rounds),
        "cpu_us_per_request": statistics.median(each["watched"]["cpu_us_per_request"] for each in rounds),
        "shown_per_s": shown / (cycles * seconds),
        "watched_cpu_growth": growth("watched"),
        "unwatched_cpu_growth": growth("unwatched"),
    }


def judge(asked: float, shown: float, skipped: float, *, off: float) -> None:
    """LoadError unless some of the requests were shown, not all, and all were told of, but for a share ``off``."""
    if not 0 < shown < asked or not 1 - off < (shown + skipped) / asked < 1 + off:
        raise LoadError(f"of {asked:,.0f} requests {shown:,.0f} were shown, and {skipped:,.0f} told as not shown")


def explorer_same_node(bench: Bench, server: Server) -> Figures:
    """Small requests of 100 connections to one node without a pause, watched and unwatched in turn."""
    node = ExplorableKbroker()
    shown = skipped = asked = 0.0

    def measure(load: SteadyLoad, turn: Turn) -> Slice:
        nonlocal shown, skipped, asked
        if turn is not Turn.WITH:
            time.sleep(SETTLING_SECONDS)
            return load.slice(SLICE_SECONDS)
        with looked_at(node) as looker:
            time.sleep(SETTLING_SECONDS)
            shown_before, skipped_before = looker.shown, looker.skipped
            measured = load.slice(SLICE_SECONDS)
            shown_now, skipped_now = looker.shown - shown_before, looker.skipped - skipped_before
        # What a console tells is behind what is asked, by a second at most: a few such moments even out, one need not.
        judge(measured.work, shown_now, skipped_now, off=0.5)
        shown, skipped, asked = shown + shown_now, skipped + skipped_now, asked + measured.work
        return measured

    try:
        node.start()
        node.await_port()
        raw.await_record(node.host, node.port, "first")
        with steady_requests(bench, node, ready_topic(bench, node)) as load:
            time.sleep(bench.amount(8, 4))  # not counted: a node is slower at first
            rounds = [{turn: measure(load, turn) for turn in order} for order in pairs.turns(bench.amount(24, 2))]
    finally:
        node.stop()
    judge(asked, shown, skipped, off=0.2)
    return {
        **pairs.compared(rounds),
        "requests_per_s": statistics.median(each[Turn.WITH].rate for each in rounds),
        "cpu_us_per_request": statistics.median(each[Turn.WITH].cost for each in rounds) * 1e6,
        "shown_per_s": shown / sum(each[Turn.WITH].seconds for each in rounds),
    }


EXPLORER_WORKLOADS = (
    Workload("explorer-watched", "100 connections, watched by a console's explorer", explorer_watched, "alone"),
    Workload("explorer-same-node", "one node, watched and unwatched in turn", explorer_same_node, "alone"),
)
"""Apache Kafka has nothing of the kind."""
