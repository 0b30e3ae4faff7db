"""Files that a page sends piece by piece, for imports that cannot begin before all of a file is there."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kbroker.records_io.items import BadLine, Item
    from kbroker.records_io.parquet_records import ParquetRecords

MOST_FILES: Final = 4
MOST_OWN: Final = 2
"""Files of one session."""

MOST_BYTES: Final = 2 << 30
"""Bytes of one file."""

IDLE_SECONDS: Final = 600.0
"""A file that nobody has used for so long makes room for another."""

OWN_IDLE_SECONDS: Final = 30.0
"""The same, for another file of the same session."""


class NoUpload(Exception):
    """A piece is not kept, or a file is not there; with the status of HTTP that says which. The text is one line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Upload:
    """The file of an import. It has no name: it goes with the process, however that ends. Threads may share it."""

    def __init__(self, session_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.session_id = session_id
        self.size = 0
        self.is_closed = False
        self.rows: tuple[ParquetRecords, Iterator[Item | BadLine]] | None = None
        """The reading that has come as far as the import, for the step that goes on with it."""
        self._clock = clock
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._lock = threading.Lock()
        self._used = clock()

    @property
    def idle(self) -> float:
        """Seconds in which nobody has used it."""
        return 0.0 if self._lock.locked() else self._clock() - self._used

    @contextmanager
    def use(self) -> Iterator[IO[bytes]]:
        """The file, for one thread at a time; ``NoUpload`` if it is not there any more."""
        try:
            with self._lock:
                if self.is_closed:
                    raise NoUpload(410, "the console does not have the file any more: it is sent again")
                self._used = self._clock()
                yield self._file
                self._used = self._clock()
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


class Uploads:
    """The files of all sessions."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: list[Upload] = []

    def begin(self, session_id: str) -> Upload:
        """A new file, for which one that is idle makes room; ``NoUpload`` if there are too many."""
        self._files = [each for each in self._files if not each.is_closed]
        own = [each for each in self._files if each.session_id == session_id]
        if len(own) >= MOST_OWN:
            self._make_room(own, OWN_IDLE_SECONDS)
        elif len(self._files) >= MOST_FILES:
            self._make_room(self._files, IDLE_SECONDS)
        upload = Upload(session_id, self._clock)
        self._files.append(upload)
        return upload

    def _make_room(self, files: list[Upload], seconds: float) -> None:
        oldest = max(files, key=lambda each: each.idle)
        if oldest.idle < seconds:
            raise NoUpload(429, "too many files are imported: cancel an import, or try again when one is done")
        oldest.close()
        self._files.remove(oldest)
