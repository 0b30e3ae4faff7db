"""A node with its page for Prometheus, which is scraped, beside two without: small requests, and large produce.

Counting begins with a node and ends with it, so that there have to be several processes. Those of the same code differ
by a percent, by where their memory lies, for as long as they live: so each round has nodes of its own, and a second one
without metrics is the control (`benchmarks.pairs`).
"""

from __future__ import annotations

import http.client
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from benchmarks import pairs, raw
from benchmarks.clients import LoadError
from benchmarks.pairs import Round, Slice, Turn
from benchmarks.servers import Kbroker, MeasuredKbroker, Server
from benchmarks.steady_load import ready_topic, steady_requests
from benchmarks.workloads import Bench, Figures, Workload

SETTLING_SECONDS = 1.0
"""Of each load of small requests: not counted."""
SLICE_SECONDS = 2.0
LAUNCHES = 12
"""Of the three nodes: rounds, each twice in each order of the turns."""
LARGE = 1000
"""Bytes of a record of large produce, which comes in requests of a megabyte at most."""
ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""Prometheus asks for this."""

Measure = Callable[[Bench, Server, str], Slice]
"""Measures a slice of a server's work on a topic."""


def scrape(server: MeasuredKbroker) -> int:
    """Read the page as Prometheus does; its size in bytes. LoadError if there is none."""
    announced = re.search(r"metrics are on http://(127\.0\.0\.1:\d+)", server.log_tail())
    if announced is None:
        raise LoadError(f"the address of the metrics is not in the log:\n{server.log_tail()}")
    connection = http.client.HTTPConnection(announced[1], timeout=30)
    try:
        connection.request("GET", "/metrics", headers={"Accept": ACCEPT})
        response = connection.getresponse()
        page = response.read()
    finally:
        connection.close()
    if response.status != 200 or b"kafka_" not in page:
        raise LoadError(f"the page of metrics has status {response.status}")
    return len(page)


@contextmanager
def scraped(server: Server) -> Iterator[None]:
    """Scrape a node that has metrics once while the block runs. Prometheus scrapes every 15 seconds: this is more."""
    if not isinstance(server, MeasuredKbroker):
        yield
        return
    with ThreadPoolExecutor(1) as thread:
        page = thread.submit(scrape, server)
        yield
        page.result()


def small_slice(bench: Bench, server: Server, topic: str) -> Slice:
    """Small requests of 100 connections."""
    with steady_requests(bench, server, topic) as load:
        time.sleep(SETTLING_SECONDS)
        with scraped(server):
            return load.slice(SLICE_SECONDS)


def large_slice(bench: Bench, server: Server, topic: str) -> Slice:
    """Records of 1 KB of librdkafka, in batches as large as it makes them."""
    count = bench.amount(400_000, 200_000)
    used = server.processor_clock()
    with scraped(server):
        result = bench.load.run("produce", server.bootstrap, topic, count, LARGE, "acks=all")
    return Slice(result["records"], result["seconds"], used())


def beside(bench: Bench, measure: Measure) -> tuple[Figures, float]:
    """Compare slices of three nodes in turn: with metrics, without, and without once more.

    Also the processor time, in seconds, of a piece of work with metrics.
    """
    rounds = [_round(bench, measure, order) for order in pairs.turns(bench.amount(LAUNCHES, 2))]
    return pairs.compared(rounds), statistics.median(each[Turn.WITH].cost for each in rounds)


def _round(bench: Bench, measure: Measure, order: Sequence[Turn]) -> Round:
    """Measure a slice of each of three new nodes, started in the order in which they are measured."""
    nodes: dict[Turn, Kbroker] = {turn: MeasuredKbroker() if turn is Turn.WITH else Kbroker() for turn in order}
    topics: dict[Turn, str] = {}
    try:
        for turn, node in nodes.items():
            node.start()
            node.await_port()
            raw.await_record(node.host, node.port, "first")
            topics[turn] = ready_topic(bench, node)
            measure(bench, node, topics[turn])  # not counted: a node is slower at first
        return {turn: measure(bench, nodes[turn], topics[turn]) for turn in order}
    finally:
        for node in nodes.values():
            node.stop()


def small_requests(bench: Bench, server: Server) -> Figures:
    """Small requests, with metrics and without."""
    figures, cost = beside(bench, small_slice)
    return figures | {"cpu_us_per_request": cost * 1e6}


def large_produce(bench: Bench, server: Server) -> Figures:
    """Large produce, with metrics and without."""
    figures, cost = beside(bench, large_slice)
    return figures | {"cpu_s_per_GB": cost / LARGE * 1e9}


METRICS_WORKLOADS = (
    Workload("metrics-requests", "100 connections, a node with metrics and others without", small_requests, "alone"),
    Workload("metrics-produce", "produce 1 KB, a node with metrics and others without", large_produce, "alone"),
)
"""Apache Kafka cannot do without its meters."""
