"""Answers with very many topics or partitions: one is made at a time on a node, and encoded in a thread.

Each takes tens of megabytes until it is encoded, and all consumers with a pattern may ask at once. The thread is one of
those that the node flushes its logs with: no more than one is taken from them.
"""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import TYPE_CHECKING, Protocol

from kbroker.node.reply_queue import encoded_frame

if TYPE_CHECKING:
    from kbroker.handlers.context import Services
    from kbroker.types import Part
    from kbroker.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
    from kbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

MANY = 2000
"""Topics or partitions of an answer from which on it is encoded in a thread: it would hold up the others for ten
milliseconds, and with 100,000 topics for half a second."""


class _Topic(Protocol):
    @property
    def partitions(self) -> Sized: ...


class LargeAnswer:
    """The answer to a Metadata or a DescribeLogDirs, large or not: a call of ``begin`` has one of ``end`` after it."""

    __slots__ = ("_has_turn", "_lock", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = services.long_steps.large_answers
        self._has_turn = False

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
        return await self._services.env.run_blocking(encoded_frame, api_key, version, correlation_id, response)

    def end(self) -> None:
        """Let the next one have its turn."""
        if self._has_turn:
            self._has_turn = False
            self._lock.release()

    async def _take_turn(self) -> None:
        await self._lock.acquire()
        self._has_turn = True


def _topics_of(response: MetadataResponse | DescribeLogDirsResponse) -> Collection[_Topic]:
    """The topics of an answer to Metadata, or to DescribeLogDirs in its directories."""
    if hasattr(response, "results"):
        return [topic for directory in response.results for topic in directory.topics]
    return response.topics


def _are_many(topics: Collection[_Topic]) -> bool:
    return len(topics) > MANY or sum(len(topic.partitions) for topic in topics) > MANY
