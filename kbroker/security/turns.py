"""The order of those who log in: one step of letting somebody in, between two turns of all others.

Pure: a turn is told to it, and a waiting step is whatever the caller makes of it.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Step = TypeVar("Step")


class Turns(Generic[Step]):
    """Steps in the order in which they have asked; each turn has at most one."""

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[Step] = deque()

    @property
    def waiting(self) -> int:
        """The number of steps that wait."""
        return len(self._waiting)

    def take(self) -> bool:
        """Have the present turn, if nobody has had it. Otherwise the step is to :meth:`wait`."""
        if self._is_taken:
            return False
        self._is_taken = True
        return True

    def wait(self, step: Step) -> None:
        """Line up behind all that wait."""
        self._waiting.append(step)

    def leave(self, step: Step) -> None:
        """Wait no longer. The others keep their order."""
        self._waiting.remove(step)

    def next(self) -> Step | None:
        """Begin another turn: it is had by the first that waits, which is returned, or by whoever takes it."""
        if self._waiting:
            self._is_taken = True
            return self._waiting.popleft()
        self._is_taken = False
        return None
