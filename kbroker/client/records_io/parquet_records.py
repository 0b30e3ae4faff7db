"""Records in Parquet files, with the columns of `kbroker.read_topic`: what Spark, DuckDB and pandas read as it is."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from kbroker.client.records_io.arrow import RecordColumns, pyarrow_module, topic_schema
from kbroker.client.records_io.items import BadLine, Item
from kbroker.errors import FatalError
from kbroker.wire.batch_header import NO_TIMESTAMP
from kbroker.wire.record_batch import Record

if TYPE_CHECKING:
    import pyarrow

ROW_GROUP: Final = 65_536
"""Records of a row group; fewer where they are large."""

_READ_AT_ONCE: Final = 4_096

_BUFFER_BYTES: Final = 1 << 20
"""Bytes of a column that are read from the file at once."""

MAX_CHUNK: Final = 256 << 20
"""Bytes of a column of a row group, decompressed, in files of people who are not trusted."""

_BOUNDED_ROWS: Final = 256
_BOUNDED_BYTES: Final = 64 << 20
"""Rows of such a file that are in memory at once; fewer where all of them could be larger together than this."""

_UNREADABLE: Final = (OSError, ValueError, KeyError, NotImplementedError)
"""Bases of the errors of pyarrow."""

_OPTIONAL: Final = ("key", "headers", "timestamp", "partition")


def _parquet() -> Any:
    try:
        pyarrow_module()
    except ImportError:
        raise FatalError("Parquet needs the package pyarrow: pip install 'kbroker[arrow]'") from None
    import pyarrow.parquet

    return pyarrow.parquet


def check_parquet() -> None:
    """``FatalError`` says in one line which package Parquet needs, if it is missing."""
    _parquet()


class _BatchWriter(Protocol):
    """The part of pyarrow's ``ParquetWriter`` that is used."""

    def write_batch(self, batch: object) -> None: ...

    def close(self) -> None: ...


class ParquetWriter:
    """Writes records into a file, a row group at a time."""

    def __init__(self, file: BinaryIO | io.RawIOBase, topic: str) -> None:
        schema = topic_schema().with_metadata({"kafka.topic": topic})
        self._columns = RecordColumns(ROW_GROUP)
        self._writer: _BatchWriter = _parquet().ParquetWriter(file, schema, compression="zstd")

    def add(self, partition: int, record: Record) -> None:
        """Add a record."""
        self._columns.add(partition, record)
        if self._columns.is_full:
            self._writer.write_batch(self._columns.batch())

    def give_up(self) -> None:
        """Leave the file as it is, not whole: nothing is to write to it any more."""
        try:
            self._writer.close()
        except _UNREADABLE:
            pass  # the file may be what was wrong

    def close(self) -> None:
        """Write what is left; the file is whole then."""
        if self._columns:
            self._writer.write_batch(self._columns.batch())
        self._writer.close()


class ParquetRecords:
    """The records of a file. ``count`` of them; ``done`` are read."""

    def __init__(
        self, path: Path | IO[bytes], clock: Callable[[], int], begin: int = 0, *, max_chunk: int | None = None
    ) -> None:
        """``begin``: rows to pass over. ``clock`` gives the time, in ms, of records in a file without timestamps.

        ``FatalError`` if the file cannot be read, or has no values. ``max_chunk`` is for files of people who are not
        trusted with this machine's memory: rows are read in small numbers, and a row group is refused in which a column
        has more bytes, decompressed.
        """
        parquet = _parquet()
        try:
            # Otherwise the whole row group is in memory, as it is in the file.
            self._file: Any = parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        except _UNREADABLE as error:
            name = path if isinstance(path, Path) else "the file"
            raise FatalError(f"cannot read {name} as Parquet: {' '.join(str(error).split())}") from None
        self._clock = clock
        self._path = path if isinstance(path, Path) else "the file"
        self._begin = begin
        self.count: int = self._file.metadata.num_rows
        self.done = 0
        names = self._file.schema_arrow.names
        if "value" not in names:
            raise FatalError(f"{self._path} has no column value, only {', '.join(names)}")
        self._columns = ["value", *(name for name in _OPTIONAL if name in names)]
        self._at_once = _READ_AT_ONCE if max_chunk is None else self._bounded_rows(max_chunk)

    def __iter__(self) -> Iterator[Item | BadLine]:
        """The records of the rows, each with the row's number, from 1 on."""
        groups = self._groups()
        try:
            if not groups:
                return
            for batch in self._file.iter_batches(batch_size=self._at_once, row_groups=groups, columns=self._columns):
                passed = min(max(self._begin - self.done, 0), batch.num_rows)
                self.done += passed
                yield from self._items(batch.slice(passed))
        except _UNREADABLE as error:
            raise FatalError(f"cannot read {self._path}: {' '.join(str(error).split())}") from None
        finally:
            self._file.close()

    def _bounded_rows(self, max_chunk: int) -> int:
        """The number of rows that are read at once.

        A value of a dictionary is there once and may be that of every row, so a row may be as large as its column.
        """
        largest = 1
        metadata = self._file.metadata
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            chunks = [group.column(each) for each in range(group.num_columns)]
            sizes = [
                each.total_uncompressed_size for each in chunks if each.path_in_schema.split(".")[0] in self._columns
            ]
            largest = max([largest, *sizes])
        if largest > max_chunk:
            most = f"{max_chunk >> 20} MiB"
            raise FatalError(f"a row group has a column of more than {most}: kbroker import takes such files")
        return max(1, min(_BOUNDED_ROWS, _BOUNDED_BYTES // largest))

    def _groups(self) -> list[int]:
        """The row groups from the one with the first row on; those before are ``done``."""
        metadata = self._file.metadata
        first = 0
        while first < metadata.num_row_groups:
            rows = metadata.row_group(first).num_rows
            if self.done + rows > self._begin:
                break
            self.done += rows
            first += 1
        return list(range(first, metadata.num_row_groups))

    def _items(self, batch: pyarrow.RecordBatch) -> Iterator[Item | BadLine]:
        columns = {name: _values(name, batch.column(name)) for name in self._columns}
        for index in range(batch.num_rows):
            self.done += 1
            row = {name: values[index] for name, values in columns.items()}
            try:
                yield Item(self._record(row), self.done, _partition(row.get("partition")))
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                yield BadLine(self.done, f"this is no record: {error}")

    def _record(self, row: Mapping[str, Any]) -> Record:
        timestamp = row["timestamp"] if "timestamp" in row else self._clock()
        if timestamp is None:
            timestamp = NO_TIMESTAMP
        if not isinstance(timestamp, int) or not NO_TIMESTAMP <= timestamp < 2**63:
            raise ValueError(f"timestamp is {timestamp}, which cannot be: milliseconds are a whole number")
        headers = tuple((_name(header["key"]), _bytes(header["value"])) for header in row.get("headers") or ())
        return Record(0, timestamp, _bytes(row.get("key")), _bytes(row["value"]), headers)


def _values(name: str, column: Any) -> list[Any]:
    """A column as values of Python; times as milliseconds, for Python's own do not reach far enough."""
    if name == "timestamp":
        arrow = pyarrow_module()
        if arrow.types.is_timestamp(column.type):
            column = column.cast(arrow.timestamp("ms", column.type.tz), safe=False).cast(arrow.int64())
    found: list[Any] = column.to_pylist()
    return found


def _partition(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"partition is {value!r}, which cannot be")
    return value


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"{value!r} is neither text nor bytes")


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a header has no name")
    return value
