"""Files for an import that needs all of a file before it begins: Parquet."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kbroker.console.call import Call, Refused
from kbroker.console.export_files import check_format
from kbroker.console.uploads import NoUpload, Upload
from kbroker.errors import FatalError
from kbroker.records_io.items import BadLine, Item
from kbroker.records_io.json_types import Json
from kbroker.records_io.line_records import now_ms
from kbroker.records_io.parquet_records import ParquetRecords

STEP_SECONDS: Final = 3.0


async def upload_piece(call: Call) -> Json:
    """Keep a piece of a file, at ``at``; ``upload`` of the answer names the file in what follows."""
    _ = call.view
    call.refuse_read_only("upload", call.text("topic", ""), None)
    check_format("parquet")
    uploads, session_id = call.console.uploads, call.session.id
    try:
        data = base64.b64decode(call.text("data"), validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, "data is not base64") from None
    word, at = call.text("upload", ""), call.number("at", 0)

    def keep() -> Json:
        with _told():
            name = word or uploads.begin(session_id)
            return {"upload": name, "size": uploads.add(session_id, name, at, data)}

    return await call.compute(keep)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except NoUpload as error:
        raise Refused(error.status, str(error)) from None


def upload_of(call: Call) -> Upload:
    """The file that ``upload`` names; ``Refused`` if it is not there any more."""
    with _told():
        return call.console.uploads.find(call.session.id, call.text("upload"))


class ParquetStep:
    """The rows of a file after the first ``begin``, for a while; all that an earlier step has read come once more."""

    def __init__(self, upload: Upload, begin: int, first_new: int) -> None:
        """``first_new``: the first row that no earlier step has read. ``Refused`` if the file is no Parquet."""
        try:
            self._records = ParquetRecords(upload.file, now_ms, begin)
        except FatalError as error:
            raise Refused(400, str(error)) from None
        self._begin = begin
        self._first_new = first_new

    def __iter__(self) -> Iterator[Item | BadLine]:
        until = time.monotonic() + STEP_SECONDS
        for item in self._records:
            yield item
            if item.line >= self._first_new and time.monotonic() >= until:
                return

    @property
    def done(self) -> int:
        """The rows that are read, those before ``begin`` included."""
        return max(self._records.done, self._begin)

    @property
    def finished(self) -> bool:
        """Whether these are all rows of the file."""
        return self.done >= self._records.count
