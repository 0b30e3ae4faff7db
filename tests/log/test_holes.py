"""Offsets that compaction took between segments are no damage, whatever the checkpoints say.

What cannot be explained is set aside, and never deleted.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import pytest

from kbroker.client.records_io.log_entries import has_entries, read_entries
from kbroker.log.checkpoint_files import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
    read_offsets,
)
from kbroker.log.damage import Damage, note
from kbroker.log.fake_disk import FakeDisk, PowerCut
from kbroker.log.file_names import SET_ASIDE_SUFFIX
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.types import Uuid
from kbroker.wire.batch_header import walk_headers
from tests.log.log_helpers import DIRECTORY, NOW, TP, append, batch, delete_expired, finish, open_log, read_all

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=-1)
ID = Uuid(bytes(15) + b"\x05")
LOST = (*((name,) for name in OFFSET_CHECKPOINTS), (RECOVERY_POINTS, CLEANER_OFFSETS), OFFSET_CHECKPOINTS)
WAYS = ("emptied", "removed", "cut", "version alone")


def start(disk: FakeDisk, *dirs: str, leaves_holes: bool = True) -> LogManager:
    return LogManager.open(
        dirs or ["/data"],
        disk,
        now_ms=NOW,
        log_config=lambda tp: CONFIG,
        rng=random.Random(1),
        leaves_holes=leaves_holes,
    )


def log_of(manager: LogManager) -> PartitionLog:
    log = manager.get_log(TP)
    assert log is not None
    return log


@cache
def _made_with_holes() -> tuple[FakeDisk, list[tuple[int, bytes]]]:
    """A disk with a log whose first segment compaction has emptied, as it has taken the last batch of others; and what
    is in the log. Nothing was closed: the process is gone."""
    disk = FakeDisk()
    manager = start(disk)
    log = manager.create_log(TP, ID, CONFIG)
    values = [b"%d" % number + b"v" * 100 for number in range(40)]
    for value in values:
        append(log, [value])
    log.flush()
    finish(manager.cleaner_offsets.before_round(log, 0))
    gone: set[int] = set()
    for number, segment in enumerate(log.segments[:-1]):
        headers = list(walk_headers(disk.read_bytes(segment.path)))
        assert len(headers) > 2
        position, last = headers[-1]
        file = disk.open(segment.path)
        if number == 0:
            file.truncate(0)
            gone.update(header.base_offset for _, header in headers)
        elif number % 2:
            file.truncate(position)
            gone.add(last.base_offset)
        file.sync()
        for index in segment.index_paths():
            disk.remove(index)
    manager.cleaner_offsets.after_round(log, log.segments[-1].base_offset)()
    manager.checkpoint({TP: log.log_end_offset})
    append(log, [b"not flushed"])
    values.append(b"not flushed")
    disk.sync_dir(DIRECTORY)
    manager.release()
    disk.kill()
    return disk, [(offset, value) for offset, value in enumerate(values) if offset not in gone]


def with_holes() -> tuple[FakeDisk, list[tuple[int, bytes]]]:
    """A copy of that disk, for one test; and what is in the log."""
    disk, expected = _made_with_holes()
    return disk.snapshot(), expected


def lose(disk: FakeDisk, path: str, way: str) -> None:
    data = disk.read_bytes(path)
    if way == "removed":
        disk.remove(path)
    else:
        disk.write_bytes(path, {"emptied": b"", "cut": data[: len(data) // 2], "version alone": b"0\n"}[way])


def aside(disk: FakeDisk, directory: str = DIRECTORY) -> list[str]:
    return [name for name in disk.list_dir(directory) if name.endswith(SET_ASIDE_SUFFIX)]


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", LOST)
def test_a_compacted_log_keeps_all_when_checkpoints_are_lost(names: tuple[str, ...], way: str, clean: bool) -> None:
    disk, expected = with_holes()
    if clean:
        manager = start(disk)
        manager.close(high_watermarks={TP: log_of(manager).log_end_offset})
    for name in names:
        path = f"/data/{name}"
        if disk.exists(path):
            lose(disk, path, way)
    # Twice: what the first start has found out must be known to the second, with its checkpoints or without.
    for writes_checkpoints in (False, True, False):
        manager = start(disk)
        log = log_of(manager)
        assert log.log_start_offset == 0
        assert read_all(log) == expected
        assert not log.cuts
        assert not aside(disk)
        if writes_checkpoints:
            manager.checkpoint()
        manager.release()
        disk.kill()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_directory_that_was_moved_to_another_log_dir_keeps_all(clean: bool) -> None:
    disk, expected = with_holes()
    start(disk, "/two").close()
    if clean:
        start(disk).close()
    disk.make_dirs(f"/two/{TP}")
    for name in disk.list_dir(DIRECTORY):
        disk.write_bytes(f"/two/{TP}/{name}", disk.read_bytes(f"{DIRECTORY}/{name}"), sync=True)
        disk.remove(f"{DIRECTORY}/{name}")
    disk.remove_tree(DIRECTORY)
    if not clean:
        disk.remove("/two/.kafka_cleanshutdown")
    for _ in range(2):
        manager = start(disk, "/data", "/two")
        log = log_of(manager)
        assert log.directory.startswith("/two")
        assert read_all(log) == expected
        assert not aside(disk, log.directory)
        manager.checkpoint()
        manager.release()
        disk.kill()


@pytest.mark.parametrize("leaves_holes", [True, False], ids=["hole", "cut"])
def test_only_of_a_log_that_the_checkpoints_know_missing_offsets_are_damage(leaves_holes: bool) -> None:
    """It has never been compacted, so the end of a segment is lost; from the second segment on they know it."""
    disk = FakeDisk()
    manager = start(disk)
    log = manager.create_log(TP, ID, CONFIG)
    values = [b"%d" % number + b"v" * 100 for number in range(20)]
    for value in values:
        append(log, [value])
    assert read_offsets(disk, f"/data/{RECOVERY_POINTS}") == {TP: 0}
    assert read_offsets(disk, f"/data/{CLEANER_OFFSETS}") == {}
    first, *others = log.segments
    headers = list(walk_headers(disk.read_bytes(first.path)))
    position, lost = headers[-1]
    disk.open(first.path).truncate(position)
    kept = {segment.path: disk.read_bytes(segment.path) for segment in others if segment.size}
    manager.release()
    disk.kill()
    again = log_of(start(disk, leaves_holes=leaves_holes))
    (place,) = again.damage
    assert place.start_offset == lost.base_offset
    if leaves_holes:
        assert place.end_offset == lost.next_offset
        assert read_all(again) == [each for each in enumerate(values) if each[0] != lost.base_offset]
        assert not aside(disk)
        return
    assert place.end_offset == len(values)
    assert read_all(again) == list(enumerate(values[: lost.base_offset]))
    for path, data in kept.items():
        assert not disk.exists(path)
        assert disk.read_bytes(f"{path}.0{SET_ASIDE_SUFFIX}") == data
        note = json.loads(disk.read_bytes(f"{path}.0{SET_ASIDE_SUFFIX}.json"))
        assert note["start_offset"] == lost.base_offset
        assert note["size"] == len(data)
        assert note["reason"]
    assert len(again.cuts) == 1 + len(kept)
    for value in values[lost.base_offset :]:
        append(again, [value])
    assert read_all(again) == list(enumerate(values))


def test_damage_is_set_aside_and_a_torn_tail_is_not() -> None:
    disk = FakeDisk()
    log = open_log(disk, LogConfig())
    values = [b"%d" % number + b"v" * 100 for number in range(6)]
    for value in values:
        append(log, [value])
    path = log.active_segment.path
    whole = disk.read_bytes(path)
    begins = [position for position, _ in walk_headers(whole)]
    for cut in (1, 40, 61, 100):
        torn = disk.snapshot()
        torn.open(path).truncate(begins[-1] + cut)
        assert read_all(open_log(torn)) == list(enumerate(values[:-1]))
        assert not aside(torn)
    zeros = disk.snapshot()
    zeros.open(path).truncate(begins[-1])
    zeros.open(path).truncate(begins[-1] + 5000)
    assert read_all(open_log(zeros)) == list(enumerate(values[:-1]))
    assert not aside(zeros)
    # The last batch again, below the recovery point, where nothing can be torn.
    flushed = disk.snapshot()
    flushed.open(path).truncate(begins[-1] + 40)
    assert read_all(open_log(flushed, recovery_point=6)) == list(enumerate(values[:-1]))
    assert [flushed.read_bytes(f"{DIRECTORY}/{name}") for name in aside(flushed)] == [whole[begins[-1] :][:40]]
    blank = disk.snapshot()
    blank.open(path).write_at(1024, [bytes(len(whole) - 1024)])
    assert begins[-1] < 1024 and read_all(open_log(blank)) == list(enumerate(values[:-1]))
    assert not aside(blank)
    for damaged in (0, 2, 5):
        broken = disk.snapshot()
        broken.flip_bit(path, (begins[damaged] + 80) * 8)
        data = broken.read_bytes(path)
        log = open_log(broken)
        assert read_all(log) == list(enumerate(values[:damaged]))
        (name,) = aside(broken)
        assert name == f"{path.rpartition('/')[2]}.{begins[damaged]}{SET_ASIDE_SUFFIX}"
        assert broken.read_bytes(f"{DIRECTORY}/{name}") == data[begins[damaged] :]
        assert name in log.cuts[0]
        # The same again at the same place has a name of its own.
        log.flush()
        for value in values[damaged:]:
            append(log, [value])
        broken.flip_bit(path, (begins[damaged] + 80) * 8)
        open_log(broken)
        assert len(aside(broken)) == 2


@pytest.mark.parametrize("leaves_holes", [True, False], ids=["hole", "cut"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize(
    ("start_offset", "cut_at", "end"),
    [(0, 3, 1), (0, 8, 6), (0, 13, 11), (2, 3, 2)],
    ids=["in a segment", "before its first batch", "behind its last batch", "with the start of the log"],
)
def test_a_log_that_is_cut_back_into_a_gap_is_whole(
    start_offset: int, cut_at: int, end: int, clean: bool, leaves_holes: bool
) -> None:
    """Of an end in there no batch and no name of a file tells the next start, for which it would be lost."""
    disk = FakeDisk()
    manager = start(disk, leaves_holes=leaves_holes)
    log = manager.create_log(TP, ID, CONFIG)
    for base_offset, offset in ((0, 0), (0, 5), (6, 10), (15, 15)):  # as a follower gets them of a compacted log
        if base_offset > log.active_segment.base_offset:
            log.roll(NOW, base_offset=base_offset)
        data = batch([b"v"])
        data[:8] = offset.to_bytes(8, "big")
        log.append_as_follower(data, now_ms=NOW)
    log.maybe_increment_log_start_offset(start_offset)
    log.flush()
    manager.checkpoint({TP: log.log_end_offset})
    assert log.truncate_to(cut_at, now_ms=NOW)
    expected = read_all(log)
    for _ in range(3):
        log.flush()
        if clean:
            manager.close(high_watermarks={TP: log.log_end_offset})
        else:
            manager.checkpoint({TP: log.log_end_offset})
            manager.release()
            disk.kill()
        manager = start(disk, leaves_holes=leaves_holes)
        log = log_of(manager)
        assert not log.cuts and not log.damage and not aside(disk)
        assert (log.log_start_offset, read_all(log)) == (start_offset, expected)
        log.roll(NOW)
        expected.append((end, b"goes on"))
        end = append(log, [b"goes on"]) + 1
        assert read_all(log) == expected


def test_what_is_set_aside_can_be_shown(tmp_path: Path) -> None:
    disk = FakeDisk()
    log = open_log(disk, LogConfig())
    for number in range(4):
        append(log, [b"%d" % number])
    path = log.active_segment.path
    disk.flip_bit(path, (list(walk_headers(disk.read_bytes(path)))[1][0] + 65) * 8)
    open_log(disk)
    (name,) = aside(disk)
    for each in (name, f"{name}.json"):
        (tmp_path / each).write_bytes(disk.read_bytes(f"{DIRECTORY}/{each}"))
    shown = [entry for entry in read_entries(tmp_path / name) if entry["kind"] == "batch"]
    assert [entry["base_offset"] for entry in shown] == [2, 3]
    assert "crc" in str(list(read_entries(tmp_path / f"{name}.json")))
    assert has_entries(tmp_path / name)


def test_a_log_that_ends_before_its_start_is_set_aside() -> None:
    disk = FakeDisk()
    log = open_log(disk, CONFIG)
    for number in range(20):
        append(log, [b"%d" % number + b"v" * 100])
    contents = [disk.read_bytes(segment.path) for segment in log.segments if segment.size]
    disk.kill()
    log = open_log(disk, CONFIG, log_start_offset=1000)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    assert [disk.read_bytes(f"{DIRECTORY}/{name}") for name in aside(disk)] == contents


def test_a_stop_while_bytes_are_set_aside_leaves_the_log_as_it_was() -> None:
    disk = FakeDisk()
    log = open_log(disk, LogConfig())
    for number in range(6):
        append(log, [b"%d" % number * 100])
    path = log.active_segment.path
    disk.flip_bit(path, 80 * 8)
    data = disk.read_bytes(path)
    for directory in ("/", "/data", DIRECTORY):
        disk.sync_dir(directory)
    whole = disk.snapshot()
    open_log(whole)
    assert whole.operations > 5
    for point in range(whole.operations):
        again = disk.snapshot()
        again.crash_after = point
        with pytest.raises(PowerCut):
            open_log(again)
        again.crash()
        assert open_log(again).log_end_offset == 0
        assert data in [again.read_bytes(f"{DIRECTORY}/{name}") for name in aside(again)], point


def test_a_copy_that_there_is_no_room_for_is_removed() -> None:
    disk = FakeDisk()
    log = open_log(disk)
    for count in range(4):
        append(log, [b"v%d" % count + b"x" * 500])
    path = f"{DIRECTORY}/{0:020}.log"
    disk.flip_bit(path, 8 * 700)
    disk.capacity = disk.used() + 300
    with pytest.raises(OSError, match="No space left"):
        open_log(disk)
    assert not [name for name in disk.list_dir(DIRECTORY) if SET_ASIDE_SUFFIX in name]
    disk.capacity = None
    assert len(read_all(open_log(disk))) == 1
    assert len(aside(disk)) == 1


def test_what_is_set_aside_stays_when_its_log_moves_to_another_log_dir() -> None:
    disk = FakeDisk()
    manager = start(disk, "/one", "/two")
    log = manager.create_log(TP, ID, CONFIG)
    log.append_as_leader(batch([b"v"]), 0, now_ms=NOW)
    name = f"{0:020d}.log.7{SET_ASIDE_SUFFIX}"
    disk.write_bytes(f"{log.directory}/{name}", b"kept")
    target = next(log_dir for log_dir in manager.log_dirs if log_dir is not manager.log_dir_of(TP))
    move = manager.moves.begin(log, target, now_ms=NOW)
    assert move is not None
    while move.copy(1 << 20, NOW):
        pass
    move.take_name(NOW)
    move.finish(NOW)
    for later in (1, 2):
        delete_expired(manager, NOW + later)
    (stray,) = [each for each in disk.list_dir("/one") if each.endswith("-stray")]
    assert disk.read_bytes(f"/one/{stray}/{name}") == b"kept"


def test_a_file_of_offsets_whose_last_number_is_cut_is_not_believed() -> None:
    disk = FakeDisk()
    manager = start(disk)
    log = manager.create_log(TP, ID, CONFIG)
    append(log, [b"v"] * 20)
    manager.close(high_watermarks={TP: 20})
    path = f"/data/{HIGH_WATERMARKS}"
    disk.open(path).truncate(disk.size(path) - 2)  # "20" is "2" now
    assert start(disk).high_watermarks == {}


def test_the_leader_epoch_of_what_stands_for_a_lost_end_is_known() -> None:
    disk = FakeDisk()
    log = open_log(disk)
    for epoch in (2, 3):
        append(log, [b"x"], leader_epoch=epoch)
        log.roll(NOW)
    log.close()
    note(disk, DIRECTORY, [Damage(1, 2, "", 0, 0, "it was noted before the node stopped again", NOW)])
    disk.write_bytes(f"{DIRECTORY}/{1:020}.log", b"")
    again = open_log(disk, recovery_point=1, leaves_holes=True)
    assert (again.log_end_offset, again.leader_epochs.entries) == (2, [(2, 0), (3, 1)])
