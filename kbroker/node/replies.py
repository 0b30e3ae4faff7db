"""A connection and its dispatcher as they see one another, for the type checker: something may be between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kbroker.handlers.context import Services
    from kbroker.handlers.registration import Registration
    from kbroker.handlers.services.connection import Connection
    from kbroker.later import Later
    from kbroker.node.reply_queue import ReplyQueue
    from kbroker.round import Round
    from kbroker.types import Part


class Replies(Protocol):
    """The queue of a connection's replies, as a dispatcher sees it (``node.reply_queue``)."""

    @property
    def slots(self) -> Any:
        """Delayed replies, and those behind them."""
        ...

    @property
    def parts(self) -> Any:
        """Parts to be written; a shortcut's reply is appended if there are no ``slots``."""
        ...

    def add(self, parts: list[Part]) -> None:
        """A whole frame."""
        ...

    def answer(self, response: Any, api_key: int, version: int, correlation_id: int) -> None:
        """A handler's response, which may be one that comes later, or None."""
        ...

    def delay(self, delayed: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """A reply that comes later."""
        ...


class Serves(Protocol):
    """A dispatcher, as a connection sees it (``node.dispatcher``)."""

    @property
    def requests(self) -> int: ...

    @property
    def surplus_bytes(self) -> int: ...

    def show_replies(self, between: Callable[[Replies], Replies]) -> None: ...

    def forget_requests(self) -> None: ...

    def restrict(self, api_keys: Collection[int] | None) -> None: ...

    def serve_now(self, frame: memoryview, round: Round | None = None) -> bool: ...

    async def serve(self, frame: memoryview) -> None: ...


class MakeDispatcher(Protocol):
    """Makes the dispatcher of a connection."""

    def __call__(
        self, connection: Connection, services: Services, table: Mapping[int, Registration], replies: ReplyQueue, /
    ) -> Serves: ...
