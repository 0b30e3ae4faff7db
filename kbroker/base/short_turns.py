"""Threads that work for long let the event loop have Python's lock after half a millisecond, not after five."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SWITCH_SECONDS: Final = 0.0005
"""Seconds that the event loop waits for a thread at most, at each call of the system that it makes meanwhile. With
Python's 5 ms a round with a hundred connections would take a second."""

_lock = threading.Lock()
_in_short_turns = 0
_usual_seconds = 0.0


@contextmanager
def short_turns() -> Iterator[None]:
    """A block in which all threads give the interpreter to others after ``SWITCH_SECONDS``, if they want it."""
    global _in_short_turns, _usual_seconds
    with _lock:
        if not _in_short_turns:
            _usual_seconds = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_SECONDS)
        _in_short_turns += 1
    try:
        yield
    finally:
        with _lock:
            _in_short_turns -= 1
            if not _in_short_turns:
                sys.setswitchinterval(_usual_seconds)
