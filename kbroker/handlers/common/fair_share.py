"""Fair share of the event loop: a request with many parts gives way to others after some of them. Not an API itself.

Fetch and Produce count for themselves. Their loops are no coroutines: a short request gives way to nobody, and an await
for each partition would cost more than the counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext

T = TypeVar("T")


def portions(ctx: RequestContext, whole: Iterable[T]) -> Iterator[list[T]]:
    """Cut the parts of a request into portions, each to be served in one turn."""
    parts, most = iter(whole), ctx.budgets.turn_parts
    while portion := list(islice(parts, most)):
        yield portion


class FairShare:
    """Counts the parts of one request. Its handler awaits ``next`` before each of them."""

    __slots__ = ("_left", "_parts")

    def __init__(self, ctx: RequestContext) -> None:
        self._left = self._parts = ctx.budgets.turn_parts

    async def next(self, parts: int = 1) -> None:
        """Give way to others once ``Budgets.turn_parts`` have been served. The node's state may be another afterwards.

        ``parts`` is greater than 1 for a part that takes as long as several.
        """
        self._left -= parts
        if self._left <= 0:
            self._left = self._parts
            await trio.lowlevel.checkpoint()
