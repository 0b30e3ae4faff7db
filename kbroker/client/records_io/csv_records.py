"""Records as CSV: a row each, with everything of a record but its offset coming back as it was.

The first row has the names. ``key_encoding`` and ``value_encoding`` tell how ``key`` and ``value`` are to be read:
``text``; ``base64``, where they are not UTF-8; ``null``; and ``apostrophe``, text after an apostrophe, which stands
there because a spreadsheet would take the text for a formula. It stands before base64 that begins with +, too.
``headers`` is a list in JSON, empty for none.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kbroker.client.records_io.csv_rows import csv_rows
from kbroker.client.records_io.items import BadLine, Item
from kbroker.client.records_io.json_records import Headers, from_base64, headers_of, headers_text, parse_json, to_base64
from kbroker.wire.batch_header import NO_TIMESTAMP
from kbroker.wire.record_batch import Record

COLUMNS: Final = (
    "partition", "offset", "timestamp", "key", "value", "headers", "key_encoding", "value_encoding",
)  # fmt: skip

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


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
        return text.encode()


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
