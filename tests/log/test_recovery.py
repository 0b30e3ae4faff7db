"""Recovery after torn writes, flipped bits, and the loss of everything but the log itself."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from itertools import product

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.file_names import file_name
from kbroker.log.log_config import LogConfig
from kbroker.log.segments.sparse_index import TimeIndex
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.record_batch import Record, build_batch
from tests.log.log_helpers import DIRECTORY, NOW, append, batch, looked_up, open_log, read_all
from tests.with_each import with_each

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=150)


def written(
    count: int = 40, *, config: LogConfig = SMALL, seed: int = 0, per_epoch: int = 10
) -> tuple[FakeDisk, list[bytes]]:
    """A disk with a log of ``count`` batches of one to three records; their values."""
    disk = FakeDisk(seed=seed)
    rng = random.Random(seed)
    log = open_log(disk, config)
    values: list[bytes] = []
    for index in range(count):
        group = [b"%d:" % index + rng.randbytes(rng.randrange(120)) for _ in range(rng.randint(1, 3))]
        values += group
        append(log, group, leader_epoch=index // per_epoch, timestamp=NOW + index)
    disk.kill()
    return disk, values


def last_log(disk: FakeDisk) -> str:
    return f"{DIRECTORY}/" + max(name for name in disk.list_dir(DIRECTORY) if name.endswith(".log"))


def ends(disk: FakeDisk, path: str) -> list[tuple[int, int]]:
    """(position after, offset after) of each batch of a segment file."""
    return [(at + header.size, header.next_offset) for at, header in walk_headers(disk.read_bytes(path))]


@pytest.mark.parametrize("seed", range(3))
def test_a_tail_cut_at_every_byte_leaves_the_longest_valid_prefix(seed: int) -> None:
    disk, values = written(seed=seed)
    path = last_log(disk)
    data = disk.read_bytes(path)
    boundaries = [(0, int(os.path.basename(path)[:20])), *ends(disk, path)]
    for size in range(boundaries[-3][0] if len(boundaries) > 2 else 0, len(data)):
        copy = disk.snapshot()
        copy.open(path).truncate(size)
        log = open_log(copy, SMALL)
        position, offset = max(b for b in boundaries if b[0] <= size)
        assert log.log_end_offset == offset
        assert log.active_segment.size == position
        assert read_all(log) == list(enumerate(values[:offset]))
        assert bool(log.cuts) == (size != position)
        if log.cuts:
            assert path in log.cuts[0]
            assert f"byte {position}" in log.cuts[0]


@pytest.mark.parametrize("unit", [512, 4096])
@pytest.mark.parametrize("seed", range(4))
def test_zeros_in_place_of_sectors(seed: int, unit: int) -> None:
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=150)
    disk, values = written(80, config=config, seed=seed)
    path = last_log(disk)
    data = disk.read_bytes(path)
    boundaries = [(0, int(os.path.basename(path)[:20])), *ends(disk, path)]
    for start in range(0, len(data), unit):
        copy = disk.snapshot()
        length = min(unit, len(data) - start)
        if data[start : start + length] == bytes(length):
            continue
        copy.open(path).write_at(start, [bytes(length)])
        log = open_log(copy, config)
        _, offset = max(b for b in boundaries if b[0] <= start)
        # A flipped byte in a base offset or epoch is not under the checksum; zeros there are caught by the
        # order of offsets or do no harm, so at most the whole batch before is what may be missing.
        assert log.log_end_offset >= offset
        assert read_all(log) == list(enumerate(values[: log.log_end_offset]))
        append(log, [b"goes on"])


def test_zeros_after_the_end_are_dropped() -> None:
    disk, values = written()
    path = last_log(disk)
    file = disk.open(path)
    size = file.size()
    file.truncate(size + 10_000)
    log = open_log(disk, SMALL)
    assert log.log_end_offset == len(values)
    assert disk.size(path) == size


def test_any_flipped_bit_past_the_recovery_point_is_noticed() -> None:
    disk, values = written()
    rng = random.Random(5)
    paths = [f"{DIRECTORY}/{name}" for name in disk.list_dir(DIRECTORY)]
    for _ in range(250):
        copy = disk.snapshot()
        path = rng.choice(paths)
        size = copy.size(path)
        if not size:
            continue
        bit = rng.randrange(size * 8)
        if path == last_log(disk) and bit // 8 - ends(disk, path)[-2][0] in range(8):
            continue  # the base offset of the very last batch: nothing in the format tells that it is wrong
        copy.flip_bit(path, bit)
        log = open_log(copy, SMALL)
        found = read_all(log)
        assert found == list(enumerate(values[: log.log_end_offset]))
        if not path.endswith(".log"):
            assert log.log_end_offset == len(values)
        assert append(log, [b"goes on"]) == log.log_end_offset - 1


def test_any_flipped_bit_of_an_index_is_survived_after_a_clean_stop() -> None:
    disk, values = written(120)
    log = open_log(disk, SMALL)
    log.close()
    rng = random.Random(6)
    paths = [f"{DIRECTORY}/{name}" for name in disk.list_dir(DIRECTORY) if not name.endswith(".log")]
    for _ in range(150):
        copy = disk.snapshot()
        path = rng.choice(paths)
        size = copy.size(path)
        if not size:
            continue
        copy.flip_bit(path, rng.randrange(size * 8))
        log = open_log(copy, SMALL, clean=True)
        assert log.log_end_offset == len(values)
        for start in rng.sample(range(len(values)), 3):
            assert read_all(log, start=start) == list(enumerate(values))[start:]


def test_flipped_bits_of_old_segments_are_told_with_file_and_position() -> None:
    disk, values = written()
    log = open_log(disk, SMALL)
    log.close()
    path = f"{DIRECTORY}/{file_name(0)}.log"
    position = ends(disk, path)[2][0]
    disk.flip_bit(path, (position + 16) * 8)  # the magic byte
    for index in (".index", ".timeindex"):
        disk.remove(path.replace(".log", index))
    log = open_log(disk, SMALL, clean=True)
    boundary = ends_before(disk, path)
    with pytest.raises(ApiError) as caught:
        log.read(boundary, 1000)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert caught.value.message is not None
    assert path in caught.value.message
    assert f"byte {position}" in caught.value.message
    assert log.log_end_offset == len(values)


def ends_before(disk: FakeDisk, path: str) -> int:
    data = disk.read_bytes(path)
    offset = 0
    try:
        for _, header in walk_headers(data):
            offset = header.next_offset
    except Exception:
        return offset
    raise AssertionError("no damage found")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
def test_what_is_missing_is_made_anew(lost: str, clean: bool) -> None:
    disk, values = written()
    log = open_log(disk, SMALL)
    epochs = log.leader_epochs.entries
    log.close()
    before = {
        name: disk.read_bytes(f"{DIRECTORY}/{name}")
        for name in disk.list_dir(DIRECTORY)
        if name.endswith(("index", "checkpoint"))
    }
    for name in disk.list_dir(DIRECTORY):
        if name.endswith(lost):
            disk.remove(f"{DIRECTORY}/{name}")
    log = open_log(disk, SMALL, clean=clean, recovery_point=len(values))
    assert log.leader_epochs.entries == epochs == [(0, 0), (1, epochs[1][1]), (2, epochs[2][1]), (3, epochs[3][1])]
    assert read_all(log) == list(enumerate(values))
    found = looked_up(log.offset_for_timestamp(NOW + 20))
    assert found is not None
    assert found.timestamp == NOW + 20
    append(log, [b"goes on"], timestamp=NOW + 40)
    log.truncate_to(len(values))
    log.close()
    after = {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in before}
    assert after == before


@pytest.mark.parametrize(("stamp_change", "offset_change"), [(-15, 0), (-5, 0), (5, 0), (0, 1), (0, -1)])
def test_an_entry_of_the_time_index_that_is_in_order_and_wrong_hides_no_record(
    stamp_change: int, offset_change: int
) -> None:
    disk = FakeDisk()
    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100)
    log = open_log(disk, config)
    for number in range(40):
        append(log, [b"v" * 50], timestamp=NOW + number * 10)
    log.roll(NOW)
    log.close()
    path = f"{DIRECTORY}/{file_name(0)}.timeindex"
    data = bytearray(disk.read_bytes(path))
    middle = len(data) // TimeIndex.ENTRY.size // 2 * TimeIndex.ENTRY.size
    stamp, offset = TimeIndex.ENTRY.unpack_from(data, middle)
    TimeIndex.ENTRY.pack_into(data, middle, stamp + stamp_change, offset + offset_change)
    disk.write_bytes(path, data, sync=True)
    log = open_log(disk, config, clean=True)
    for number in range(40):
        found = looked_up(log.offset_for_timestamp(NOW + number * 10 - 5))
        assert found is not None
        assert (found.timestamp, found.offset) == (NOW + number * 10, number)


def test_only_segments_from_the_recovery_point_on_are_read() -> None:
    disk, _ = written(200, per_epoch=200)
    segments = [name for name in disk.list_dir(DIRECTORY) if name.endswith(".log")]
    assert len(segments) > 6
    log = open_log(disk, SMALL)
    log.close()
    read: set[str] = set()

    def note(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(".log"):
            read.add(os.path.basename(path))

    disk.on_operation = note
    open_log(disk, SMALL, recovery_point=int(segments[-2][:20]) + 1)
    # Of the segment before only the end is looked at, for a truncation that did not reach the disk; of the oldest one
    # the format of its first message.
    assert read == {segments[0], *segments[-3:]}


def test_after_a_clean_stop_only_the_tail_is_read() -> None:
    disk, values = written(200, per_epoch=200)
    log = open_log(disk, SMALL)
    log.close()
    read: list[str] = []
    disk.on_operation = lambda operation, path: (
        read.append(os.path.basename(path)) if operation == "read" and path.endswith(".log") else None
    )
    log = open_log(disk, SMALL, clean=True)
    oldest = os.path.basename(log.segments[0].path)
    assert read.count(oldest) == 1  # the format of its first message
    assert set(read) == {oldest, os.path.basename(log.active_segment.path)}
    assert log.log_end_offset == log.recovery_point == len(values)


@pytest.mark.parametrize("offset", [0, 4, 11])
def test_what_a_truncation_took_away_never_mixes_with_what_came_in_its_place(offset: int) -> None:
    config = LogConfig(segment_bytes=900, index_interval_bytes=150)
    for seed in range(80):
        disk = FakeDisk(seed=seed)
        log = open_log(disk, config)
        old, new = [], []
        for number in range(20):
            old.append(b"old %d" % number + b"x" * 60)
            append(log, [old[-1]])
        log.flush()
        disk.sync_dir("/")
        disk.sync_dir("/data")
        log.truncate_to(offset)
        new = old[:offset]
        for number in range(seed % 25):
            new.append(b"new %d" % number + b"x" * 60)
            append(log, [new[-1]], leader_epoch=1)
        disk.crash()
        found = [value for _, value in read_all(open_log(disk, config))]
        assert found in (old[: len(found)], new[: len(found)]), seed


def test_a_log_that_ends_before_its_start_is_dropped() -> None:
    disk, _values = written()
    log = open_log(disk, SMALL, log_start_offset=1000)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    assert log.cuts
    assert append(log, [b"a"]) == 1000
    log.close()
    assert read_all(open_log(disk, SMALL, clean=True)) == [(1000, b"a")]


def test_files_of_unfinished_work_are_removed() -> None:
    disk, values = written()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000000.log.cleaned",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000777.index",
    ):
        disk.write_bytes(f"{DIRECTORY}/{name}", b"x")
    log = open_log(disk, SMALL)
    assert read_all(log) == list(enumerate(values))
    assert not [n for n in disk.list_dir(DIRECTORY) if n.endswith((".deleted", ".cleaned", ".tmp")) or "777" in n]


def test_an_interrupted_swap_is_completed() -> None:
    """Two segments were cleaned into one; the crash came before the old ones were renamed."""
    disk, values = written()
    logs = [name for name in disk.list_dir(DIRECTORY) if name.endswith(".log")]
    first = f"{DIRECTORY}/{logs[0]}"
    joined = disk.read_bytes(first) + disk.read_bytes(f"{DIRECTORY}/{logs[1]}")
    disk.write_bytes(first + ".swap", joined)
    log = open_log(disk, SMALL)
    assert [segment.base_offset for segment in log.segments] == [0, *(int(name[:20]) for name in logs[2:])]
    assert read_all(log) == list(enumerate(values))


def test_preallocated_indexes_of_apache_kafka_are_taken_for_damaged() -> None:
    disk, values = written()
    log = open_log(disk, SMALL)
    log.close()
    stem = log.active_segment.path[: -len(".log")]
    for suffix, size in ((".index", 8 * 1000), (".timeindex", 12 * 1000)):
        disk.open(stem + suffix).truncate(size)
    log = open_log(disk, SMALL, clean=True)
    assert read_all(log) == list(enumerate(values))
    log.close()
    assert disk.size(stem + ".index") < 1000


def test_a_batch_larger_than_a_chunk_is_recovered() -> None:
    disk = FakeDisk()
    config = LogConfig(max_message_bytes=1 << 24)
    log = open_log(disk, config)
    values = [b"a", b"b" * 3_000_000, b"c", b"d" * 1_048_576]
    for value in values:
        append(log, [value])
    disk.kill()
    assert read_all(open_log(disk, config)) == list(enumerate(values))


def test_batches_out_of_order_end_the_log() -> None:
    disk = FakeDisk()
    log = open_log(disk)
    append(log, [b"a"])
    append(log, [b"b"])
    path = log.active_segment.path
    disk.kill()
    data = batch([b"again"])  # base offset 0
    disk.open(path).write_at(disk.size(path), [data])
    log = open_log(disk)
    assert read_all(log) == [(0, b"a"), (1, b"b")]
    assert "cannot follow 1" in log.cuts[0]


ONE_SEGMENT = LogConfig(segment_bytes=100_000, index_interval_bytes=150)


def closed_then_damaged(damaged_batch: int) -> tuple[FakeDisk, list[bytes], list[tuple[int, int]]]:
    """A log of one segment, closed, with the magic byte of a batch flipped; its values, and where batches begin."""
    disk, values = written(config=ONE_SEGMENT)
    open_log(disk, ONE_SEGMENT).close()
    path = last_log(disk)
    begins = [(0, 0), *ends(disk, path)]
    disk.flip_bit(path, (begins[damaged_batch][0] + 16) * 8)
    return disk, values, begins


def test_what_follows_damage_outlives_a_reader_who_meets_it() -> None:
    """The index leads past it, also after the next clean stop: it is not built anew up to the damage only."""
    disk, values, begins = closed_then_damaged(5)
    position, damaged = begins[5]
    for _ in range(2):
        log = open_log(disk, ONE_SEGMENT, clean=True)
        assert not log.cuts
        with pytest.raises(ApiError) as caught:
            log.read(damaged, 1000)
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert caught.value.message is not None
        assert f"byte {position}" in caught.value.message
        beyond = begins[13][1]
        assert read_all(log, start=beyond) == list(enumerate(values))[beyond:]
        log.close()


def test_what_follows_damage_outlives_a_look_up_that_an_index_leads_astray() -> None:
    disk, values, begins = closed_then_damaged(5)
    entry = 2
    disk.flip_bit(last_log(disk).replace(".log", ".timeindex"), (TimeIndex.ENTRY.size * (entry + 1) - 1) * 8)
    log = open_log(disk, ONE_SEGMENT, clean=True)
    found = looked_up(log.offset_for_timestamp(NOW + 3))
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW + 3, begins[3][1])
    beyond = begins[13][1]
    assert read_all(log, start=beyond) == list(enumerate(values))[beyond:]


def test_damage_at_the_start_of_the_active_segment_holds_no_writer_up() -> None:
    """It is told to who reads there; a marker that could not be written would hold up its transaction for ever."""
    disk, values, begins = closed_then_damaged(0)
    log = open_log(disk, ONE_SEGMENT, clean=True)
    assert log.log_end_offset == len(values)
    assert append(log, [b"goes on"]) == len(values)
    beyond = begins[8][1]
    assert read_all(log, start=beyond) == [*enumerate(values), (len(values), b"goes on")][beyond:]
    with pytest.raises(ApiError) as caught:
        log.read(0, 1000)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_log_is_cut_back_behind_damage_and_what_comes_then_is_found() -> None:
    disk = FakeDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=1000))
    for value in (b"a", b"b", b"c"):
        append(log, [value])
    disk.flip_bit(last_log(disk), 16 * 8)  # the magic byte of the first batch
    assert log.truncate_to(2)
    assert log.log_end_offset == 2
    assert append(log, [b"C"]) == 2
    log.roll(NOW)  # what is known of the last batches goes with it
    assert read_all(log, start=2) == [(2, b"C")]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_log_is_cut_back_into_a_segment_that_has_a_damaged_index(suffix: str) -> None:
    disk, values = written(120)
    open_log(disk, SMALL).close()
    path = f"{DIRECTORY}/{file_name(0)}{suffix}"
    disk.write_bytes(path, disk.read_bytes(path)[:-1])
    log = open_log(disk, SMALL, clean=True)
    assert log.truncate_to(5, now_ms=NOW)
    end = log.log_end_offset
    assert append(log, [b"goes on"]) == end
    assert read_all(log) == [*enumerate(values[:end]), (end, b"goes on")]


def test_a_log_is_cut_back_to_the_end_of_a_segment_that_has_a_damaged_index() -> None:
    """Nothing of the segment is cut off, as compaction took its last batch; but it is the active one then."""
    disk, values = written(120)
    open_log(disk, SMALL).close()
    path = f"{DIRECTORY}/{file_name(0)}.log"
    size, end = ends(disk, path)[-2]
    disk.open(path).truncate(size)
    time_index = path.replace(".log", ".timeindex")
    disk.write_bytes(time_index, disk.read_bytes(time_index)[:-1])
    log = open_log(disk, replace(SMALL, segment_index_bytes=144), clean=True)
    assert log.truncate_to(end, now_ms=NOW)
    assert append(log, [b"goes on"]) == end
    assert read_all(log) == [*enumerate(values[:end]), (end, b"goes on")]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_damaged_while_it_is_written_fails_no_append(suffix: str) -> None:
    disk, values = written(config=ONE_SEGMENT)
    open_log(disk, ONE_SEGMENT).close()
    log = open_log(disk, ONE_SEGMENT, clean=True)
    path = last_log(disk).replace(".log", suffix)
    disk.open(path).truncate(disk.size(path) - 1)
    for number in range(10):
        values.append(b"x" * 100)
        append(log, values[-1:], timestamp=NOW + 100 + number)
    log.roll(NOW)
    assert read_all(log) == list(enumerate(values))
    found = looked_up(log.offset_for_timestamp(NOW + 105))
    assert found is not None
    assert found.offset == len(values) - 5


def test_retention_judges_a_segment_that_is_damaged_by_what_of_it_can_be_read() -> None:
    disk, values = written(120)
    open_log(disk, SMALL).close()
    path = f"{DIRECTORY}/{file_name(0)}.log"
    for suffix in (".index", ".timeindex"):
        disk.write_bytes(path.replace(".log", suffix), b"")
    disk.flip_bit(path, (ends(disk, path)[-2][0] + 16) * 8)
    log = open_log(disk, replace(SMALL, retention_ms=1000), clean=True)
    assert log.delete_old_segments(NOW + 120 + 1001, high_watermark=len(values)) > 0


class _Stop(Exception):
    pass


@pytest.mark.parametrize("lost", ["leader-epoch-checkpoint", ".snapshot", ".index"])
def test_a_stop_is_heard_in_every_segment_that_is_read_for_a_file_that_is_lost(lost: str) -> None:
    """Everything is flushed: but for that, only the last segment would be read."""
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    values = [b"%d" % number * 50 for number in range(60)]
    for sequence, value in enumerate(values):
        append(log, [value], producer_id=7, sequence=sequence)
    log.close()
    disk.kill()
    segments = sum(name.endswith(".log") for name in disk.list_dir(DIRECTORY))
    assert segments > 4
    usual = _checks(disk.snapshot(), len(values))
    for name in disk.list_dir(DIRECTORY):
        if name.endswith(lost):
            disk.remove(f"{DIRECTORY}/{name}")
    needed = _checks(disk.snapshot(), len(values))
    assert needed >= usual + segments - 2
    for number in range(1, needed + 1):
        stopped = disk.snapshot()
        with pytest.raises(_Stop):
            _checks(stopped, len(values), stop_at=number)
        stopped.kill()
        again = open_log(stopped, SMALL, recovery_point=len(values))
        assert read_all(again) == list(enumerate(values))
        assert again.producers.active_producers[7].last_sequence == len(values) - 1


def _checks(disk: FakeDisk, recovery_point: int, *, stop_at: int = 0) -> int:
    """The number of times that opening the log asks whether it is to go on. It is told to stop at one of them."""
    count = 0

    def go_on(left: int) -> None:
        nonlocal count
        count += 1
        if count == stop_at:
            raise _Stop

    open_log(disk, SMALL, recovery_point=recovery_point, segments_left=go_on)
    return count


EPOCH_FLIPS = {
    "count": (b"0\n4\n", b"0\n5\n"),
    "count is less": (b"0\n4\n", b"0\n0\n"),
    "first epoch": (b"\n0 0\n", b"\n1 0\n"),
    "an epoch": (b"\n2 40\n", b"\n3 40\n"),
    "an epoch goes back": (b"\n2 40\n", b"\n0 40\n"),
    "last epoch": (b"\n3 60\n", b"\n7 60\n"),
    "first start": (b"\n0 0\n", b"\n0 8\n"),
    "a start": (b"\n1 20\n", b"\n1 30\n"),
    "a start is less": (b"\n2 40\n", b"\n2 24\n"),
    "a start is not of a batch": (b"\n2 40\n", b"\n2 41\n"),
    "a start is beyond the next": (b"\n1 20\n", b"\n1 60\n"),
    "last start": (b"\n3 60\n", b"\n3 70\n"),
    "last start is less": (b"\n3 60\n", b"\n3 50\n"),
    "last start is beyond the end": (b"\n3 60\n", b"\n3 960\n"),
}


@with_each(product(EPOCH_FLIPS, [None, 0, 70, 80]))
def test_leader_epochs_that_the_batches_do_not_have_are_made_anew(flip: str, point: int | None) -> None:
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    for number in range(40):
        append(log, [b"%d" % number * 40, b""], leader_epoch=number // 10)
    log.close()
    epochs = log.leader_epochs.entries
    assert epochs == [(0, 0), (1, 20), (2, 40), (3, 60)]
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    whole, (old, new) = disk.read_bytes(path), EPOCH_FLIPS[flip]
    assert whole.count(old) == 1
    disk.write_bytes(path, whole.replace(old, new))
    is_clean = point is None
    log = open_log(disk, SMALL, clean=is_clean, recovery_point=80 if point is None else point, leaves_holes=True)
    assert log.leader_epochs.entries == epochs
    assert (log.log_end_offset, log.is_damaged) == (80, False)
    log.close()
    assert disk.read_bytes(path) == whole


@pytest.mark.parametrize("clean", [True, False])
def test_leader_epochs_whose_batches_are_gone_stay(clean: bool) -> None:
    """Compaction, deletion of the oldest, or a leader that wrote nothing: no batch says what the file does."""
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    for base, epoch in ((0, 1), (10, 2), (50, 7), (60, 7)):
        log.append_as_follower(
            build_batch([Record(0, NOW, None, b"v" * 500)], base_offset=base, partition_leader_epoch=epoch),
            now_ms=NOW,
            leader_epoch=7,
        )
    log.close()
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    whole = b"0\n5\n1 1\n2 8\n4 20\n5 30\n7 40\n"
    disk.write_bytes(path, whole)
    log = open_log(disk, SMALL, clean=clean, recovery_point=61, log_start_offset=1, clean_offset=61)
    assert log.leader_epochs.entries == [(1, 1), (2, 8), (4, 20), (5, 30), (7, 40)]


def test_a_batch_whose_epoch_goes_back_does_not_spoil_the_file() -> None:
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    for number in range(40):
        append(log, [b"%d" % number * 40, b""], leader_epoch=4 + number // 10)
    log.close()
    epochs = log.leader_epochs.entries
    path = f"{DIRECTORY}/{file_name(0)}.log"
    position = next(at for at, header in walk_headers(disk.read_bytes(path)) if header.base_offset == 20)
    disk.flip_bit(path, (position + 15) * 8 + 5)
    log = open_log(disk, SMALL, clean=True, recovery_point=80)
    assert log.leader_epochs.entries == epochs


@pytest.mark.parametrize("offset", [0, 2])
def test_what_was_cut_off_is_not_missed_where_the_power_fails_after_a_clean_stop(offset: int) -> None:
    disk = FakeDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=0))
    disk.sync_dir("/")
    append(log, [b"0", b"1"])
    log.roll(NOW)
    for value in (b"2", b"3", b"4"):
        append(log, [value])
    log.close()
    log.truncate_to(offset)
    log.close()
    disk.crash(lose_all=True)
    again = open_log(disk, clean=True, recovery_point=log.recovery_point, leaves_holes=True)
    assert (again.log_end_offset, again.damage) == (offset, ())
