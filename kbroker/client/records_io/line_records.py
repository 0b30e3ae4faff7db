"""Records out of lines of text: plain lines, CSV, JSON, and records as ``kbroker consume --json`` writes them.

Each reader takes an iterator of lines (bytes without their newline) and gives an ``Item`` for each record and a
``BadLine`` for each line that holds none.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any, Final

from kbroker.client.records_io.csv_records import csv_rows
from kbroker.client.records_io.items import BadLine, Item
from kbroker.client.records_io.json_records import Headers, as_bytes, bytes_of, headers_of, parse_json
from kbroker.client.records_io.times import parse_moment
from kbroker.wire.batch_header import NO_TIMESTAMP
from kbroker.wire.record_batch import Record

_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17}(?:[eE][+-]?\d{1,3})?)?", re.ASCII)
_MAX_TIMESTAMP: Final = 2**63 - 1

Clock = Callable[[], int]


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The way from input to records. ``key`` is a key for all, ``key_column`` the column or field that is the key."""

    key: bytes | None = None
    key_separator: bytes | None = None
    key_column: str | None = None
    timestamp_column: str | None = None
    headers: Headers = ()
    null_value: bytes | None = None
    delimiter: str = ","
    typed: bool = False
    keep_partitions: bool = False
    clock: Clock = field(default=now_ms)


def read_items(kind: str, lines: Iterable[bytes], options: InputOptions) -> Iterator[Item | BadLine]:
    """The records in some lines, by the name of their format."""
    reader = {"lines": read_lines, "csv": read_csv, "json": read_json, "records": read_records}[kind]
    return reader(lines, options)


def read_lines(lines: Iterable[bytes], options: InputOptions) -> Iterator[Item | BadLine]:
    """A record a line; the key before the separator, if there is one."""
    clock, headers, null, separator = options.clock, options.headers, options.null_value, options.key_separator
    key = options.key
    for number, line in enumerate(lines, 1):
        value: bytes | None = line
        if separator is not None:
            key, found, rest = line.partition(separator)
            if not found:
                yield BadLine(number, f"no {separator.decode(errors='replace')!r} between key and value")
                continue
            value = rest
        if value == null and null is not None:
            value = None
        yield Item(Record(0, clock(), key, value, headers), number)


def read_csv(lines: Iterable[bytes], options: InputOptions) -> Iterator[Item | BadLine]:
    """A JSON object a row; the names are in the first row. Fields may hold line ends within quotes."""
    names: list[str] | None = None
    key_index = time_index = None
    as_json = _typed if options.typed else encode_basestring
    prefixes: list[str] = []
    for found in csv_rows(lines, options.delimiter):
        if isinstance(found, BadLine):
            yield found
            continue
        line, row = found
        if names is None:
            names = row
            problem = _bad_names(names, options)
            if problem:
                yield BadLine(line, problem)
                return
            key_index = names.index(options.key_column) if options.key_column is not None else None
            time_index = names.index(options.timestamp_column) if options.timestamp_column is not None else None
            prefixes = [f"{encode_basestring(name)}: " for name in names]
            continue
        if len(row) != len(names):
            yield BadLine(line, f"{len(row)} fields where the first row has {len(names)}")
            continue
        try:
            timestamp = options.clock() if time_index is None else parse_timestamp(row[time_index], options.clock())
            fields = [name + as_json(cell) for name, cell in zip(prefixes, row, strict=True)]
            value = f"{{{', '.join(fields)}}}".encode()
            key = options.key if key_index is None else row[key_index].encode()
        except ValueError as error:
            yield BadLine(line, "not UTF-8" if isinstance(error, UnicodeEncodeError) else str(error))
            continue
        yield Item(Record(0, timestamp, key, value, options.headers), line)


def _bad_names(names: Sequence[str], options: InputOptions) -> str | None:
    if len(set(names)) != len(names):
        return "the first row has a name twice"
    for column in (options.key_column, options.timestamp_column):
        if column is not None and column not in names:
            return f"the first row has no column {column}, only {', '.join(names)}"
    return None


def _typed(cell: str) -> str:
    """A cell as the JSON that it looks like; what JSON would not write so stays text (``007``)."""
    if not cell:
        return "null"
    if cell in ("true", "false") or (cell[0] in "-0123456789" and _NUMBER.fullmatch(cell)):
        return cell
    return encode_basestring(cell)


def read_json(lines: Iterable[bytes], options: InputOptions) -> Iterator[Item | BadLine]:
    """A JSON document a line, which is the value as it stands; key and timestamp may be fields of it."""
    for number, line in enumerate(lines, 1):
        value = line.strip()
        if not value:
            continue
        try:
            document = parse_json(value)
            key, timestamp = options.key, options.clock()
            if options.key_column is not None:
                key = as_bytes(_field(document, options.key_column))
            if options.timestamp_column is not None:
                timestamp = parse_timestamp(_field(document, options.timestamp_column), timestamp)
        except (ValueError, RecursionError) as error:
            yield BadLine(number, str(error))
            continue
        yield Item(Record(0, timestamp, key, value, options.headers), number)


def _field(document: Any, name: str) -> Any:
    if not isinstance(document, dict) or name not in document:
        raise ValueError(f"no field {name}")
    return document[name]


def parse_timestamp(value: Any, now: int) -> int:
    """Milliseconds: a number of them, or a time that ``parse_moment`` reads."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,19}", value, re.ASCII):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= _MAX_TIMESTAMP:
            raise ValueError(f"{value} is not a timestamp in milliseconds")
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a timestamp")
    return parse_moment(value, now)


def read_records(lines: Iterable[bytes], options: InputOptions) -> Iterator[Item | BadLine]:
    """A record a line, as ``kbroker consume --json`` writes it: key, value, headers, timestamp, partition."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _record(parse_json(line), number, options)
        except (ValueError, RecursionError) as error:
            yield BadLine(number, str(error))


def _record(document: Any, number: int, options: InputOptions) -> Item:
    if not isinstance(document, dict):
        raise ValueError("not an object with key, value, headers, timestamp, partition")
    key = bytes_of(document, "key")
    timestamp = document.get("timestamp")
    headers = headers_of(document.get("headers") or [])
    partition = document.get("partition") if options.keep_partitions else None
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool) or partition < 0):
        raise ValueError(f"{partition!r} is not a partition")
    now = options.clock()
    return Item(
        Record(
            0,
            _record_timestamp(timestamp, now),
            options.key if key is None else key,
            bytes_of(document, "value"),
            (*headers, *options.headers),
        ),
        number,
        partition,
    )


def _record_timestamp(value: Any, now: int) -> int:
    """The time of a record; one that has none, which is told by -1, has none again."""
    if value is None:
        return now
    return NO_TIMESTAMP if value == NO_TIMESTAMP else parse_timestamp(value, now)
