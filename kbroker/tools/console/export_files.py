"""Files of records that the console gives to a browser while it reads: JSON lines, CSV, Parquet."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.client.records_io.csv_records import CsvWriter
from kbroker.client.records_io.json_records import json_formatter
from kbroker.errors import FatalError
from kbroker.tools.console.call import RequestRefused
from kbroker.tools.console.scan import Found

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FORMATS: Final = {
    "json": ("jsonl", "application/x-ndjson"),
    "csv": ("csv", "text/csv; charset=utf-8"),
    "parquet": ("parquet", "application/vnd.apache.parquet"),
}
"""The ending of a file's name and its media type, by format."""

_PIECE: Final = 64 << 10


class ExportFile(Protocol):
    """A file that is being written."""

    def add(self, found: Found) -> None:
        """Write a record."""

    def finish(self) -> None:
        """Write what a whole file has at its end."""

    def give_up(self) -> None:
        """Leave it as it is: nothing more is given away."""


def check_format(kind: str) -> None:
    """``RequestRefused`` says in one line what a format lacks."""
    if kind == "parquet":
        from kbroker.client.records_io.parquet_records import check_parquet

        try:
            check_parquet()
        except FatalError as error:
            raise RequestRefused(501, str(error)) from None


def export_file(kind: str, topic: str, give: Callable[[bytes], None]) -> ExportFile:
    """A file of a format; ``give`` gets it piece by piece."""
    pieces = _Pieces(give)
    if kind == "parquet":
        return _Parquet(pieces, topic)
    if kind == "csv":
        # Rows that `kbroker import` reads; text that a spreadsheet would take for a formula is marked.
        writer = CsvWriter()
        return _Text(pieces, lambda found: writer.row(found.partition, found.record), writer.rest)

    show = json_formatter()
    return _Text(pieces, lambda found: show(topic, found.partition, found.record, found.timestamp_type), lambda: b"")


class _Pieces(io.RawIOBase):
    """A file that can only be written, from its beginning to its end, and gives away what it has."""

    def __init__(self, give: Callable[[bytes], None]) -> None:
        self._give = give
        self._pieces: list[bytes] = []
        self._size = 0
        self._given = 0
        self._ended = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._given + self._size

    def end(self) -> None:
        """Take no more: what is written from now on goes nowhere."""
        self._ended = True
        self._pieces.clear()

    def write(self, data: ReadableBuffer) -> int:
        piece = bytes(data)
        if self._ended:
            return len(piece)
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= _PIECE:
            self.give()
        return len(piece)

    def give(self) -> None:
        """Give away what is left."""
        pieces, self._pieces = self._pieces, []
        self._given += self._size
        self._size = 0
        if pieces:
            self._give(b"".join(pieces))


class _Text:
    def __init__(self, pieces: _Pieces, row: Callable[[Found], bytes], rest: Callable[[], bytes]) -> None:
        self._pieces = pieces
        self._row = row
        self._rest = rest

    def add(self, found: Found) -> None:
        self._pieces.write(self._row(found))

    def finish(self) -> None:
        self._pieces.write(self._rest())
        self._pieces.give()

    def give_up(self) -> None:
        self._pieces.end()


class _Parquet:
    def __init__(self, pieces: _Pieces, topic: str) -> None:
        from kbroker.client.records_io.parquet_records import ParquetWriter

        self._pieces = pieces
        self._writer = ParquetWriter(pieces, topic)

    def add(self, found: Found) -> None:
        self._writer.add(found.partition, found.record)

    def finish(self) -> None:
        self._writer.close()
        self._pieces.give()

    def give_up(self) -> None:
        # In this order: pyarrow's writer writes the file's end when it is closed, and it is closed at the latest when
        # it is collected, in whatever thread that is.
        self._pieces.end()
        self._writer.give_up()
