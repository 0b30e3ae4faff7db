"""Progress of whatever takes longer than a second: a line on standard error, if that is a terminal.

The line is written by a thread, so that it goes on while a call blocks. It is gone when the work has ended.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

FIRST: Final = 1.0
"""Seconds until the line is there."""

_EACH: Final = 0.25
_CLEAR: Final = "\r\x1b[K"
_WIDEST: Final = 78


def progress_line(task: str, done: int, total: int | None, seconds: float, shown: Callable[[int], str]) -> str:
    """The line: ``reading 1.2 GiB of 4.0 GiB, 30%, 12 s``."""
    parts = [task]
    if done:
        parts[0] += f" {shown(done)}" + (f" of {shown(total)}" if total else "")
    if total:
        parts.append(f"{min(100 * done // total, 100)}%")
    return f"{', '.join(parts)}, {seconds:.0f} s"[:_WIDEST]


class Progress:
    """Counts what is done. ``hidden`` takes the line away while something else is written."""

    def __init__(self, task: str, total: int | None, shown: Callable[[int], str], first: float) -> None:
        self._task = task
        self._first = first
        self._total = total
        self._shown = shown
        self._done = 0
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_drawn = False

    def add(self, count: int) -> None:
        """Note that more is done."""
        self._done += count

    def turn_to(self, task: str) -> None:
        """Name what is done from now on; any thread may."""
        self._task = task

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the line away for the block."""
        with self._lock:
            self._clear()
            yield

    def _clear(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            print(_CLEAR, end="", file=sys.stderr, flush=True)

    def draw_until_ended(self) -> None:
        """The work of the thread."""
        pause = self._first
        while not self._ended.wait(pause):
            pause = _EACH
            seconds = time.monotonic() - self._began
            line = progress_line(self._task, self._done, self._total, seconds, self._shown)
            with self._lock:
                if not self._ended.is_set():
                    print(f"{_CLEAR}{line}", end="", file=sys.stderr, flush=True)
                    self._is_drawn = True

    def end(self) -> None:
        """Take the line away for good."""
        self._ended.set()
        with self._lock:
            self._clear()


@contextmanager
def progress(
    task: str, *, total: int | None = None, shown: Callable[[int], str] = str, first: float = FIRST
) -> Iterator[Progress]:
    """Show the progress of a task within the block, from ``first`` seconds on.

    ``total`` and ``shown``: how much there is, and how it is told.
    """
    made = Progress(task, total, shown, first)
    if not (sys.stderr is not None and sys.stderr.isatty()):
        yield made
        return
    threading.Thread(target=made.draw_until_ended, daemon=True).start()
    try:
        yield made
    finally:
        made.end()
