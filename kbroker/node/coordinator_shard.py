"""A partition that this node coordinates, the replies that its clients wait for, and the steps gathered for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from kbroker.coordinator.core import CoordinatorCore
from kbroker.coordinator.result import CoordinatorResult, Token
from kbroker.errors import ApiError

if TYPE_CHECKING:
    from kbroker.node.partition import Partition

C = TypeVar("C", bound=CoordinatorCore)


class PendingReply:
    """A reply that comes with a later step; ``wake`` is set by the connection that waits."""

    __slots__ = ("done", "response", "token", "wake")

    def __init__(self, token: Token) -> None:
        self.token = token
        self.done = False
        self.response: Any = None
        self.wake: Callable[[], None] | None = None

    def complete(self, response: object) -> None:
        """Give the reply; the first one counts."""
        if not self.done:
            self.done = True
            self.response = response
            if self.wake is not None:
                self.wake()

    def on_done(self, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called when the reply is there, at once if it is."""
        if self.done:
            callback()
        else:
            self.wake = callback


GatheredStep = tuple[CoordinatorResult[Any], Callable[[Any, ApiError | None], None]]
"""A step, and who is told its response, or why its records could not be stored."""


class Shard(Generic[C]):
    """A partition's core, and whether its log has been replayed.

    ``gathered`` has steps whose records are neither appended nor replayed yet, and whom to tell.
    ``gathers`` says that more are expected before the event loop comes round, which is when they are appended.
    """

    __slots__ = ("core", "gathered", "gathers", "index", "leader_epoch", "loaded", "partition")

    def __init__(self, core: C, index: int, partition: Partition, leader_epoch: int) -> None:
        self.core = core
        self.index = index
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.loaded = trio.Event()
        self.gathered: list[GatheredStep] = []
        self.gathers = False
