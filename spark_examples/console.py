"""The examples' output for a person: a progress line and a table. Nothing here knows Kafka or Spark."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO


class Progress:
    """One line on standard error: a bar, a count and a rate, redrawn ten times a second at most.

    On something that is no terminal (a log file, CI) only the last state is printed. A total of 0 is an unknown one.
    """

    def __init__(self, what: str, total: int, *, stream: TextIO | None = None) -> None:
        self._what, self._total = what, total
        self._stream = stream if stream is not None else sys.stderr
        self._live = self._stream.isatty()
        self._started = time.monotonic()
        self._drawn = 0.0

    def update(self, done: int) -> None:
        """Shows `done` of the total, unless the line was drawn a moment ago."""
        now = time.monotonic()
        if self._live and now - self._drawn >= 0.1:
            self._drawn = now
            self._stream.write("\r" + self._line(done) + " ")
            self._stream.flush()

    def finish(self, done: int) -> None:
        """Draws the last state and ends the line."""
        self._stream.write(("\r" if self._live else "") + self._line(done) + "\n")
        self._stream.flush()

    def _line(self, done: int) -> str:
        share = min(1.0, done / self._total) if self._total else 1.0
        seconds = max(time.monotonic() - self._started, 1e-9)
        bar = ("#" * round(share * 30)).ljust(30, ".")
        of_total = f"/{self._total:,}" if self._total else ""
        return f"{self._what:<22} [{bar}] {done:>9,}{of_total}  {done / seconds:>9,.0f}/s  {seconds:5.1f} s"


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A plain text table; numbers to the right, words to the left."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max([len(heading), *(len(row[i]) for row in cells)]) for i, heading in enumerate(headings)]
    right = [bool(rows) and isinstance(rows[0][i], (int, float)) for i in range(len(headings))]

    def line(row: Sequence[str]) -> str:
        padded = (cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(headings), line(["-" * w for w in widths]), *map(line, cells)])
