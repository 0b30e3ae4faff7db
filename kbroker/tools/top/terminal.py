"""A terminal as ``kbroker top`` uses it: a screen of its own, of which only lines that change are written, and keys.

ANSI sequences that every terminal of today knows, by the standard library alone. What was on the terminal before comes
back at the end, however the program ends, and while it is stopped (Ctrl-Z).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Final

from kbroker.tools.top.cells import BAD, GOOD, WARN
from kbroker.tools.top.keys import keys_of
from kbroker.tools.top.screen import BOLD, DIM, REVERSE, Line

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The other screen, without a cursor and without wrapping, empty."""

_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"

_BEGIN: Final = "\x1b[?2026h"
_END: Final = "\x1b[?2026l"
"""Between them a terminal that can does not show half of a screen."""

_COLOURS: Final = {GOOD: "32", WARN: "33", BAD: "31"}
_WEIGHTS: Final = {BOLD: "1", DIM: "2", REVERSE: "7", BAD: "1", WARN: "1"}
"""Without colours what is wrong is bold."""


def is_usable() -> bool:
    """Whether standard input and output are a terminal that can move its cursor."""
    has_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    return has_terminal and os.environ.get("TERM", "dumb") != "dumb"


def painted(line: Line, *, colours: bool) -> str:
    """A line with its styles."""
    parts = []
    for text, style in line:
        code = _COLOURS.get(style) if colours else None
        code = code or _WEIGHTS.get(style)
        parts.append(f"\x1b[{code}m{text}\x1b[0m" if code else text)
    return "".join(parts)


def changes(before: Sequence[str] | None, lines: Sequence[str]) -> str:
    """The text that makes a terminal show ``lines``, which showed ``before`` (None: it is not known)."""
    parts = []
    for index, line in enumerate(lines):
        if before is None or index >= len(before) or before[index] != line:
            parts.append(f"\x1b[{index + 1};1H{line}\x1b[K")
    if before is None or len(before) > len(lines):
        parts.append("\x1b[J" if parts else "")
    return f"{_BEGIN}{''.join(parts)}{_END}" if any(parts) else ""


class Terminal:
    """The terminal of this process; a context manager. ``wait`` gives keys, and tells of a new size by "resize"."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._shown: list[str] | None = None
        self._before: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._events: list[str] = []

    def __enter__(self) -> Terminal:
        self._before = termios.tcgetattr(0)
        self._enter()
        handlers: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGWINCH: self._resized,
            signal.SIGTSTP: self._stopped,
            signal.SIGTERM: self._told_to_end,
            signal.SIGHUP: self._told_to_end,
            signal.SIGQUIT: self._told_to_end,
        }
        for number, handler in handlers.items():
            self._handlers[number] = signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._leave()
        os.close(self._woken)
        os.close(self._wake)

    def _enter(self) -> None:
        tty.setcbreak(0, termios.TCSANOW)
        self._shown = None
        self._write(_ENTER)

    def _leave(self) -> None:
        try:
            self._write(_LEAVE)
        except OSError:  # the terminal has gone
            return
        if self._before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, self._before)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            columns, lines = os.get_terminal_size(1)
        except OSError:
            return 80, 24
        return max(columns, 1), max(lines, 1)

    def show(self, lines: Sequence[Line]) -> None:
        """Show lines, by writing those that have changed."""
        text = [painted(line, colours=self._colours) for line in lines]
        self._write(changes(self._shown, text))
        self._shown = text

    def redraw(self) -> None:
        """Write everything the next time."""
        self._shown = None

    def wait(self, seconds: float) -> list[str]:
        """Keys that have been pressed, and what else has come; empty after so many seconds. The end of input is "q"."""
        if not self._events:
            ready, _, _ = select.select([0, self._woken], [], [], max(seconds, 0))
            if self._woken in ready:
                os.read(self._woken, 4096)
            if 0 in ready:
                data = os.read(0, 4096)
                self._events += keys_of(data.decode("utf-8", "replace")) if data else ["q"]
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        """End a ``wait`` of another thread."""
        try:
            os.write(self._wake, b"!")
        except OSError:  # it is full: then ``wait`` ends anyway; or closed, as the program ends
            pass

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        while data:
            written = os.write(1, data)
            data = data[written:]

    def _resized(self, number: int, frame: FrameType | None) -> None:
        self._events.append("resize")
        self.wake()

    def _stopped(self, number: int, frame: FrameType | None) -> None:
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()
        self._resized(number, frame)

    def _told_to_end(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)
