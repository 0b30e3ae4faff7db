"""Requests with many parts take turns with everything else that the node does. Not an API itself.

Fetch and Produce count for themselves: their loops are no coroutines, so that a short one needs nobody's turn, and to
await something for each partition would cost more than to count it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import TypeVar

import trio

T = TypeVar("T")

PARTS = 128
"""After so many parts of a request others have a turn. A part (a topic, a group, ...) takes 5 to 50 microseconds."""


def portions(whole: Collection[T]) -> Iterator[list[T]]:
    """What is asked for, in portions of so many parts as are done in one turn."""
    parts = iter(whole)
    while portion := list(islice(parts, PARTS)):
        yield portion


class Turns:
    """One request's: its handler says of each part, in whatever loop, that it comes to the next one."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = PARTS

    async def next(self, parts: int = 1) -> None:
        """Let others have a turn, if it is time to. What the handler knows of the node may be another after that.

        ``parts`` is for one that takes as long as several.
        """
        self._left -= parts
        if self._left <= 0:
            self._left = PARTS
            await trio.lowlevel.checkpoint()
