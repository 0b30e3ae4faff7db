"""Messages of the formats before Kafka 0.11 become record batches when their log is opened; nothing of them is lost."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import pytest

from kbroker.log.checkpoint_files import CorruptCheckpoint
from kbroker.log.fake_disk import FakeDisk, PowerCut
from kbroker.wire.compression import CompressionType, compress
from kbroker.wire.record_batch import Record, build_batch
from tests.log.log_helpers import DIRECTORY, looked_up, open_log, read_all

FIRST = f"{DIRECTORY}/{0:020}.log"
APPEND_TIME = 8


def message(
    offset: int, value: bytes | None, magic: int = 1, attributes: int = 0, timestamp: int = 0, key: bytes | None = b"k"
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def compressed(codec: CompressionType, last: int, inner: Sequence[bytes], magic: int = 1, **fields: int) -> bytes:
    attributes = codec | fields.pop("attributes", 0)
    return message(last, compress(codec, b"".join(inner)), magic, attributes, key=None, **fields)


def disk_with(*segments: tuple[int, bytes]) -> FakeDisk:
    disk = FakeDisk()
    disk.make_dirs(DIRECTORY)
    for base, data in segments:
        disk.write_bytes(f"{DIRECTORY}/{base:020}.log", data, sync=True)
    for directory in ("/", "/data", DIRECTORY):
        disk.sync_dir(directory)
    return disk


def today(offset: int, value: bytes) -> bytes:
    return build_batch([Record(0, 9, b"k", value)], base_offset=offset, partition_leader_epoch=0)


@pytest.mark.parametrize("clean", [True, False])
def test_offsets_values_and_times_stay(clean: bool) -> None:
    old = b"".join([message(0, b"zero", 0), message(3, None, 0, key=None), message(7, b"seven", timestamp=700)])
    disk = disk_with((0, old + today(8, b"eight")), (9, message(9, b"nine", timestamp=900)), (10, today(10, b"ten")))
    for _ in range(2):
        log = open_log(disk, clean=clean)
        values = [(0, b"zero"), (7, b"seven"), (8, b"eight"), (9, b"nine"), (10, b"ten")]
        assert [each for each in read_all(log) if each[0] != 3] == values
        assert [offset for offset, _ in read_all(log)] == [0, 3, 7, 8, 9, 10]
        found = looked_up(log.offset_for_timestamp(701))
        assert found is not None and (found.offset, found.timestamp) == (9, 900)
        log.close()


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4])
def test_compressed_messages(codec: CompressionType) -> None:
    absolute = [message(offset, b"%d" % offset, 0) for offset in (4, 5, 9)]
    relative = [message(at, b"%d" % (at + 10), timestamp=at) for at in (0, 2, 5)]
    old = compressed(codec, 9, absolute, 0) + compressed(codec, 15, relative)
    log = open_log(disk_with((4, old)), clean=True)
    assert read_all(log, start=4) == [(offset, b"%d" % offset) for offset in (4, 5, 9, 10, 12, 15)]


def test_times_of_appending() -> None:
    inner = [message(at, b"v", timestamp=at) for at in range(2)]
    old = compressed(CompressionType.GZIP, 1, inner, attributes=APPEND_TIME, timestamp=500)
    log = open_log(disk_with((0, old + message(2, b"v", attributes=APPEND_TIME, timestamp=600))), clean=True)
    for wanted, offset in ((400, 0), (501, 2)):
        found = looked_up(log.offset_for_timestamp(wanted))
        assert found is not None and found.offset == offset


@pytest.mark.parametrize("clean", [True, False])
def test_damage_leaves_all_as_it_is(clean: bool) -> None:
    good, bad = message(0, b"good"), bytearray(message(1, b"bad"))
    bad[-1] ^= 1
    for damaged in (good + bytes(bad), good + message(1, b"torn")[:-1]):
        disk = disk_with((0, damaged), (2, message(2, b"two")))
        with pytest.raises(CorruptCheckpoint, match="byte 39 is"):
            open_log(disk, clean=clean)
        assert disk.read_bytes(FIRST) == damaged


def test_a_crash_at_each_operation_loses_nothing() -> None:
    segments = (0, message(0, b"zero") + message(1, b"one")), (2, message(2, b"two"))
    whole = disk_with(*segments)
    before = whole.operations
    open_log(whole, clean=True)
    for operation in range(before, whole.operations):
        for lose_all in (False, True):
            disk = disk_with(*segments)
            disk.crash_after = operation
            with pytest.raises(PowerCut):
                open_log(disk, clean=True)
            disk.crash(lose_all=lose_all)
            assert read_all(open_log(disk)) == [(0, b"zero"), (1, b"one"), (2, b"two")]


def test_a_log_of_which_a_part_was_compacted() -> None:
    disk = disk_with((0, today(3, b"three")), (4, message(6, b"six")), (8, today(8, b"eight")))
    assert read_all(open_log(disk, clean=True, clean_offset=4)) == [(3, b"three"), (6, b"six"), (8, b"eight")]


def test_what_lies_between_segments_that_are_written_anew_stays() -> None:
    old = (0, message(0, b"zero")), (2, message(2, b"two"))
    disk = disk_with(*old, (1, today(1, b"one")))
    assert read_all(open_log(disk, clean=True, clean_offset=3)) == [(0, b"zero"), (1, b"one"), (2, b"two")]

    damaged = bytearray(message(1, b"one"))
    damaged[-1] ^= 1
    disk = disk_with(*old, (1, bytes(damaged)))
    open_log(disk, clean=True, clean_offset=3)
    assert disk.read_bytes(f"{DIRECTORY}/{1:020}.log") == damaged


def test_a_log_in_todays_format_is_looked_at_in_its_first_segment_alone() -> None:
    disk = disk_with(*((base, today(base, b"x")) for base in range(5)))
    open_log(disk, clean=False).close()
    seen: list[str] = []
    disk.on_operation = lambda operation, path: seen.append(path) if path.endswith(".log") else None
    assert len(read_all(open_log(disk, clean=True, recovery_point=5))) == 5
    seen.clear()
    open_log(disk, clean=True, recovery_point=5)
    assert set(seen) == {FIRST, f"{DIRECTORY}/{4:020}.log"}


def test_a_flipped_bit_makes_no_batch_of_today_old() -> None:
    damaged = bytearray(today(0, b"zero"))
    damaged[16] ^= 2  # its magic
    log = open_log(disk_with((0, bytes(damaged) + today(1, b"one"))), clean=False, leaves_holes=True)
    assert log.is_damaged
    assert read_all(log, start=1) == [(1, b"one")]
