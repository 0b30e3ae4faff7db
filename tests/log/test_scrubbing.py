"""Pieces of segments that are verified, and the progress that is kept."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

import pytest

from kbroker.log.disk import OsDisk
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.scrubbing import FILE_NAME, Progress, SegmentCheck, read_progress, write_progress
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record, build_batch
from tests.with_each import with_each


def batch(offset: int, value: bytes, count: int = 1) -> bytes:
    return build_batch([Record(0, 1000, None, value)] * count, base_offset=offset, partition_leader_epoch=1)


BATCHES = [batch(number * 3, b"value", 3) for number in range(40)]
WHOLE = b"".join(BATCHES)
SIZE = len(WHOLE)


def verify(content: bytes, length: int = 200) -> SegmentCheck:
    """Verify a file that should have all batches, ``length`` bytes at a time."""
    disk = FakeDisk()
    disk.make_dirs("/d")
    disk.write_bytes("/d/log", content)
    check = SegmentCheck(disk, "/d/log", SIZE, 0, 120, bytearray(length))
    while not check.is_done:
        check.step()
    return check


@pytest.mark.parametrize("length", [61, 100, 1000, SIZE])
def test_all_batches_are_verified_whatever_is_read_at_once(length: int) -> None:
    check = verify(WHOLE, length)
    assert (check.position, check.next_offset, check.problem) == (SIZE, 120, None)


@with_each(range(len(BATCHES[0])))
def test_any_byte_that_changes_is_found(at: int) -> None:
    """Base offset and leader epoch are not under the checksum: they show by what is around them."""
    position = sum(map(len, BATCHES[:20]))
    content = bytearray(WHOLE)
    content[position + at] ^= 0x80 if at != 7 else 1
    check = verify(bytes(content))
    assert check.problem is not None
    assert check.position in (position, position + len(BATCHES[20])), "the batch, or the next if the batch's is higher"


@pytest.mark.parametrize("kept", [0, 1, 60, 61, len(BATCHES[0]) - 1, SIZE // 2, SIZE - 1])
def test_a_file_that_is_cut_is_found(kept: int) -> None:
    last = verify(WHOLE[:kept])
    assert last.problem is not None and last.position <= kept


def test_another_place_of_the_file_is_found_by_its_offsets() -> None:
    content = b"".join(BATCHES[:20] + BATCHES[5:10] + BATCHES[25:])
    last = verify(content)
    assert last.problem == "offset 15 follows 59"


def test_what_another_segment_holds_is_found_by_its_offsets() -> None:
    foreign = b"".join(batch(120 + number * 3, b"value", 3) for number in range(40))
    check = verify(foreign)
    assert (check.position, check.problem) == (0, "offset 122 is not below 120, where the segment ends")


def test_progress_is_kept() -> None:
    disk = FakeDisk()
    disk.make_dirs("/d")
    assert read_progress(disk, "/d") == Progress()
    for progress in (Progress((TopicPartition("a-b", 3), 17), 5, 4, 3, 2, 1), Progress(None, 5, 6, 3, 3)):
        write_progress(disk, "/d", progress)
        assert read_progress(disk, "/d") == progress
    for bad in (b"", b"[]", b'{"next": 3}', b"\0" * 100, b'{"next": [1], "began_ms": 1}'):
        disk.write_bytes(f"/d/{FILE_NAME}", bad)
        assert read_progress(disk, "/d") == Progress()


def pages_in_memory(path: Path) -> int:
    """Pages of a file that are in the page cache."""
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        begin = ctypes.c_char.from_buffer(mapped)
        assert ctypes.CDLL(None).mincore(ctypes.byref(begin), ctypes.c_size_t(size), pages) == 0
        del begin
        return sum(page & 1 for page in pages)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no advice on files")
def test_the_page_cache_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(batch(number, b"x" * 100_000) for number in range(20)))
    size = path.stat().st_size

    def scrub() -> int:
        check = SegmentCheck(OsDisk(), str(path), size, 0, 20, bytearray(1 << 18))
        while not check.is_done:
            check.step()
        assert check.problem is None
        return pages_in_memory(path)

    file = OsDisk().open(str(path))
    file.sync()
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if pages_in_memory(path):
        pytest.skip("this file system keeps all in memory")
    assert scrub() == 0
    path.read_bytes()
    assert scrub() == -(-size // mmap.PAGESIZE)
