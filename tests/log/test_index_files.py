"""Every segment has its index files, as Kafka's tools expect, from its beginning and after every way to end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.log.fake_disk import FakeDisk
from kbroker.log.file_names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from tests.log.log_helpers import DIRECTORY, NOW, append, batch, open_log, read_all

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=150)
SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)


def assert_indexed(disk: FakeDisk, log: PartitionLog) -> None:
    """Every segment has its three files, and no index is there without a log."""
    names = disk.list_dir(DIRECTORY)
    for suffix in (".log", *SUFFIXES):
        assert [name for name in names if name.endswith(suffix)] == [
            f"{segment.base_offset:020}{suffix}" for segment in log.segments
        ]


def rolled(log: PartitionLog) -> None:
    while len(log.segments) < 3:
        append(log, [b"v" * 60])


def stopped_in_an_empty_segment(log: PartitionLog) -> None:
    log.truncate_fully_and_start_at(7, now_ms=NOW)


def replicated(log: PartitionLog) -> None:
    log.append_as_follower(batch([b"a", b"b"]), now_ms=NOW)


def cut_back(log: PartitionLog) -> None:
    rolled(log)
    log.truncate_to(1)


LIVES: tuple[Callable[[PartitionLog], object], ...] = (
    lambda log: append(log, [b"a"]),
    rolled,
    stopped_in_an_empty_segment,
    replicated,
    cut_back,
)


@pytest.mark.parametrize("live", LIVES)
def test_they_are_there_from_the_beginning_and_after_each_way_to_stop(live: Callable[[PartitionLog], object]) -> None:
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    live(log)
    assert_indexed(disk, log)
    before = read_all(log)

    killed = disk.snapshot()
    killed.kill()
    log_of_killed = open_log(killed, SMALL)
    assert_indexed(killed, log_of_killed)
    assert read_all(log_of_killed) == before

    log.flush()
    disk.sync_dir("/")
    without_power = disk.snapshot()
    without_power.crash(lose_all=True)
    log_again = open_log(without_power, SMALL, recovery_point=log.recovery_point)
    assert_indexed(without_power, log_again)
    assert read_all(log_again) == before

    log.close()
    assert_indexed(disk, log)
    log = open_log(disk, SMALL, clean=True)
    assert_indexed(disk, log)
    assert read_all(log) == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("live", LIVES)
def test_a_directory_that_was_written_without_them_gets_them_when_it_is_opened(
    live: Callable[[PartitionLog], object], clean: bool
) -> None:
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    live(log)
    before = read_all(log)
    log.close()
    for name in disk.list_dir(DIRECTORY):
        if name.endswith(SUFFIXES):
            disk.remove(f"{DIRECTORY}/{name}")
    log = open_log(disk, SMALL, clean=clean)
    assert_indexed(disk, log)
    assert read_all(log) == before


def test_a_directory_without_a_segment_gets_one_with_them() -> None:
    disk = FakeDisk()
    disk.make_dirs(DIRECTORY)
    log = open_log(disk, SMALL, clean=True)
    assert_indexed(disk, log)
    assert append(log, [b"a"]) == 0


def test_a_partition_that_nobody_has_written_to_touches_no_disk() -> None:
    disk = FakeDisk()
    log = open_log(disk, SMALL)
    assert log.log_end_offset == 0
    assert not disk.exists(DIRECTORY)
