"""Ends a node that takes too long to come up (``server.max.startup.time.ms``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from kbroker.errors import FatalError


class StartLimit:
    """The deadline of a start, counted from when this object is made."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._deadline = trio.current_time() + limit_ms / 1000

    @contextmanager
    def up_in_time(self) -> Iterator[None]:
        """Run the block that brings the node up: `FatalError` if it takes too long. Tasks that it starts go on."""
        with trio.CancelScope(deadline=self._deadline) as scope:
            yield
        if scope.cancelled_caught:
            raise FatalError(f"the node is not up within server.max.startup.time.ms ({self._limit_ms} ms)")
