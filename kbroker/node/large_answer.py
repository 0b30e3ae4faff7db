"""Answers with very many topics or partitions: one is made at a time on a node, and encoded in a thread.

Each takes tens of megabytes until it is encoded, and all consumers with a pattern may ask at once. The thread is one of
those that the node flushes its logs with: no more than one is taken from them. Garbage is not looked for meanwhile: the
collector would go through all that the node has, and the answer is freed without it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from kbroker import collector
from kbroker.node.reply_queue import encoded_frame

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.handlers.context import Services
    from kbroker.types import Part
    from kbroker.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
    from kbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

MANY = 2000
"""Topics or partitions of an answer from which on it is encoded in a thread: it would hold up the others for ten
milliseconds, and with 100,000 topics for half a second."""

SWITCH_SECONDS: Final = 0.0005
"""Seconds that the event loop waits for the thread at most, at each call of the system that it makes meanwhile. With
Python's 5 ms a round with a hundred connections would take a second."""

_FREED_AT_ONCE: Final = 200
"""Topics, or partitions of one, that are freed in one step. 100,000 of them take a tenth of a second."""


class _Topic(Protocol):
    @property
    def partitions(self) -> Sized: ...


class LargeAnswer:
    """The answer to a Metadata or a DescribeLogDirs, large or not: a call of ``begin`` has one of ``end`` after it."""

    __slots__ = ("_done", "_has_turn", "_lock", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = services.long_steps.large_answers
        self._has_turn = False
        self._done: MetadataResponse | DescribeLogDirsResponse | None = None
        """An answer that is encoded. It is freed in a thread, too."""

    async def begin(self, request: MetadataRequest | DescribeLogDirsRequest, version: int) -> None:
        """Wait for a turn, if the request asks for all topics and there are many."""
        asks_all = request.topics is None or (version == 0 and not request.topics)  # version 0 of Metadata has no null
        if asks_all and _are_many(self._services.metadata.image.topics.by_name.values()):
            await self._take_turn()

    async def is_large(self, response: MetadataResponse | DescribeLogDirsResponse) -> bool:
        """Whether there is so much in an answer that it is to be ``encoded`` here. It has the turn then."""
        if not _are_many(_topics_of(response)):
            return False
        if not self._has_turn:
            await self._take_turn()
        return True

    async def encoded(
        self, api_key: int, version: int, correlation_id: int, response: MetadataResponse | DescribeLogDirsResponse
    ) -> list[Part]:
        """The frame of an answer: `encoded_frame` in a thread, with its ``CloseConnection``."""
        self._done = response
        return await self._services.env.run_blocking(_encode, api_key, version, correlation_id, response)

    def end(self) -> None:
        """Let the next one have its turn. The answer may be looked at until the caller waits for anything."""
        if self._done is not None:
            trio.lowlevel.spawn_system_task(_free, self._services.env, self._done)
            self._done = None
        if self._has_turn:
            self._has_turn = False
            collector.resume()
            self._lock.release()

    async def _take_turn(self) -> None:
        await self._lock.acquire()
        self._has_turn = True
        collector.pause()


def _encode(api_key: int, version: int, correlation_id: int, response: object) -> list[Part]:
    with short_turns():
        return encoded_frame(api_key, version, correlation_id, response)


async def _free(env: Env, response: MetadataResponse | DescribeLogDirsResponse) -> None:
    """Free the topics of an answer in a thread; the connection has nothing but its frame any more."""
    lists: Sequence[list[Any]] = (
        [each.topics for each in response.results] if hasattr(response, "results") else [response.topics]
    )
    await env.run_blocking(_empty, lists)


def _empty(lists: Sequence[list[Any]]) -> None:
    with short_turns():
        for topics in lists:
            for topic in topics:
                while len(topic.partitions) > _FREED_AT_ONCE:
                    del topic.partitions[-_FREED_AT_ONCE:]
            while topics:
                del topics[-_FREED_AT_ONCE:]


_lock = threading.Lock()
_in_short_turns = 0
_usual_seconds = 0.0


@contextmanager
def short_turns() -> Iterator[None]:
    """A block of a thread that gives the interpreter to others after ``SWITCH_SECONDS``, if they want it."""
    global _in_short_turns, _usual_seconds
    with _lock:
        if not _in_short_turns:
            _usual_seconds = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_SECONDS)
        _in_short_turns += 1
    try:
        yield
    finally:
        with _lock:
            _in_short_turns -= 1
            if not _in_short_turns:
                sys.setswitchinterval(_usual_seconds)


def _topics_of(response: MetadataResponse | DescribeLogDirsResponse) -> Collection[_Topic]:
    """The topics of an answer to Metadata, or to DescribeLogDirs in its directories."""
    if hasattr(response, "results"):
        return [topic for directory in response.results for topic in directory.topics]
    return response.topics


def _are_many(topics: Collection[_Topic]) -> bool:
    return len(topics) > MANY or sum(len(topic.partitions) for topic in topics) > MANY
