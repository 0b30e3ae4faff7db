"""Damage is told from a torn tail, takes nothing with it that is whole, and is remembered until it has healed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.damage import FILE_NAME, Damage, note, read_damage
from kbroker.log.fake_disk import FakeDisk, PowerCut
from kbroker.log.file_names import SET_ASIDE_SUFFIX
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.types import Uuid
from kbroker.wire.batch_header import CRC_AT, BatchHeader, walk_headers
from tests.log.log_helpers import DIRECTORY, NOW, TP, append, batch, make_holes, missing, open_log, read_all
from tests.log.test_compaction import end_txn, put

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=-1)
ONE_SEGMENT = LogConfig(index_interval_bytes=150, retention_ms=-1)
ID = Uuid(bytes(15) + b"\x05")
COUNT = 20
VALUES = [(number, b"%d" % number + b"v" * 100) for number in range(COUNT)]


def start(disk: FakeDisk, *, leaves_holes: bool = True) -> LogManager:
    return LogManager.open(
        ["/data"], disk, now_ms=NOW, log_config=lambda tp: CONFIG, rng=random.Random(1), leaves_holes=leaves_holes
    )


def log_of(manager: LogManager) -> PartitionLog:
    log = manager.get_log(TP)
    assert log is not None
    return log


def written(*, clean: bool) -> FakeDisk:
    """A disk with a log of several segments, all of which was committed."""
    disk = FakeDisk()
    manager = start(disk)
    log = manager.create_log(TP, ID, CONFIG)
    for number, value in VALUES:
        append(log, [value], timestamp=NOW + number)
    if clean:
        manager.close(high_watermarks={TP: COUNT})
    else:
        manager.checkpoint({TP: COUNT})
        manager.release()
    disk.kill()
    return disk


def logs(disk: FakeDisk) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in disk.list_dir(DIRECTORY) if name.endswith(".log")]


def aside(disk: FakeDisk) -> list[str]:
    return [name for name in disk.list_dir(DIRECTORY) if name.endswith(SET_ASIDE_SUFFIX)]


def lose(disk: FakeDisk, path: str, way: str) -> None:
    if way == "removed":
        disk.remove(path)
    else:
        disk.open(path).truncate(0 if way == "emptied" else disk.size(path) // 2)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("way", ["emptied", "removed", "cut"])
@pytest.mark.parametrize("number", [0, 1, -1], ids=["first", "middle", "last"])
def test_what_a_file_lost_is_missed_and_nothing_else(number: int, way: str, clean: bool) -> None:
    disk = written(clean=clean)
    path = logs(disk)[number]
    lose(disk, path, way)
    manager = start(disk)
    log = log_of(manager)
    found = dict(read_all_with_holes(log))
    assert found.items() <= dict(VALUES).items()
    lost = set(range(COUNT)) - found.keys()
    assert lost and lost == missing(log)
    assert min(lost) >= int(path[-24:-4]) and len(lost) <= 8
    assert log.log_end_offset == COUNT  # no offset is given twice
    assert append(log, [b"goes on"]) == COUNT
    manager.close()
    # The next start, after whatever stop, knows that.
    for _ in range(2):
        manager = start(disk)
        log = log_of(manager)
        assert not log.cuts
        assert missing(log) == lost
        assert dict(read_all(log)) == {**found, COUNT: b"goes on"}
        manager.release()
        disk.kill()


def read_all_with_holes(log: PartitionLog) -> list[tuple[int, bytes]]:
    """All that can be read once the damage that shows is taken out."""
    for _ in range(100):
        try:
            return read_all(log)
        except ApiError as error:
            assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            make_holes(log)
    raise AssertionError("holes do not help")


@pytest.mark.parametrize("cleanup_policy", ["delete", "compact"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_last_batch_that_is_too_far_ahead_is_doubted_and_stays(clean: bool, cleanup_policy: str) -> None:
    disk = written(clean=clean)
    path = logs(disk)[-1]
    *_, (position, header) = walk_headers(disk.read_bytes(path))
    assert header.base_offset == COUNT - 1
    disk.flip_bit(path, (position + 6) * 8 + 5)  # of the base offset, which no checksum covers: 8192
    ahead = COUNT - 1 + 8192
    log = open_log(
        disk,
        replace(CONFIG, cleanup_policy=frozenset({cleanup_policy})),
        clean=clean,
        recovery_point=COUNT if clean else 0,
        leaves_holes=True,
    )
    assert read_all(log) == [*VALUES[:-1], (ahead, VALUES[-1][1])]
    # Compaction leaves such gaps. Else another replica leads, and this one fetches from the gap on.
    assert missing(log) == (set(range(COUNT - 1, ahead + 1)) if cleanup_policy == "delete" else set())
    assert log.log_end_offset == ahead + 1


def test_the_last_batch_of_a_log_with_other_gaps_is_not_doubted() -> None:
    """A follower that copies a compacted log is killed: a node opens logs before it knows how they are configured."""
    disk = FakeDisk()
    manager = start(disk)
    log = manager.create_log(TP, ID, CONFIG)
    for offset in (3, 8, 11, 30):
        data = batch([b"%d" % offset])
        data[:8] = offset.to_bytes(8, "big")
        log.append_as_follower(data, now_ms=NOW)
    manager.release()
    disk.kill()
    log = log_of(start(disk))
    assert read_all(log) == [(offset, b"%d" % offset) for offset in (3, 8, 11, 30)]
    assert missing(log) == set() and not log.cuts


@pytest.mark.parametrize("what", ["a flipped bit", "a sector of zeros", "its length", "its offset", "its leader epoch"])
@pytest.mark.parametrize("leaves_holes", [True, False], ids=["hole", "cut"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_of_a_damaged_batch_nothing_else_is_lost(clean: bool, leaves_holes: bool, what: str) -> None:
    disk = written(clean=clean)
    path = logs(disk)[1]
    starts = [(position, header.base_offset) for position, header in walk_headers(disk.read_bytes(path))]
    position, offset = starts[2]
    whole = disk.read_bytes(path)
    if what == "a sector of zeros":
        disk.open(path).write_at(position + 20, [bytes(300)])
        lost = {each for at, each in starts if position <= at < position + 320}
    else:
        byte = {"a flipped bit": 80, "its length": 10, "its offset": 7, "its leader epoch": 14}[what]
        disk.flip_bit(path, (position + byte) * 8)
        lost = {offset}
    damaged = disk.read_bytes(path)
    manager = start(disk, leaves_holes=leaves_holes)
    log = log_of(manager)
    heard: list[object] = []
    log.on_damage = heard.append
    if clean and what == "its leader epoch":
        return  # it hurts no reader; who verifies the segment finds it
    if clean:
        with pytest.raises(ApiError) as caught:
            read_all(log)
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert heard == [log]
        assert log.has_damaged_bytes
        with pytest.raises(ApiError):
            read_all(log, start=offset)
        assert heard == [log]
        make_holes(log)
    if not clean and not leaves_holes:
        assert read_all(log) == VALUES[:offset]
        assert missing(log) == set(range(offset, COUNT))
        assert append(log, [b"goes on"]) == offset
        return
    assert not log.has_damaged_bytes
    assert missing(log) == lost
    assert log.whole_end_offset == min(lost)
    expected = [each for each in VALUES if each[0] not in lost]
    assert read_all(log) == expected
    (name,) = aside(disk)
    data = disk.read_bytes(f"{DIRECTORY}/{name}")
    assert data == damaged[position : position + len(data)]
    assert len(data) + disk.size(path) == len(whole)
    assert log.damage[0].set_aside == name
    log.close()
    manager.release()
    disk.kill()
    disk.write_bytes("/data/recovery-point-offset-checkpoint", b"")
    log = log_of(start(disk))
    assert read_all(log) == expected
    assert missing(log) == lost
    assert not log.cuts


def test_what_was_committed_or_flushed_is_no_torn_tail() -> None:
    disk = FakeDisk()
    log = open_log(disk, ONE_SEGMENT)
    for _, value in VALUES:
        append(log, [value])
    path = log.active_segment.path
    positions = [position for position, _ in walk_headers(disk.read_bytes(path))]
    disk.open(path).truncate(positions[-1] + 30)
    assert not open_log(disk.snapshot(), ONE_SEGMENT, leaves_holes=True).is_damaged
    for point, mark, clean in ((COUNT, 0, False), (0, COUNT, False), (COUNT, 0, True)):
        log = open_log(
            disk.snapshot(), ONE_SEGMENT, leaves_holes=True, recovery_point=point, high_watermark=mark, clean=clean
        )
        assert missing(log) == {COUNT - 1}
        assert log.log_end_offset == COUNT
        assert read_all(log) == VALUES[:-1]
    assert not open_log(disk.snapshot(), ONE_SEGMENT, leaves_holes=True, high_watermark=COUNT - 1).is_damaged
    epochs = disk.snapshot()
    epochs.write_bytes(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n2\n0 0\n1 %d\n" % COUNT)
    assert missing(open_log(epochs, ONE_SEGMENT, leaves_holes=True)) == {COUNT - 1}


def test_what_was_cut_out_of_a_healed_log_does_not_come_back_with_the_power() -> None:
    """It fails before what the leader has sent instead is flushed. What marks the place of what is missing is whole,
    and would pass for what compaction leaves: a log that has nothing, in sync, and perhaps elected."""
    disk = written(clean=False)
    for path in logs(disk):
        lose(disk, path, "removed")
    log = log_of(start(disk))
    assert missing(log) == set(range(COUNT))
    log.flush()
    log.truncate_to(0)
    log.healed()
    for _, value in VALUES:
        append(log, [value])
    disk.kill()
    start(disk).checkpoint({TP: COUNT})
    disk.crash(lose_all=True)
    log = log_of(start(disk))
    assert log.log_end_offset == 0 or missing(log) == set(range(COUNT))


@pytest.mark.parametrize("tail", [b"garbage" * 100, bytes(3000), None], ids=["garbage", "zeros", "doubled"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_bytes_behind_the_end_take_nothing_away(clean: bool, tail: bytes | None) -> None:
    disk = written(clean=clean)
    path = logs(disk)[-1]
    data = disk.read_bytes(path)
    disk.open(path).write_at(len(data), [data if tail is None else tail])
    log = log_of(start(disk))
    assert read_all(log) == VALUES
    assert not log.is_damaged
    assert bool(aside(disk)) == (tail is None or any(tail))
    assert append(log, [b"goes on"]) == COUNT


def test_a_segment_that_is_there_twice_takes_nothing_away() -> None:
    disk = written(clean=True)
    path = logs(disk)[1]
    data = disk.read_bytes(path)
    disk.open(path).write_at(len(data), [data])
    log = log_of(start(disk))
    assert read_all_with_holes(log) == VALUES
    assert not log.is_damaged
    assert len(aside(disk)) == 1


def test_two_places_at_once() -> None:
    disk = written(clean=False)
    path = logs(disk)[1]
    headers = list(walk_headers(disk.read_bytes(path)))
    for number in (0, 2):
        disk.flip_bit(path, (headers[number][0] + 80) * 8)
    log = log_of(start(disk))
    lost = {headers[0][1].base_offset, headers[2][1].base_offset}
    assert missing(log) == lost
    assert len(aside(disk)) == 2
    assert read_all(log) == [each for each in VALUES if each[0] not in lost]


@pytest.mark.parametrize("lost", [8, 9, 10])
def test_a_batch_whose_offset_lay_in_a_sector_that_was_lost_is_not_read_at_another(lost: int) -> None:
    """No checksum covers the offset: with the sector before it lost, the batch would be the first of the log."""
    disk, sector = FakeDisk(), 512
    log = open_log(disk, ONE_SEGMENT)
    padding = sector - lost - len(batch([bytes(100)])) + 100
    append(log, [bytes(padding)])
    assert log.active_segment.size == sector - lost
    for value in (b"one", b"two"):
        append(log, [value])
    disk.open(log.active_segment.path).write_at(0, [bytes(sector)])
    disk.kill()
    again = open_log(disk, ONE_SEGMENT, leaves_holes=True)
    assert read_all(again) == [(2, b"two")]
    assert missing(again) == {0, 1}


def test_batches_that_a_truncation_took_away_do_not_come_back_behind_damage() -> None:
    disk = FakeDisk()
    log = open_log(disk, ONE_SEGMENT)
    for number in range(6):
        append(log, [b"%d" % number * 100], leader_epoch=2 if number < 4 else 1)
    headers = list(walk_headers(disk.read_bytes(log.active_segment.path)))
    disk.flip_bit(log.active_segment.path, (headers[3][0] + 80) * 8)
    log = open_log(disk, ONE_SEGMENT, leaves_holes=True)
    assert [offset for offset, _ in read_all(log)] == [0, 1, 2]


def test_a_power_cut_at_any_point_leaves_the_damage_known_and_the_rest_readable() -> None:
    disk = written(clean=False)
    path = logs(disk)[1]
    headers = list(walk_headers(disk.read_bytes(path)))
    disk.flip_bit(path, (headers[1][0] + 80) * 8)
    for directory in ("/", "/data", DIRECTORY):
        disk.sync_dir(directory)
    for name in logs(disk):
        disk.open(name).sync()
    lost = headers[1][1].base_offset
    expected = [each for each in VALUES if each[0] != lost]
    total = disk.snapshot()
    before = total.operations
    start(total)
    assert total.operations - before > 20
    for point in range(total.operations - before):
        again = disk.snapshot()
        again.rng.seed(point)
        again.crash_after = again.operations + point
        with pytest.raises(PowerCut):
            start(again)
        again.crash(lose_all=point % 2 == 0)
        log = log_of(start(again))
        assert read_all(log) == expected, point
        assert missing(log) == {lost}, point
        assert aside(again), point


def test_a_power_cut_while_an_open_log_gets_a_hole() -> None:
    disk = written(clean=True)
    path = logs(disk)[1]
    headers = list(walk_headers(disk.read_bytes(path)))
    disk.flip_bit(path, (headers[1][0] + 80) * 8)
    lost = headers[1][1].base_offset
    expected = [each for each in VALUES if each[0] != lost]

    def life(disk: FakeDisk) -> None:
        log = log_of(start(disk))
        with pytest.raises(ApiError):
            read_all(log)
        make_holes(log)
        assert read_all(log) == expected

    total = disk.snapshot()
    before = total.operations
    life(total)
    for point in range(total.operations - before):
        again = disk.snapshot()
        again.rng.seed(point)
        again.crash_after = again.operations + point
        with pytest.raises(PowerCut):
            life(again)
        again.crash(lose_all=point % 2 == 0)
        log = log_of(start(again))
        assert dict(read_all_with_holes(log)) == dict(expected), point
        assert missing(log) == {lost}, point


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_reader_gets_to_the_end_of_a_log_that_lost_its_last_records(clean: bool) -> None:
    """By an empty batch, as readers and followers count: without it they would wait for the next record."""
    disk = written(clean=clean)
    path = logs(disk)[-1]
    disk.flip_bit(path, (list(walk_headers(disk.read_bytes(path)))[-1][0] + 80) * 8)
    log = log_of(start(disk))
    if clean:
        with pytest.raises(ApiError):
            log.read(COUNT - 1, 1000)
        make_holes(log)
    data = log.read_bytes(COUNT - 1, 1000)
    assert [(header.last_offset, header.records_count) for _, header in walk_headers(data)] == [(COUNT - 1, 0)]
    follower = open_log(FakeDisk(), CONFIG)
    while follower.log_end_offset < log.log_end_offset:
        follower.append_as_follower(log.read_bytes(follower.log_end_offset, 1 << 20), now_ms=NOW)
    assert read_all(follower) == read_all(log) == VALUES[:-1]


def test_damage_in_the_active_segment_becomes_a_hole_and_writers_go_on() -> None:
    disk = FakeDisk()
    log = open_log(disk, ONE_SEGMENT)
    for _, value in VALUES:
        append(log, [value])
    log.close()
    path = log.active_segment.path
    disk.flip_bit(path, (list(walk_headers(disk.read_bytes(path)))[-1][0] + 80) * 8)
    log = open_log(disk, ONE_SEGMENT, clean=True, recovery_point=COUNT, leaves_holes=True)
    with pytest.raises(ApiError):
        read_all(log, start=COUNT - 1)
    assert append(log, [b"more"]) == COUNT
    make_holes(log)
    assert append(log, [b"and more"]) == COUNT + 1
    assert read_all(log) == [*VALUES[:-1], (COUNT, b"more"), (COUNT + 1, b"and more")]
    assert missing(log) == {COUNT - 1}


def test_a_truncation_while_a_hole_is_made_wins() -> None:
    disk = written(clean=True)
    path = logs(disk)[1]
    headers = list(walk_headers(disk.read_bytes(path)))
    disk.flip_bit(path, (headers[1][0] + 80) * 8)
    log = log_of(start(disk))
    with pytest.raises(ApiError):
        read_all(log)
    task = log.begin_holes(NOW)
    assert task is not None
    assert log.begin_holes(NOW) is None
    lost = headers[1][1].base_offset
    log.truncate_to(lost)  # as a follower does that fetches what it lacks
    task.run()
    task.end()
    assert log.log_end_offset == lost
    assert log.is_damaged
    for _, value in VALUES[lost:]:
        append(log, [value])
    assert read_all(log) == VALUES
    log.healed()
    assert not log.is_damaged
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(".cleaned")]


def test_a_log_is_truncated_at_damage_and_behind_it() -> None:
    for offset in (7, 9):
        disk = written(clean=True)
        path = next(path for path in reversed(logs(disk)) if int(path[-24:-4]) <= 7)
        position = next(at for at, header in walk_headers(disk.read_bytes(path)) if header.base_offset == 7)
        disk.flip_bit(path, (position + 16) * 8)
        log = log_of(start(disk))
        log.truncate_to(offset)
        assert 7 <= log.log_end_offset <= offset
        assert log.read(6, 1).first_batch_base_offset == 6
        if log.log_end_offset > 7:
            with pytest.raises(ApiError):
                read_all(log)


def batches_in(log: PartitionLog) -> list[tuple[int, BatchHeader]]:
    """Returns what is in the segments, whether readers see it or not."""
    return [each for segment in log.segments for each in walk_headers(log.disk.read_bytes(segment.path))]


DOUBLES = pytest.mark.parametrize("where", ["in the middle", "at the end", "before the next segment"])


def doubled(where: str) -> PartitionLog:
    """A log with damage at which no offset is missing: something of it is there twice."""
    disk = written(clean=True)
    path = logs(disk)[1]
    data = disk.read_bytes(path)
    _, (second, _), *_, (last, _) = walk_headers(data)
    whole = second if where == "in the middle" else len(data)
    double = {"in the middle": data[:second], "at the end": data[last:]}.get(where, disk.read_bytes(logs(disk)[2]))
    disk.open(path).write_at(whole, [double + data[whole:]])
    log = log_of(start(disk))
    log.damaged(CorruptSegment(path, whole, "it is there twice"))
    (damage,) = log.damage
    assert damage.is_in_log and "nothing is missing" in str(damage)
    return log


@DOUBLES
def test_what_is_there_twice_is_taken_out(where: str) -> None:
    log = doubled(where)
    make_holes(log)
    assert not log.is_damaged
    assert read_all(log) == VALUES
    assert [header.base_offset for _, header in batches_in(log)] == list(range(COUNT))


@DOUBLES
def test_what_is_there_twice_goes_with_a_truncation_to_the_damage(where: str) -> None:
    """The next segment may begin where the log is cut."""
    log = doubled(where)
    (damage,) = log.damage
    log.truncate_to(damage.start_offset)
    assert log.log_end_offset == damage.start_offset
    for number, value in VALUES[log.log_end_offset :]:
        assert append(log, [value], timestamp=NOW + number) == number
    assert read_all(log) == VALUES
    assert [header.base_offset for _, header in batches_in(log)] == list(range(COUNT))


def test_nothing_damaged_is_given_away_and_what_was_verified_is_not_read_again() -> None:
    disk = FakeDisk()
    log = open_log(disk, ONE_SEGMENT)
    for _, value in VALUES:
        append(log, [value])
    log.close()
    path = log.active_segment.path
    positions = [position for position, _ in walk_headers(disk.read_bytes(path))]
    log = open_log(disk, ONE_SEGMENT, clean=True, recovery_point=COUNT)
    reads: list[str] = []

    def begin_count() -> None:
        reads.clear()
        disk.on_operation = lambda operation, name: reads.append(name) if operation == "read" else None

    def read_some(offset: int) -> int:
        begin_count()
        log.read(offset, 300)
        disk.on_operation = None
        return reads.count(path)

    first = [read_some(offset) for offset in (0, 10, 2)]
    again = [read_some(offset) for offset in (0, 10, 2)]
    assert sum(again) < sum(first)
    # A page of zeros that comes after the whole was read is not met; one that comes before is.
    log = open_log(disk, ONE_SEGMENT, clean=True, recovery_point=COUNT)
    disk.open(path).write_at(positions[5] + 70, [bytes(40)])
    for offset in (0, 5):  # the first one who comes upon it finds it; then what stands before is read
        with pytest.raises(ApiError) as caught:
            log.read(offset, 1 << 20)
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert len(log.read(0, 1 << 20).records) == positions[5]
    assert [(each.start_offset, each.end_offset) for each in log.damage] == [(5, 6)]
    assert read_all(log, start=6) == VALUES[6:]


def test_what_this_process_appends_is_not_verified() -> None:
    disk = FakeDisk()
    log = open_log(disk, ONE_SEGMENT)
    for _, value in VALUES:
        append(log, [value])
    assert not any(segment.unverified for segment in log.segments)
    log.close()
    log = open_log(disk, ONE_SEGMENT, recovery_point=0)
    assert not any(segment.unverified for segment in log.segments)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_producers_and_aborted_transactions_are_right_across_a_hole(clean: bool) -> None:
    disk = FakeDisk()
    log = open_log(disk, ONE_SEGMENT)
    for number in range(6):
        put(log, [(b"k", b"t%d" % number * 20)], producer_id=number % 2, sequence=number // 2, transactional=True)
        end_txn(log, number % 2, commit=number % 3 == 0)
    put(log, [(b"k", b"last")], producer_id=7, sequence=0)
    end = log.log_end_offset
    info = log.read(0, 1 << 20)
    aborted = log.aborted_transactions(0, info)
    assert len(aborted) == 4
    log.close()
    path = log.active_segment.path
    headers = list(walk_headers(disk.read_bytes(path)))
    disk.flip_bit(path, (headers[6][0] + 80) * 8)
    assert not headers[6][1].is_control
    log = open_log(disk, ONE_SEGMENT, clean=clean, recovery_point=end if clean else 0, leaves_holes=True)
    if clean:
        with pytest.raises(ApiError):
            for offset in range(end):
                log.read(offset, 1)
        make_holes(log)
    assert log.log_end_offset == end
    log.on_high_watermark_updated(end)
    assert log.leader_epochs.latest == 0
    found = log.aborted_transactions(0, log.read(0, 1 << 20))
    # The transaction whose only records are gone has nothing to be skipped, and its marker may stay.
    assert set(found) <= set(aborted)
    assert len(found) >= 3
    assert log.producers.active_producers[7].last_sequence == 0
    assert log.first_unstable_offset is None or log.first_unstable_offset > headers[6][1].base_offset


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_flipped_bit_of_a_marker_is_flipped_back(commit: bool, clean: bool) -> None:
    """Else the next transaction of the producer would end this one, too."""
    disk = FakeDisk()
    log = open_log(disk, ONE_SEGMENT)
    put(log, [(b"k", b"first")], producer_id=5, sequence=0, transactional=True)
    end_txn(log, 5, commit=commit)
    put(log, [(b"k", b"second")], producer_id=5, sequence=1, transactional=True)
    end_txn(log, 5, commit=not commit)
    expected, end = read_all(log), log.log_end_offset
    aborted = log.aborted_transactions(0, log.read(0, 1 << 20))
    assert len(aborted) == 1
    log.close()
    path = log.active_segment.path
    content = disk.read_bytes(path)
    position, header = list(walk_headers(content))[1]
    for bit in range(CRC_AT * 8, header.size * 8, 7):
        copy = disk.snapshot()
        copy.flip_bit(path, position * 8 + bit)
        log = open_log(copy, ONE_SEGMENT, clean=clean, recovery_point=end if clean else 0, leaves_holes=True)
        if clean:
            with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
                log.read(0, 1 << 20)
        assert read_all(log) == expected and not log.damage
        log.on_high_watermark_updated(end)
        assert log.aborted_transactions(0, log.read(0, 1 << 20)) == aborted
        assert copy.read_bytes(path) == content


def test_a_gap_that_a_follower_was_sent_is_no_damage() -> None:
    disk = FakeDisk()
    manager = start(disk)
    log = manager.create_log(TP, ID, CONFIG)
    for base in (0, 5, 20, 2**31 + 100, 2**33):
        for _ in range(3):
            data = batch([b"v" * 300])
            data[:8] = max(base, log.log_end_offset).to_bytes(8, "big")
            log.append_as_follower(data, now_ms=NOW)
    expected = read_all(log)
    assert len(log.segments) > 3
    manager.release()
    disk.kill()
    for _ in range(2):
        manager = start(disk)
        log = log_of(manager)
        assert read_all(log) == expected
        assert not log.is_damaged
        assert not log.cuts
        manager.release()
        disk.kill()


def test_damage_is_remembered_until_it_has_healed() -> None:
    disk = written(clean=True)
    lose(disk, logs(disk)[-1], "emptied")
    log = log_of(start(disk))
    assert log.is_damaged
    log.healed()
    assert not log.is_damaged
    assert not disk.exists(f"{DIRECTORY}/{FILE_NAME}")
    disk.kill()
    log = open_log(disk, CONFIG, clean=True)
    assert not log.is_damaged


def test_damage_that_retention_took_is_no_damage_any_more() -> None:
    disk = written(clean=True)
    lose(disk, logs(disk)[0], "emptied")
    log = log_of(start(disk))
    assert log.is_damaged
    log.maybe_increment_log_start_offset(log.damage[0].end_offset)
    assert not log.is_damaged


def test_a_file_that_cannot_be_read_says_that_nothing_is_whole() -> None:
    disk = FakeDisk()
    log = open_log(disk)
    append(log, [b"v"])
    places = note(disk, DIRECTORY, [Damage(3, 5, "x.log", 7, 8, "r", 9, "name"), Damage(0, 1, "x.log", 0, 0, "q", 9)])
    assert [each.start_offset for each in places] == [0, 3]
    assert read_damage(disk, DIRECTORY) == places
    whole = disk.read_bytes(f"{DIRECTORY}/{FILE_NAME}")
    for content in (b"", whole[:-20], whole.replace(b'"size"', b'"sise"'), b"[]", b"null", b"{}"):
        disk.write_bytes(f"{DIRECTORY}/{FILE_NAME}", content)
        assert open_log(disk).is_damaged, content


@pytest.mark.parametrize(
    ("number", "bit"), [(-1, 4), *((number, bit) for number in range(4) for bit in (4, 0))], ids=str
)
def test_a_wrong_leader_epoch_is_noted_where_the_scrubber_sees_it(number: int, bit: int) -> None:
    """It hands over the place of the first batch whose epoch is below the one before."""
    disk = FakeDisk()
    log = open_log(disk, ONE_SEGMENT)
    for value in range(8):
        append(log, [b"%d" % value * 100], leader_epoch=1)
    log.close()
    path = log.active_segment.path
    headers = list(walk_headers(disk.read_bytes(path)))
    wrong = number + 1
    disk.flip_bit(path, (headers[wrong][0] + 15) * 8 + bit)
    log = open_log(disk, ONE_SEGMENT, clean=True, recovery_point=8, leaves_holes=True)
    told = headers[wrong if bit == 0 else wrong + 1][0]
    log.damaged(CorruptSegment(path, told, "leader epochs go back"))
    assert missing(log) == {wrong}


def test_a_batch_of_a_later_epoch_than_it_can_be_takes_nothing_of_the_next_segment() -> None:
    """No checksum covers a batch's leader epoch. The next segment's batches seem to be of an earlier one."""
    disk = FakeDisk()
    log = open_log(disk, CONFIG)
    for number, value in VALUES:
        append(log, [value], leader_epoch=3, timestamp=NOW + number)
    disk.kill()
    path, base = log.segments[-2].path, log.active_segment.base_offset
    *_, (position, _) = walk_headers(disk.read_bytes(path))
    disk.flip_bit(path, (position + 14) * 8)
    again = open_log(disk, CONFIG, recovery_point=base, leaves_holes=True)
    assert read_all(again, start=base) == VALUES[base:]
    assert again.leader_epochs.latest == 3


def test_leader_epochs_that_are_still_to_come_are_put_right_in_all_segments_and_in_no_other_log() -> None:
    """The metadata may be those of a backup. Another log may have the segments, too."""
    disk = FakeDisk()
    log = open_log(disk, LogConfig(segment_bytes=200))
    for number, epoch in enumerate((1, 1, 3, 3, 5, 5, 5)):
        append(log, [b"%d" % number], leader_epoch=epoch, timestamp=NOW + number)
    sealed = [segment.path for segment in log.segments[:-1]]
    kept = [disk.read_bytes(path) for path in sealed]
    for path in sealed:
        disk.link(path, path + ".other")
    log.close()
    log = open_log(disk, LogConfig(segment_bytes=200), leaves_holes=True, clean=True)
    log.put_epochs_right(2)
    headers = [header for each in log.segments for _, header in walk_headers(disk.read_bytes(each.path))]
    assert len(sealed) > 2 and [header.partition_leader_epoch for header in headers] == [1, 1, *[2] * 5]
    assert [disk.read_bytes(path + ".other") for path in sealed] == kept


@pytest.mark.parametrize("bit", range(32))
def test_a_wrong_leader_epoch_in_the_very_last_batch_is_damage_after_a_clean_stop(bit: int) -> None:
    """No checksum covers it, and no batch follows that could bear it out: the checkpoint of epochs knows."""
    disk = FakeDisk()
    log = open_log(disk, ONE_SEGMENT)
    for value in range(6):
        append(log, [b"%d" % value * 100], leader_epoch=1)
    log.close()
    path = log.active_segment.path
    position = list(walk_headers(disk.read_bytes(path)))[-1][0]
    disk.flip_bit(path, (position + 12) * 8 + bit)
    log = open_log(disk, ONE_SEGMENT, clean=True, recovery_point=6, leaves_holes=True)
    assert missing(log) == {5}
    assert log.leader_epochs.latest == 1 and log.log_end_offset == 6


def test_a_flush_that_a_stop_prevents_takes_no_epoch_with_it() -> None:
    """Else the next start would take the batches of that epoch for damage: a clean stop leaves the epochs complete."""
    disk = FakeDisk()
    manager = start(disk)
    log = manager.create_log(TP, ID, CONFIG)
    for number, value in VALUES:
        append(log, [value], leader_epoch=number // 4, timestamp=NOW + number)
        if number == COUNT // 2:
            log.flush()
    assert manager.flush_tasks(NOW), "a sealed segment is due, and nobody runs the task"
    manager.close(high_watermarks={TP: COUNT})
    disk.kill()
    log = log_of(start(disk))
    assert not log.is_damaged and not log.cuts and read_all(log) == VALUES
    assert log.leader_epochs.latest == (COUNT - 1) // 4


def test_what_stands_for_a_lost_end_has_no_epoch_before_that_of_the_rest() -> None:
    """The checkpoint file of the epochs is an old one."""
    disk = FakeDisk()
    manager = start(disk)
    log = manager.create_log(TP, ID, CONFIG)
    for number, value in VALUES:
        append(log, [value], leader_epoch=number // 4, timestamp=NOW + number)
    manager.close(high_watermarks={TP: COUNT})
    disk.kill()
    disk.write_bytes(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n2\n0 0\n1 4\n")
    disk.remove(logs(disk)[-1])
    log = log_of(start(disk))
    assert log.is_damaged and log.log_end_offset == COUNT
    epochs = [header.partition_leader_epoch for _, header in batches_in(log)]
    assert epochs == sorted(epochs)
