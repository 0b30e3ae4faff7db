"""One bit is wrong, somewhere in a log dir: nobody is ever given wrong bytes, and all that is whole can be read.

What no checksum covers (a batch's base offset and leader epoch) is left out here: a wrong base offset shows as one that
does not fit between its neighbours, or not at all, as in Apache Kafka.
"""

from __future__ import annotations

import os
import random

import pytest

from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.log.compaction.cleanable import log_to_clean, make_job
from kbroker.log.compaction.compactor import compact
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.batch_header import check_crc, walk_headers
from kbroker.wire.compression import CompressionType
from kbroker.wire.record_batch import iter_records
from tests.log.log_helpers import NOW, delete_expired, finish, make_holes
from tests.log.test_compaction import end_txn, put

ID = Uuid(bytes(15) + b"\x03")
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=-1)
COMPACT = LogConfig(
    segment_bytes=900,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
)
PLAIN, TRANSACTIONAL, COMPACTED = (TopicPartition(name, 0) for name in ("plain", "transactional", "compacted"))
FLIPS = int(os.environ.get("KBROKER_LOG_FLIPS", "300"))

Values = dict[int, tuple[bytes | None, bytes | None]]


def start(disk: FakeDisk) -> LogManager:
    return LogManager.open(["/data"], disk, now_ms=NOW, cluster_id="c", node_id=1, rng=random.Random(1))


def read(log: PartitionLog) -> Values:
    """Read all as a client does, and make a hole of damage that shows."""
    found: Values = {}
    offset = log.log_start_offset
    for _ in range(1000):
        if offset >= log.log_end_offset:
            break
        try:
            data = log.read_bytes(offset, 400)
        except ApiError as error:
            assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            if log.has_damaged_bytes:  # or it was the marker of a transaction, which is right again
                make_holes(log)
            continue
        if not data:
            return found
        before = offset
        for position, header in walk_headers(data):
            check_crc(data, position, header)
            for record in iter_records(data, position):
                if record.offset >= before and not header.is_control:
                    found[record.offset] = record.key, record.value
            offset = header.next_offset
        assert offset > before
    return found


def build() -> tuple[FakeDisk, dict[TopicPartition, Values]]:
    """A log dir after a clean stop, and what is in it."""
    disk = FakeDisk()
    manager = start(disk)
    logs = {
        tp: manager.create_log(tp, ID, COMPACT if tp == COMPACTED else CONFIG)
        for tp in (PLAIN, TRANSACTIONAL, COMPACTED)
    }
    for number in range(30):
        codec = list(CompressionType)[number % 5]
        put(logs[PLAIN], [(b"k", b"p%d-%d" % (number, i) * 5) for i in range(3)], codec=codec, timestamp=NOW + number)
        put(logs[COMPACTED], [(b"k%d" % (number % 6), b"c%d" % number * 9)], timestamp=NOW + number)
    for number in range(8):
        log = logs[TRANSACTIONAL]
        pairs: list[tuple[bytes | None, bytes | None]] = [(b"k", b"t%d" % number * 9)] * 2
        put(log, pairs, producer_id=number % 3, sequence=number // 3 * 2, transactional=True)
        end_txn(log, number % 3, commit=number % 2 == 0)
    log = logs[COMPACTED]
    log.roll(NOW)
    log.flush()
    found = log_to_clean(log, None, last_stable_offset=log.log_end_offset, now_ms=NOW)
    assert found is not None
    finish(manager.cleaner_offsets.before_round(log, 0))
    result = compact(make_job(found, now_ms=NOW, map_bytes=1 << 20, read_bytes=1 << 16), disk)
    for segment in result.segments:
        assert log.replace_segments(segment, NOW)
    manager.cleaner_offsets.after_round(log, result.end_offset)()
    delete_expired(manager, NOW + 1)
    manager.close(high_watermarks={tp: log.log_end_offset for tp, log in logs.items()})
    manager = start(disk)
    values = {}
    for log in manager:
        values[log.topic_partition] = read(log)
    manager.close()
    return disk, values


def uncovered(disk: FakeDisk, path: str, byte: int) -> bool:
    """Whether the byte is in a field of a batch that its checksum leaves out."""
    if not path.endswith(".log"):
        return False
    starts = [position for position, _ in walk_headers(disk.read_bytes(path))]
    return any(start <= byte < start + 8 or start + 12 <= byte < start + 16 for start in starts)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_flipped_bit(clean: bool) -> None:
    whole, values = build()
    rng = random.Random(5)
    directories = ["/data", *(f"/data/{tp}" for tp in values)]
    files = [
        f"{directory}/{name}"
        for directory in directories
        for name in whole.list_dir(directory)
        if not whole.is_dir(f"{directory}/{name}") and whole.size(f"{directory}/{name}")
    ]
    assert {path.rpartition(".")[2] for path in files} >= {"log", "index", "timeindex", "txnindex", "snapshot"}
    refused = damaged = 0
    for number in range(FLIPS):
        disk = whole.snapshot()
        path = rng.choice(files)
        bit = rng.randrange(8 * disk.size(path))
        if uncovered(disk, path, bit // 8):
            continue
        disk.flip_bit(path, bit)
        if not clean:
            disk.remove("/data/.kafka_cleanshutdown")
        case = (number, path, bit, clean)
        try:
            manager = start(disk)
        except FatalError as error:
            # A wrong cluster or node id is told as such, all else with the file.
            assert path.endswith("meta.properties") or path.rpartition("/")[2] in str(error), case
            refused += 1
            continue
        for tp, expected in values.items():
            try:
                log = manager.get_log(tp)
            except ApiError as error:
                assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
                assert path.startswith(f"/data/{tp}/"), case
                refused += 1
                continue
            assert log is not None, case
            found = read(log)
            assert found.items() <= expected.items(), case
            missing = expected.keys() - found.keys()
            if not path.startswith(f"/data/{tp}/") or not path.endswith(".log"):
                if "offset-checkpoint" not in path:
                    assert not missing, case
            elif missing:
                damaged += 1
                (place,) = log.damage
                # One batch, and what compaction has taken before the next one.
                assert len(missing) <= 3, case
                assert all(place.start_offset <= offset < place.end_offset for offset in missing), case
        manager.close()
    assert damaged > 10
    assert refused > 2
