"""All topics of a cluster, remembered for a moment: a page that scrolls must not ask for them all each time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

import trio

from kbroker.base import collector
from kbroker.base.rates import Meter
from kbroker.client import Client, ClientError, ResponseError
from kbroker.client.patience import patience
from kbroker.client.topics import LATEST, TopicDescription, list_offsets, list_topics
from kbroker.tools.console.asking import Cluster
from kbroker.tools.console.courses import MOST_COURSES, Courses
from kbroker.tools.console.sizes import ask_sizes
from kbroker.tools.console.totals import Totals, count
from kbroker.tools.diagnosis.facts import DamagedReplica
from kbroker.types import TopicPartition

_LEAST_SECONDS: Final = 2.0
_TIMES_AS_LONG: Final = 10
"""Topics are asked for again after as many times the time that asking took."""

_PATIENCE: Final = 0.3
"""Seconds that a page waits for topics as they are now, where earlier ones are known and were told in that time. With
100,000 topics the cluster takes seconds to tell of them all: they are not waited for. The page says of what time its
topics are, and asks again by itself."""

_MAX_ENDS: Final = 2000
"""Partitions whose ends are asked for in one look, for the rates of records."""

_ENDS_SECONDS: Final = 1.5


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics by name, and when that was.

    ``sizes``: topic -> bytes of one copy; None if they may not be seen, for the reason in ``no_sizes``.
    ``silent``: brokers that do not answer, with what was tried.
    """

    all: Sequence[TopicDescription]
    sizes: Mapping[str, int] | None
    no_sizes: str
    at_ms: int
    sizes_of_brokers: Mapping[int, int]
    silent: Mapping[int, str]
    failed_dirs: Sequence[tuple[int, str]]
    """Log directories that have failed, with their brokers."""

    damaged: Sequence[DamagedReplica]

    growth: Mapping[str, float]
    """Topic -> bytes a second by which one copy grows, of those that were seen twice."""

    records: Mapping[str, float]
    """Topic -> records a second, of the same topics as far as they were asked for."""

    totals: Totals


class Rates:
    """Rates by earlier looks at the topics of one cluster."""

    def __init__(self) -> None:
        self.bytes: Meter[str] = Meter()
        self.ends: Meter[TopicPartition] = Meter()

    def busy_partitions(self, topics: Sequence[TopicDescription]) -> list[TopicPartition]:
        """Partitions whose ends are worth asking for: of the topics that grow most, a bounded number."""
        growing = {name for name, rate in self.bytes.rates.items() if rate > 0}
        chosen = [topic for topic in topics if topic.name in growing] if self.bytes.rates else list(topics)
        chosen.sort(key=lambda topic: -self.bytes.rates.get(topic.name, 0))
        found: list[TopicPartition] = []
        for topic in chosen:
            if len(found) + len(topic.partitions) > _MAX_ENDS:
                continue
            found += [
                TopicPartition(topic.name, each.partition) for each in topic.partitions if each.leader is not None
            ]
        return found

    def records_of(self, topics: Sequence[TopicDescription]) -> dict[str, float]:
        """Topic -> records a second: 0 for one whose log does not grow, nothing for one that is not known."""
        found: dict[str, float] = {}
        for topic in topics:
            if self.bytes.rates.get(topic.name) == 0:
                found[topic.name] = 0.0
                continue
            known = [self.ends.rates.get(TopicPartition(topic.name, each.partition)) for each in topic.partitions]
            if all(rate is not None for rate in known):
                found[topic.name] = sum(rate for rate in known if rate is not None)
        return found


def ask_topics(client: Client, rates: Rates) -> Topics:
    """All topics with their sizes and rates. A topic's size is that of one copy: of each partition the leader's."""
    with collector.paused():  # these are freed without it, and it would look at hundreds of thousands of them
        return _ask_topics(client, rates)


