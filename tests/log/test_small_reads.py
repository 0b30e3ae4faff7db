"""A small read of a log: the bytes that were read to find its batches are the answer, and none is read twice."""

from __future__ import annotations

import pytest

from kbroker.log.fake_disk import FakeDisk
from kbroker.wire.batch_header import walk_headers
from tests.log.log_helpers import append, open_log, read_all

COUNT, LIMIT = 200, 1000


@pytest.mark.parametrize("starts", [None, [150, 3, 77, 199, 0, 120, 42, 80, 161, 10, 33, 101]], ids=["on", "anywhere"])
def test_it_takes_one_read_of_the_file(starts: list[int] | None) -> None:
    """Of batches that are not in memory, wherever the last read has ended."""
    disk = FakeDisk()
    log = open_log(disk)
    for index in range(COUNT):
        append(log, [b"%d" % index])
    log.close()
    log = open_log(disk, clean=True)
    read_all(log)  # which verifies it
    reads: list[str] = []
    disk.on_operation = lambda operation, path: reads.append(f"{operation} {path[-4:]}")
    offset = 0
    while offset < COUNT and starts != []:
        offset = offset if starts is None else starts.pop()
        reads.clear()
        records = bytes(log.read(offset, LIMIT).records)  # type: ignore[arg-type]
        assert reads.count("read .log") == 1
        headers = [header for _, header in walk_headers(records)]
        assert [header.base_offset for header in headers] == list(range(offset, offset + len(headers)))
        assert headers[-1].last_offset == COUNT - 1 or LIMIT - 2 * headers[-1].size < len(records) <= LIMIT
        offset = 0 if starts is not None else headers[-1].last_offset + 1
