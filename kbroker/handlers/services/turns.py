"""Work that takes turns with everything else on the node, as handlers see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import Any, Protocol

from kbroker.handlers.services.connection import Connection
from kbroker.runtime.later import Later

Step = Callable[[], Any] | Later[Any] | None
"""A yield of a request's work: a function to be called in a thread, a value to wait for, or None to give way.
It goes on with the function's result or the value."""

Work = Generator[Step, Any, None]


class WorkQueue(Protocol):
    """Requests that cannot be served in one go, and those of their kind behind them (``node.serving.work_queue``)."""

    most_bytes: int
    slice_seconds: float

    @property
    def waiting(self) -> Collection[str]:
        """The addresses of clients whose next request of this kind has to wait its turn."""

    async def wait_for_room(self, peer: str) -> None:
        """Wait, before more is read from a client, while too much waits and some of it is the client's."""

    def add(self, connection: Connection, work: Work, step: Step, size: int, *, needs_answer: bool = True) -> bool:
        """Go on with a request's work, which has yielded ``step``, if it has begun. False if too much waits."""
        ...
