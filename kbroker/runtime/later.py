"""A value that comes later: a response, the outcome of a coordinator's step, an answer of another broker."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

if TYPE_CHECKING:
    from kbroker.errors import ApiError

T = TypeVar("T")


class Later(Generic[T]):
    """A value, or the error instead of it, that is given once. ``await`` it in a task, or have a callback called.

    A handler returns one to have its connection read on: the reply keeps its place in the order of replies. It gives a
    response in any case, and an error only as part of it: the reply queue does not know the request any more.
    """

    __slots__ = ("__weakref__", "_begin", "done", "error", "value", "wake")

    value: T
    """There once it is ``done`` without an error."""

    def __init__(self, begin: Callable[[Later[T]], None] | None = None) -> None:
        """``begin``, if given, is called with this object once somebody waits for it, and then gives the value.

        A reply that it gives goes out at once, before the rest of what ``begin`` does.
        """
        self.done = False
        self.error: ApiError | None = None
        self.wake: Callable[[], None] | None = None
        """Called once it is done. ``on_done`` sets it, and a connection that waits in place (``services.Awaited``)."""
        self._begin = begin

    def set(self, value: T) -> None:
        """Give the value. After a first value or error this does nothing: a time-out may have come before."""
        if self.done:
            return
        self.done = True
        self.value = value
        wake = self.wake
        if wake is not None:
            self.wake = None
            wake()

    def fail(self, error: ApiError) -> None:
        """Give the error instead of the value, as `set`."""
        if self.done:
            return
        self.done = True
        self.error = error
        wake = self.wake
        if wake is not None:
            self.wake = None
            wake()

    def result(self) -> T:
        """The value, once it is ``done``; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value

    def on_done(self, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called when it is done, at once if it is, and after the callbacks given before."""
        if self.done:
            callback()
            return
        earlier = self.wake
        self.wake = callback if earlier is None else _in_turn(earlier, callback)
        begin = self._begin
        if begin is not None:
            self._begin = None
            begin(self)

    def __await__(self) -> Generator[Any, None, T]:
        """`result`, once it is done. No checkpoint if it is."""
        if not self.done:
            woken = trio.Event()
            self.on_done(woken.set)
            yield from woken.wait().__await__()
        return self.result()


def _in_turn(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        first()
        second()

    return both
