"""All topics of a cluster, remembered for a moment: a page that scrolls must not ask for them all each time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from kbroker.client import Client
from kbroker.client.topics import TopicDescription, list_topics
from kbroker.console.asking import Cluster
from kbroker.console.sizes import ask_sizes
from kbroker.types import TopicPartition

_LEAST_SECONDS: Final = 2.0
_TIMES_AS_LONG: Final = 10
"""Topics are asked for again after as many times the time that asking took."""


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


def ask_topics(client: Client) -> Topics:
    """All topics with their sizes. A topic's size is that of one copy: of each partition the leader's."""
    topics = list_topics(client)
    found = ask_sizes(client)
    sizes = {
        topic.name: sum(
            found.of_leader(TopicPartition(topic.name, entry.partition), entry.leader) or 0
            for entry in topic.partitions
        )
        for topic in topics
    }
    return Topics(
        topics,
        None if found.of is None else sizes,
        found.problem,
        time.time_ns() // 1_000_000,
        found.of_brokers(),
        found.silent,
        found.failed,
    )


class TopicCatalogue:
    """The topics, asked for by one task at a time; the others wait for its answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = trio.Lock()
        self._known: Topics | None = None
        self._asked_at = 0.0
        self._stale_at = 0.0

    async def get(self, *, fresh: bool = False) -> Topics:
        """The topics, at most a little old; with ``fresh`` as they are now."""
        wanted_at = time.monotonic()
        async with self._lock:
            began = time.monotonic()
            if self._known is not None and began < self._stale_at and (not fresh or self._asked_at >= wanted_at):
                return self._known
            self._known = await self._cluster.ask(ask_topics)
            now = time.monotonic()
            self._asked_at = began
            self._stale_at = now + max(_LEAST_SECONDS, _TIMES_AS_LONG * (now - began))
            return self._known

    def forget(self) -> None:
        """Ask anew the next time: something has been changed."""
        self._stale_at = 0.0
