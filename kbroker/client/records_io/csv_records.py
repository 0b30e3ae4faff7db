"""Records as CSV: a row each, with everything of a record but its offset coming back as it was.

The first row has the names. ``key_encoding`` and ``value_encoding`` tell how ``key`` and ``value`` are to be read:
``text``; ``base64``, where they are not UTF-8; ``null``; and ``apostrophe``, text after an apostrophe, which stands
there because a spreadsheet would take the text for a formula. It stands before base64 that begins with +, too.
``headers`` is a list in JSON, empty for none.

A field within quotes may hold line ends, so a quote that is not closed takes in what comes after it. The rest of such a
row is held as bytes until its quotes are closed; the row is given up, with the rest of the input, once that does not
happen.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kbroker.client.records_io.items import BadLine, Item
from kbroker.client.records_io.json_records import Headers, from_base64, headers_of, headers_text, parse_json, to_base64
from kbroker.wire.batch_header import NO_TIMESTAMP
from kbroker.wire.record_batch import Record

COLUMNS: Final = (
    "partition", "offset", "timestamp", "key", "value", "headers", "key_encoding", "value_encoding",
)  # fmt: skip

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


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
        return _line_of(self._ahead.popleft())

    def _close_quotes(self) -> None:
        """Read the rest of the row, which goes on within quotes. ``_Unclosed`` if it does not end."""
        held = bytearray()
        begun = self.first
        for line in self._lines:
            self._read += 1
            held += line
            held += b"\n"
            opened = _open_at_end(_line_of(line), self._delimiter)
            if opened is None:
                self._ahead.extend(bytes(held).split(b"\n")[:-1])
                return
            if opened:
                begun = self._read
            if len(held) > self._max_row:
                raise _Unclosed(begun, self._read - self.first + 1, self._max_row)
        raise _Unclosed(begun, self._read - self.first + 1, None)


def _line_of(line: bytes) -> str:
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


class CsvWriter:
    """Makes rows of records; the first call gives the row of names before its own."""

    def __init__(self) -> None:
        self._out = io.StringIO()
        self._rows = csv.writer(self._out)
        self._rows.writerow(COLUMNS)

    def row(self, partition: int, record: Record) -> bytes:
        """A record's row."""
        offset, timestamp, key, value, headers = record
        key_encoding, shown_key = _encoded(key)
        value_encoding, shown_value = _encoded(value)
        shown_headers = headers_text(headers) if headers else ""
        self._rows.writerow(
            (partition, offset, timestamp, shown_key, shown_value, shown_headers, key_encoding, value_encoding)
        )
        return self.rest()

    def rest(self) -> bytes:
        """The row of names, if there was no record to give it with."""
        text = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return text.encode("utf-8", "backslashreplace")  # of the JSON of headers, whose names may be any bytes


def _encoded(data: bytes | None) -> tuple[str, str]:
    """The encoding of a key or value, and its cell."""
    if data is None:
        return "null", ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = to_base64(data)
        return "base64", f"'{text}" if text.startswith(_FORMULA) else text
    return ("apostrophe", f"'{text}") if text.startswith(_FORMULA) else ("text", text)


def _decoded(encoding: str, cell: str, name: str) -> bytes | None:
    match encoding:
        case "" | "text":
            return cell.encode()
        case "null":
            return None
        case "base64":
            return from_base64(cell.removeprefix("'"), name)
        case "apostrophe":
            return cell.removeprefix("'").encode()
    raise ValueError(f"{name}_encoding is {encoding!r}, not text, base64, null or apostrophe")


def read_csv_records(lines: Iterable[bytes], clock: Callable[[], int]) -> Iterator[Item | BadLine]:
    """The records of rows; ``clock`` gives the time, in ms, of those that have no timestamp.

    Of the columns only ``value`` has to be there.
    """
    names: Sequence[str] | None = None
    for found in csv_rows(lines):
        if isinstance(found, BadLine):
            yield found
            continue
        line, row = found
        if names is None:
            names = row
            problem = _bad_columns(names)
            if problem is not None:
                yield BadLine(line, problem)
                return
            continue
        if len(row) != len(names):
            yield BadLine(line, f"{len(row)} fields where the first row has {len(names)}")
            continue
        try:
            yield _item(dict(zip(names, row, strict=True)), line, clock)
        except (ValueError, RecursionError) as error:
            yield BadLine(line, "not UTF-8" if isinstance(error, UnicodeEncodeError) else str(error))


def _bad_columns(names: Sequence[str]) -> str | None:
    if len(set(names)) != len(names):
        return "the first row has a name twice"
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or "value" not in names:
        what = f"a column {unknown[0]}" if unknown else "no column value"
        return (
            f"the first row has {what}: records have {', '.join(COLUMNS)}"
            " (rows of another table become records by kbroker produce --input csv)"
        )
    return None


def _item(cells: dict[str, str], line: int, clock: Callable[[], int]) -> Item:
    headers: Headers = ()
    if cells.get("headers"):
        headers = headers_of(parse_json(cells["headers"].encode()))
    timestamp = _number(cells, "timestamp", NO_TIMESTAMP)
    key = _decoded(cells.get("key_encoding", ""), cells["key"], "key") if "key" in cells else None
    value = _decoded(cells.get("value_encoding", ""), cells["value"], "value")
    return Item(
        Record(0, clock() if timestamp is None else timestamp, key, value, headers),
        line,
        _number(cells, "partition", 0),
    )


def _number(cells: dict[str, str], name: str, lowest: int) -> int | None:
    text = cells.get(name, "")
    if not text:
        return None
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{name} is {text[:50]!r}, which is no number") from None
    if not lowest <= value < 2**63:
        raise ValueError(f"{name} is {value}, which cannot be")
    return value
