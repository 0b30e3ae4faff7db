"""Python's garbage collector in a process with millions of objects that stay: when it waits, and what it passes over.

A full collection looks at each object that is not frozen, and nothing else runs meanwhile: with the state of 100,000
topics it takes one or two seconds. Nearly all of kbroker's objects are freed by their reference counts.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Final

LONG_SECONDS: Final = 0.03
"""After a full collection of so long, what has survived it is not looked at again."""

_lock = threading.Lock()
_pauses = 0
_was_enabled = False


def pause() -> None:
    """Have the collector wait until a call of ``resume`` for each of ``pause``."""
    global _pauses, _was_enabled
    with _lock:
        if not _pauses:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1


def resume() -> None:
    """End a ``pause``. The collector goes on after the last one, if it was on before the first."""
    global _pauses
    with _lock:
        _pauses -= 1
        if not _pauses and _was_enabled:
            gc.enable()


@contextmanager
def paused() -> Iterator[None]:
    """A block in which the collector waits: it makes much that stays, or that is freed without it."""
    pause()
    try:
        yield
    finally:
        resume()


def freeze_survivors(long_seconds: float = LONG_SECONDS) -> Callable[[], None]:
    """Freeze what has survived a full collection of ``long_seconds`` or more, so that the next one is short.

    For a process of kbroker's own. The value ends it. A frozen object is freed by its reference count as before; only
    circles that fall apart later are not found any more.
    """
    began = 0.0

    def told(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = thread_time()
        elif info["generation"] == 2 and thread_time() - began >= long_seconds:
            gc.freeze()

    gc.callbacks.append(told)
    return lambda: gc.callbacks.remove(told)
