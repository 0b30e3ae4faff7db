"""Files that a page sends piece by piece, for imports that cannot begin before all of a file is there."""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO, Final

MOST_FILES: Final = 4
MOST_BYTES: Final = 2 << 30
"""Bytes of one file."""

IDLE_SECONDS: Final = 600.0
"""A file that nobody has asked for so long makes room for another."""


class NoUpload(Exception):
    """A piece is not kept, or a file is not there; with the status of HTTP that says which. The text is one line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Upload:
    """A file without a name: it goes with the process, however that ends. ``lock`` is for whoever uses it."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `Uploads`
        self.size = 0
        self.used = 0.0
        self.lock = threading.Lock()


class Uploads:
    """The files of all sessions, by words. Threads may share it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: dict[str, Upload] = {}
        self._lock = threading.Lock()

    def begin(self, session_id: str) -> str:
        """The word of a new file; ``NoUpload`` if there are too many."""
        with self._lock:
            if len(self._files) >= MOST_FILES:
                word, oldest = min(self._files.items(), key=lambda each: each[1].used)
                if self._clock() - oldest.used < IDLE_SECONDS:
                    raise NoUpload(429, "too many files are imported: try again when one of them is done")
                self._drop(word)
            word = secrets.token_urlsafe(9)
            self._files[word] = upload = Upload(session_id)
            upload.used = self._clock()
        return word

    def find(self, session_id: str, word: str) -> Upload:
        """A file of a session; ``NoUpload`` if it is not there any more."""
        with self._lock:
            found = self._files.get(word)
            if found is None or found.session_id != session_id:
                raise NoUpload(410, "the file is not there any more: import it from the beginning")
            found.used = self._clock()
            return found

    def add(self, session_id: str, word: str, at: int, data: bytes) -> int:
        """Write a piece of a file at its end, or once more where it is already; the file's size then."""
        upload = self.find(session_id, word)
        if at > upload.size:
            raise NoUpload(400, f"at has to be {upload.size} at most")
        if at + len(data) > MOST_BYTES:
            raise NoUpload(413, f"the file is larger than {MOST_BYTES >> 30} GiB: kbroker import takes it")
        with upload.lock:
            try:
                upload.file.seek(at)
                upload.file.write(data)
                upload.file.flush()
            except OSError as error:
                raise NoUpload(507, f"the console cannot keep the file: {error.strerror or error}") from None
            upload.size = max(upload.size, at + len(data))
        return upload.size

    def end(self, session_id: str, word: str) -> None:
        """Forget a file."""
        self.find(session_id, word)
        with self._lock:
            self._drop(word)

    def _drop(self, word: str) -> None:
        upload = self._files.pop(word, None)
        if upload is not None:
            upload.file.close()
