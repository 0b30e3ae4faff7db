"""Measure the work of a coroutine: the time of its steps, without what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import coroutine
from typing import Any


@coroutine
def timed_steps(work: Any, start: Callable[[], object], stop: Callable[[], object]) -> Generator[Any, Any, Any]:
    """Run the coroutine ``work``; ``start`` and ``stop`` are called around each of its steps.

    In between it waits, and others work. Returns what it returns, and raises what it raises.
    """
    send, value = work.send, None
    while True:
        start()
        try:
            wanted = send(value)
        except StopIteration as end:
            return end.value
        finally:
            stop()
        try:
            value = yield wanted
            send = work.send
        except BaseException as error:
            send, value = work.throw, error
