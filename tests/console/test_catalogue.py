"""Topics that are remembered: nobody waits for long where a cluster takes long to tell of them all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.tools.console import catalogue
from kbroker.tools.console.catalogue import TopicCatalogue, Topics
from kbroker.tools.console.totals import count
from kbroker.tools.diagnosis.facts import ReplicaCounts
from kbroker.types import ZERO_UUID


def topic(name: str, *partitions: tuple[int | None, tuple[int, ...]]) -> TopicDescription:
    """``partitions``: (leader, ISR); the replicas are 1 and 2."""
    entries = [PartitionDescription(n, leader, 0, (1, 2), isr, ()) for n, (leader, isr) in enumerate(partitions)]
    return TopicDescription(name, ZERO_UUID, name.startswith("__"), tuple(entries))


class SlowCluster:
    """Tells of one topic, which is named after the number of the question; ``seconds`` later."""

    def __init__(self) -> None:
        self.asked = 0
        self.seconds = 0.0
        self.error: Exception | None = None

    async def ask(self, question: Callable[[Any], Any]) -> Topics:
        self.asked += 1
        number = self.asked
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        topics = [topic(f"t-{number}", (1, (1, 2)))]
        return Topics(topics, None, "", 0, {}, {}, (), (), {}, {}, count(topics, {}, {}))


@asynccontextmanager
async def slow_cluster() -> AsyncIterator[tuple[SlowCluster, TopicCatalogue]]:
    cluster = SlowCluster()
    yield cluster, TopicCatalogue(cluster)  # type: ignore[arg-type]


async def name(topics: TopicCatalogue, *, fresh: bool = False) -> str:
    return (await topics.get(fresh=fresh)).all[0].name


async def test_earlier_topics_are_shown_while_the_cluster_takes_its_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name_of_limit in ("_LEAST_SECONDS", "_TIMES_AS_LONG"):
        monkeypatch.setattr(catalogue, name_of_limit, 0)  # what is known is old at once

    async with slow_cluster() as (cluster, topics):
        assert await name(topics) == "t-1"
        assert await name(topics) == "t-2", "a quick cluster is waited for"
        cluster.seconds = 5
        began = trio.current_time()
        assert [await name(topics), await name(topics)] == ["t-2", "t-2"]
        assert trio.current_time() - began < 1
        await trio.sleep(6)
        assert await name(topics) == "t-3", "it was asked once meanwhile, though nobody waited"
        assert await name(topics, fresh=True) == "t-5", "one that has begun before does not count"


async def test_earlier_topics_are_not_shown_for_ever(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that takes long to fail is no cluster that takes long to answer."""
    for name_of_limit in ("_LEAST_SECONDS", "_TIMES_AS_LONG"):
        monkeypatch.setattr(catalogue, name_of_limit, 0)

    async with slow_cluster() as (cluster, topics):
        assert await name(topics) == "t-1"
        cluster.seconds, cluster.error = 5, ValueError("no broker")
        assert await name(topics) == "t-1", "nobody knows yet"
        await trio.sleep(6)
        with pytest.raises(ValueError, match="no broker"):
            await topics.get()
        cluster.error = None
        await trio.sleep(6)
        assert await name(topics, fresh=True) == "t-4"
        assert await name(topics) == "t-4"


async def test_what_was_changed_is_waited_for(autojump_clock: MockClock) -> None:
    async with slow_cluster() as (cluster, topics):
        assert [await name(topics), await name(topics)] == ["t-1", "t-1"]
        cluster.seconds = 5
        topics.forget()
        assert await name(topics) == "t-2"


async def test_a_failure_is_told_to_each_that_waits_and_asked_again(autojump_clock: MockClock) -> None:
    async with slow_cluster() as (cluster, topics):
        cluster.seconds, cluster.error = 1, ValueError("no broker")
        failed: list[str] = []

        async def ask() -> None:
            with pytest.raises(ValueError, match="no broker"):
                await topics.get()
            failed.append("told")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
        assert (failed, cluster.asked) == (["told", "told"], 1)
        cluster.error = None
        assert await name(topics) == "t-2"


async def test_who_goes_does_not_end_what_others_wait_for(autojump_clock: MockClock) -> None:
    async with slow_cluster() as (cluster, topics):
        cluster.seconds = 5
        with trio.move_on_after(1):
            await topics.get()
        assert await name(topics) == "t-1"


def test_topics_are_counted() -> None:
    topics = [topic("__offsets", (1, (1, 2))), topic("a", (1, (1,)), (None, ())), topic("b", (2, (1, 2)))]
    totals = count(topics, {"__offsets": 9.0, "a": 0.0, "b": 7.0}, {"__offsets": 3.0, "b": 2.0})
    assert (totals.topics, totals.internal, totals.partitions) == (2, 1, 4)
    assert (totals.under_replicated, totals.leaderless, [each.name for each in totals.troubled]) == (2, 1, ["a"])
    assert totals.brokers == {1: ReplicaCounts(2, 4, 1), 2: ReplicaCounts(1, 4, 2)}
    assert (totals.bytes_rate, totals.records_rate, totals.busiest) == (7.0, 2.0, [("b", 7.0, 2.0)])
    assert count(topics, {}, {}).bytes_rate is None
