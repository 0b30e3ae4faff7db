"""Files that a page sends piece by piece, for imports that cannot begin before all of a file is there."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kbroker.client.records_io.items import BadLine, Item
    from kbroker.client.records_io.parquet_records import ParquetRecords

MOST_BYTES: Final = 2 << 30
"""Bytes of one file."""


class NoUpload(Exception):
    """A piece is not kept, or a file is not there; with the status of HTTP that says which. The text is one line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Upload:
    """The file of an import. It has no name: it goes with the process, however that ends. Threads may share it."""

    def __init__(self) -> None:
        self.size = 0
        self.is_closed = False
        self.rows: tuple[ParquetRecords, Iterator[Item | BadLine]] | None = None
        """The reading that has come as far as the import, for the step that goes on with it."""
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._lock = threading.Lock()

    @contextmanager
    def use(self) -> Iterator[IO[bytes]]:
        """The file, for one thread at a time; ``NoUpload`` if it is not there any more."""
        try:
            with self._lock:
                if self.is_closed:
                    raise NoUpload(410, "the console does not have the file any more: it is sent again")
                yield self._file
        finally:
            if self.is_closed:
                self.close()

    def add(self, at: int, data: bytes) -> None:
        """Write a piece at the file's end, or once more where it is already."""
        if at > self.size:
            raise NoUpload(400, f"at has to be {self.size} at most")
        if at + len(data) > MOST_BYTES:
            raise NoUpload(413, f"the file is larger than {MOST_BYTES >> 30} GiB: kbroker import takes it")
        with self.use() as file:
            self.rows = None
            try:
                file.seek(at)
                file.write(data)
                file.flush()
            except OSError as error:
                raise NoUpload(507, f"the console cannot keep the file: {error.strerror or error}") from None
            self.size = max(self.size, at + len(data))

    def close(self) -> None:
        """Give its place away, as soon as no thread uses it; nobody waits for that."""
        self.is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                self.rows = None
                self._file.close()
            finally:
                self._lock.release()
