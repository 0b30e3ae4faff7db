"""Fair share of the event loop: a request with many parts gives way to others after some of them. Not an API itself.

Fetch and Produce count for themselves. Their loops are no coroutines: a short request gives way to nobody, and an await
for each partition would cost more than the counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import trio

T = TypeVar("T")

PARTS = 128
"""Parts of a request that are served before others have a turn. One (a topic, a group) takes 5 to 50 microseconds."""

LONG_REQUEST = 64 * 1024
"""Bytes of a request from which on others have a turn between decoding, serving and encoding it, too."""


def portions(whole: Iterable[T]) -> Iterator[list[T]]:
    """Cut the parts of a request into portions, each to be served in one turn."""
    parts = iter(whole)
    while portion := list(islice(parts, PARTS)):
        yield portion


class FairShare:
    """Counts the parts of one request. Its handler awaits ``next`` before each of them."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = PARTS

    async def next(self, parts: int = 1) -> None:
        """Give way to others once ``PARTS`` have been served. The node's state may be another afterwards.

        ``parts`` is greater than 1 for a part that takes as long as several.
        """
        self._left -= parts
        if self._left <= 0:
            self._left = PARTS
            await trio.lowlevel.checkpoint()
