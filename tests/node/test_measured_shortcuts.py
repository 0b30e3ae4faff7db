"""The counts and times of requests that shortcuts serve, and percentages on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from kbroker.node.metrics.figures import summary
from kbroker.observe.metrics.family import OWN
from kbroker.observe.metrics.histogram import Histogram
from kbroker.observe.metrics.requests import FIRST
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.node.node_harness import batch, produce_request, running_node
from tests.patience import LONG

MORE = {"prometheus_metrics_reporter_listener": "http://127.0.0.1:0"}


async def test_each_request_of_shortcuts_is_counted_and_one_is_measured_when_it_is_asked_for(tmp_path: Path) -> None:
    """Shortcuts are of several APIs and versions, and a version comes back that another one has replaced."""
    async with running_node(tmp_path, **MORE) as node:
        await node.create_topic("t")
        client = await node.connect()
        metrics: Any = node.broker._metrics
        requests = metrics.counts.requests

        async def produce(version: int, times: int) -> None:
            for _ in range(times):
                await client.ask(produce_request("t", batch(b"x"), acks=1), version)

        def counts() -> dict[tuple[str, int], int]:
            return {(name, version): count for name, version, count in requests.counts()}

        await produce(9, 50)
        await produce(8, 70)
        assert counts()["Produce", 9] == 50
        await produce(9, 40)
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        for _ in range(20):
            await client.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])]), 6)
        found = counts()
        assert (found["Produce", 9], found["Produce", 8], found["ListOffsets", 6]) == (90, 70, 20)
        await produce(9, FIRST)
        before = requests.times["Produce"].send.count
        requests.measure_next()
        with trio.fail_after(LONG):
            while requests.times["Produce"].send.count == before:  # it may have been another connection's turn
                requests.measure_next()
                await produce(9, 1)
        await client.stream.aclose()


def test_a_percentage_is_never_above_100() -> None:
    """Classes of histograms are wider than 1 there."""
    percent = Histogram()
    percent.observe(100)
    _, (_, samples) = summary(OWN.summary("ratio", "Percent."), {(): percent}, unit=1, most=100)
    assert {value for _, value in list(samples)} == {100}
