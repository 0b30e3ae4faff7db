"""Limits for what a test waits for. They decide only how long a failing test hangs.

`SHORT` is for what takes a second on a quiet machine, `LONG` for processes, clusters and clients. Both are seconds that
grow with the slowness of the machine. A time that is a subject of a test, such as a session's time-out, stays a number.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

USUAL_SECONDS = 0.002
"""The time that a usual machine takes for the work of `measured`."""


def measured(clock: Callable[[], float] = time.perf_counter) -> float:
    """Returns how many times as long as a usual machine this one takes for a fixed piece of work: 1 to 10."""
    begin, total = clock(), 0
    for number in range(30_000):
        total += number * number % 7
    return min(max((clock() - begin) / USUAL_SECONDS, 1.0), 10.0)


FACTOR = float(os.environ.get("KBROKER_SLOW") or measured())
SHORT = round(60 * FACTOR)
LONG = round(300 * FACTOR)
LONG_MS = 1000 * LONG


class Late(AssertionError):
    """A test waited for a condition that did not come true in time."""


def eventually(condition: Callable[[], T | None], what: str = "", seconds: float = LONG) -> T:
    """Poll until `condition` returns something true, and return that.

    A failure says `what` was waited for, by default the code of the condition, and what was returned last.
    """
    deadline = time.monotonic() + seconds
    while not (seen := condition()):
        if time.monotonic() >= deadline:
            raise _late(condition, what, seconds, seen)
        time.sleep(0.02)
    return seen


async def until(condition: Callable[[], Any], what: str = "", seconds: float = LONG) -> Any:
    """Do as `eventually` in Trio's event loop, on its clock. `condition` may be asynchronous."""
    import trio  # later, since the process of a client has no need of it

    seen = None
    with trio.move_on_after(seconds):
        while True:
            found = condition()
            seen = await found if isinstance(found, Awaitable) else found
            if seen:
                return seen
            await trio.sleep(0.01)
    raise _late(condition, what, seconds, seen)


def _late(condition: Callable[[], object], what: str, seconds: float, seen: object) -> Late:
    code = inspect.getsource(condition).strip() if inspect.isfunction(condition) else repr(condition)
    return Late(f"not within {seconds:g} s: {what or code}; seen last: {seen!r}")
