"""Rows of CSV out of lines, some of which do not end where they should: what is wrong is told by its line.

A field within quotes may hold line ends, so a quote that is not closed takes in what comes after it. The rest of such a
row is held as bytes until its quotes are closed; the row is given up, with the rest of the input, once that does not
happen.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from kbroker.client.records_io.items import BadLine

MAX_ROW: Final = 256 << 20
"""Bytes of a row after its first line, and characters of a field: what a broker takes is smaller, in base64 too."""

_WITHIN_QUOTES: Final = re.compile(r'(?:[^"]++|"")*+')


class _Unclosed(Exception):
    """A quote that is not closed. ``line`` is where it begins."""

    def __init__(self, line: int, count: int, limit: int | None) -> None:
        where = "before the end of the input" if limit is None else f"within {limit >> 20} MiB, the most that is read"
        what = "the line is not stored" if count == 1 else f"nothing of the row's {count:,} lines is stored"
        super().__init__(f"a quote that begins here is not closed {where}; {what}")
        self.line = line


def csv_rows(
    lines: Iterable[bytes], delimiter: str = ",", *, max_row: int = MAX_ROW
) -> Iterator[tuple[int, list[str]] | BadLine]:
    """Rows with the number of their first line. Fields may hold line ends within quotes; empty lines are left out.

    What is not UTF-8 comes as surrogates. After a quote that is not closed nothing comes: nobody can tell rows from its
    text.
    """
    csv.field_size_limit(MAX_ROW)
    text = _Text(lines, delimiter, max_row)
    rows = csv.reader(text, delimiter=delimiter, strict=True)
    while True:
        text.begin_row()
        try:
            row = next(rows)
        except StopIteration:
            return
        except _Unclosed as error:
            yield BadLine(error.line, str(error))
            return
        except csv.Error as error:
            yield BadLine(text.first, _told(error, text.last - text.first))
            continue
        if row:
            yield text.first, row


def _told(error: csv.Error, further: int) -> str:
    if not further:
        return str(error)
    down = "in the next line" if further == 1 else f"{further:,} lines further down"
    return f"{error}, {down}, where a quote of this line ends; nothing of these lines is stored"


class _Text:
    """Lines for a ``csv.reader``, which asks for another one where a quote is open at the end of the one before."""

    def __init__(self, lines: Iterable[bytes], delimiter: str, max_row: int) -> None:
        self._lines = iter(lines)
        self._delimiter = delimiter
        self._max_row = max_row
        self._read = 0
        """Lines that are taken from the input."""
        self._ahead: deque[bytes] = deque()
        """The rest of a row whose quotes are all closed."""
        self._begins = False
        self.first = 0
        """The number of the row's first line."""
        self.last = 0
        """The number of the line that the reader has had last."""

    def begin_row(self) -> None:
        """Note that the line that comes next begins a row; what is left of one that was wrong is passed over."""
        self._begins = True
        self._ahead.clear()

    def __iter__(self) -> _Text:
        return self

    def __next__(self) -> str:
        if self._begins:
            line = next(self._lines)
            self._read += 1
            self.first = self.last = self._read
            self._begins = False
            return line.decode("utf-8-sig" if self._read == 1 else "utf-8", "surrogateescape") + "\n"
        if not self._ahead:
            self._close_quotes()
        self.last += 1
        return _decoded(self._ahead.popleft())

    def _close_quotes(self) -> None:
        """Read the rest of the row, which goes on within quotes. ``_Unclosed`` if it does not end."""
        held = bytearray()
        begun = self.first
        for line in self._lines:
            self._read += 1
            held += line
            held += b"\n"
            opened = _open_at_end(_decoded(line), self._delimiter)
            if opened is None:
                self._ahead.extend(bytes(held).split(b"\n")[:-1])
                return
            if opened:
                begun = self._read
            if len(held) > self._max_row:
                raise _Unclosed(begun, self._read - self.first + 1, self._max_row)
        raise _Unclosed(begun, self._read - self.first + 1, None)


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape") + "\n"


def _open_at_end(text: str, delimiter: str) -> int | None:
    """Where the quote begins that is open at the end of a line: 0 for the one in which the line begins, None for none.

    A line that is no CSV from some place on counts as ended there: the reader says what is wrong.
    """
    begun = at = 0
    while True:
        inside = _WITHIN_QUOTES.match(text, at)
        assert inside is not None
        at = inside.end()
        if at == len(text):
            return begun
        if not text.startswith(delimiter, at + 1):
            return None
        at += 2
        while not text.startswith('"', at):
            at = text.find(delimiter, at) + 1
            if not at:
                return None
        at += 1
        begun = at
