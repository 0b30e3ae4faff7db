"""Files for an import that needs all of a file before it begins: Parquet."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

from kbroker.client.records_io.items import BadLine, Item
from kbroker.client.records_io.json_types import Json
from kbroker.client.records_io.line_records import now_ms
from kbroker.client.records_io.parquet_records import MAX_CHUNK, ParquetRecords
from kbroker.errors import FatalError
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.copies import ImportCopy
from kbroker.tools.console.uploads import NoUpload, Upload

STEP_SECONDS: Final = 3.0


async def keep_piece(call: Call, copy: ImportCopy) -> Json:
    """Keep a piece of an import's file, at ``at``. ``kept`` of the answer: the bytes that are there, all in a row."""
    try:
        data = base64.b64decode(call.text("data"), validate=True)
    except (binascii.Error, ValueError):
        raise RequestRefused(400, "data is not base64") from None
    at = call.number("at", 0)
    upload = copy.upload
    if upload is None and at:
        raise RequestRefused(410, "the console does not have the file any more: it is sent again")
    if upload is None:
        upload = call.console.copies.begin_file(call.session.id, copy)
    if upload is None:
        raise RequestRefused(429, "too many files are imported: cancel an import, or try again when one is done")
    with refusals():
        await call.compute(lambda: upload.add(at, data))
    return copy.view()


@contextmanager
def refusals() -> Iterator[None]:
    """A block in which a file that is not kept, or not there, is told as ``RequestRefused``."""
    try:
        yield
    except NoUpload as error:
        raise RequestRefused(error.status, str(error)) from None


def upload_of(copy: ImportCopy) -> Upload:
    """The file of an import; ``RequestRefused`` if it is not there, or not any more."""
    if copy.upload is None:
        raise RequestRefused(410, "the console does not have the file: it is sent first")
    return copy.upload


class ParquetStep:
    """The rows of a file after the first ``begin``, for a while; all that an earlier step has read come once more."""

    def __init__(
        self, upload: Upload, file: IO[bytes], begin: int, first_new: int, seconds: float = STEP_SECONDS
    ) -> None:
        """``first_new``: the first row that no earlier step has read. ``RequestRefused`` if the file is no Parquet.

        ``file`` is the upload's, which is in use until the step has ended.
        """
        self._upload = upload
        self._first_new = first_new
        self._seconds = seconds
        self.is_whole = False
        """Whether these are all rows of the file."""

        known, upload.rows = upload.rows, None
        if known is not None and known[0].done == begin:
            self._records, self._rows = known
            return
        try:
            self._records = ParquetRecords(file, now_ms, begin, max_chunk=MAX_CHUNK)
        except FatalError as error:
            raise RequestRefused(400, str(error)) from None
        self._rows = iter(self._records)

    def __iter__(self) -> Iterator[Item | BadLine]:
        until: float | None = None
        for item in self._rows:
            # To pass over rows may take long, and must not be all that a step does.
            if until is None and item.line >= self._first_new:
                until = time.monotonic() + self._seconds
            yield item
            if until is not None and time.monotonic() >= until:
                return
        self.is_whole = True

    @property
    def done(self) -> int:
        """The rows that are read, those before the step included."""
        return self._records.done

    @property
    def missing(self) -> int:
        """The rows that the file has promised, and has not."""
        return self._records.count - self.done if self.is_whole else 0

    def keep(self) -> None:
        """Keep the place in the file for the step that goes on."""
        self._upload.rows = self._records, self._rows