def _ask_topics(client: Client, rates: Rates) -> Topics:
    topics = list_topics(client)
    found = ask_sizes(client)
    sizes = {
        topic.name: sum(
            found.of_leader(TopicPartition(topic.name, entry.partition), entry.leader) or 0
            for entry in topic.partitions
        )
        for topic in topics
    }
    if found.of is not None and not found.silent:
        rates.bytes.take(time.monotonic(), sizes)
    rates.ends.take(time.monotonic(), _ask_ends(client, rates.busy_partitions(topics)))
    growth, records = dict(rates.bytes.rates), rates.records_of(topics)
    return Topics(
        topics,
        None if found.of is None else sizes,
        found.problem,
        time.time_ns() // 1_000_000,
        found.of_brokers(),
        found.silent,
        found.failed,
        found.damaged,
        growth,
        records,
        count(topics, growth, records),
    )


def _ask_ends(client: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of partitions, of those that are told in time."""
    if not partitions:
        return {}
    try:
        with patience(client, _ENDS_SECONDS):
            found = list_offsets(client, dict.fromkeys(partitions, LATEST))
    except ClientError:
        return {}  # a leader is down: there are no rates then
    return {partition: each.offset for partition, each in found.items() if not isinstance(each, ResponseError)}


class TopicCatalogue:
    """The topics, asked for by one task at a time, which goes on when the page that began it has gone."""

    def __init__(
        self, cluster: Cluster, fresh_seconds: float = _LEAST_SECONDS, times_as_long: int = _TIMES_AS_LONG
    ) -> None:
        """Topics are fresh for so many seconds, or as many ``times_as_long`` as it takes to ask for them."""
        self._cluster = cluster
        self._fresh_seconds = fresh_seconds
        self._times_as_long = times_as_long
        self._known: Topics | None = None
        self._rates = Rates()
        self.traffic = Courses()
        """Bytes and records a second: of each topic (the busiest if they are many), and of all under an empty name."""
        self._asked_at = 0.0
        self._took = 0.0
        self._stale_at = 0.0
        self._changed_at = 0.0
        self._asking: _Asking | None = None
        self._failure: Exception | None = None
        """The outcome of the last question, if it failed: earlier topics are not shown for ever."""

    async def get(self, *, fresh: bool = False) -> Topics:
        """The topics; with ``fresh`` as they are now, otherwise perhaps those of a moment ago."""
        wanted_at = time.monotonic()
        while True:
            least = wanted_at if fresh else self._changed_at
            if (known := self._told_since(least)) is not None and (fresh or time.monotonic() < self._stale_at):
                return known
            if self._asking is None:
                self._asking = _Asking()
                # The task outlives this request, and must never fail: what it raises is told to whoever waits.
                trio.lowlevel.spawn_system_task(self._ask, self._asking)
            asking = self._asking
            is_shown = known is not None and not fresh
            with trio.move_on_after(math.inf if not is_shown else _PATIENCE if self._took <= _PATIENCE else 0):
                await asking.done.wait()
            if asking.error is not None:
                raise asking.error
            if not fresh and (known := self._told_since(self._changed_at)) is not None:
                if self._failure is not None:
                    raise self._failure
                return known

    def _told_since(self, least: float) -> Topics | None:
        """The topics that are known, if they were asked for at that time or later."""
        return self._known if self._asked_at >= least else None

    async def _ask(self, asking: _Asking) -> None:
        began = time.monotonic()
        try:
            self._known = await self._cluster.ask(lambda client: ask_topics(client, self._rates))
            self._note_traffic(self._known)
            now = time.monotonic()
            self._failure = None
            self._asked_at = began
            self._took = now - began
            self._stale_at = now + max(self._fresh_seconds, self._times_as_long * self._took)
        except Exception as error:
            asking.error = self._failure = error
        finally:
            self._asking = None
            asking.done.set()

    def _note_traffic(self, topics: Topics) -> None:
        totals = topics.totals
        if totals.bytes_rate is not None:
            self.traffic.look("", topics.at_ms, round(totals.bytes_rate), totals.records_rate)
        for name in nlargest(MOST_COURSES - 1, topics.growth, key=topics.growth.__getitem__):
            self.traffic.look(name, topics.at_ms, round(topics.growth[name]), topics.records.get(name))

    def forget(self) -> None:
        """Wait for what the cluster says from now on: something has been changed."""
        self._changed_at = time.monotonic()


class _Asking:
    """A question that is under way: when it is done, it may have failed."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: Exception | None = None
