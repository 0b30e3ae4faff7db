"""Work that takes turns with everything else on the node, as handlers see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kbroker.handlers.services.connection import Connection
from kbroker.runtime.later import Later

if TYPE_CHECKING:
    import trio

T = TypeVar("T")


class TimestampLookupQueue(Protocol):
    """Look-ups by timestamp, in turns with everything else (``node.serving.timestamp_lookup_queue``)."""

    def add(self, connection: Connection, steps: Iterator[None], count: int, on_done: Callable[[], None]) -> bool:
        """Run ``count`` steps, then call ``on_done``. False if too much waits."""
        ...


class LongSteps(Protocol):
    """Keeps changes of very many parts, which clients ask the controller for, apart (``node.serving.long_steps``)."""

    large_answers: trio.Lock
    """Held by the request whose large answer is made."""

    async def turn(self) -> None:
        """Wait until the caller may make a step that takes long."""
        ...


class ProduceQueue(Protocol):
    """Produce requests that cannot be appended in one go, and those behind them (``node.serving.produce_queue``)."""

    @property
    def waiting(self) -> Collection[str]:
        """The addresses of clients whose next Produce has to wait its turn."""
        ...

    async def wait_for_room(self, peer: str) -> None:
        """Wait, before more is read from a client, while too much waits and some of it is the client's."""
        ...

    def add(
        self,
        connection: Connection,
        work: Generator[Callable[[], Any] | Later[Any] | None, Any, T],
        step: Callable[[], object] | Later[Any] | None,
        size: int,
        on_done: Callable[[T], None],
        *,
        needs_answer: bool,
    ) -> bool:
        """Go on with a request's work, and hand over its value. False if too much waits.

        ``work`` yields functions and Laters of any type, and goes on with the result of each.
        """
        ...
