"""The id of a log's topic is in two places; a log of which nothing tells the topic is not taken for another's."""

from __future__ import annotations

import errno
import random

import pytest

from kbroker.log.checkpoint_files import read_partition_metadata, read_topic_id_copy, write_partition_metadata
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.types import TopicPartition, Uuid
from tests.log.log_helpers import NOW, append

ID, OTHER = Uuid(bytes(15) + b"\x03"), Uuid(bytes(15) + b"\x04")
TP = TopicPartition("t", 0)
PRIMARY, COPY = "/data/t-0/partition.metadata", "/data/t-0/topic-id"


def start(disk: FakeDisk) -> LogManager:
    return LogManager.open(["/data"], disk, now_ms=NOW, cluster_id="c", node_id=1, rng=random.Random(1))


class DeniedDisk(FakeDisk):
    """A disk on which one file may not be read."""

    denied = ""

    def read_bytes(self, path: str) -> bytes:
        if path == self.denied:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().read_bytes(path)


def written(disk: FakeDisk | None = None) -> FakeDisk:
    """A log directory with one log, after a clean stop."""
    disk = disk or FakeDisk()
    manager = start(disk)
    log = manager.create_log(TP, ID, LogConfig())
    append(log, [b"one"])
    manager.close()
    return disk


def sorted_out(disk: FakeDisk, *, is_only: bool) -> LogManager:
    """The logs as a node has them whose metadata have the partition, with `ID`."""
    manager = start(disk)
    manager.set_stray_aside(lambda tp, topic_id: tp == TP and topic_id in (None, ID), lambda tp: is_only)
    return manager


@pytest.mark.parametrize("path", [PRIMARY, COPY])
@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABA", b"\xff"])
def test_a_place_that_is_damaged_is_made_anew_from_the_other(path: str, content: bytes | None) -> None:
    disk = written()
    disk.remove(path)
    if content is not None:
        disk.write_bytes(path, content)
    manager = sorted_out(disk, is_only=True)
    log = manager.get_log(TP)
    assert log is not None and log.topic_id == ID and log.log_end_offset == 1 and not log.is_damaged
    manager.close()
    assert read_partition_metadata(disk, "/data/t-0") == ID
    assert path == COPY or read_topic_id_copy(disk, "/data/t-0") == ID


@pytest.mark.parametrize("content", [None, b"nonsense"])
def test_a_log_of_an_unknown_topic_is_set_aside_where_others_have_it(content: bytes | None) -> None:
    disk = written()
    for path in (PRIMARY, COPY):
        disk.remove(path)
    if content is not None:
        disk.write_bytes(PRIMARY, content)
    manager = sorted_out(disk, is_only=False)
    log = manager.create_log(TP, ID, LogConfig())
    assert log.log_end_offset == 0 and log.is_damaged, "it is no leader before it has fetched"
    assert len([name for name in disk.list_dir("/data") if name.endswith("-stray")]) == 1
    manager.close()
    again = start(disk).get_log(TP)
    assert again is not None and again.is_damaged and again.topic_id == ID


def test_a_log_whose_topic_may_not_be_read_stays_where_it_is() -> None:
    """That others have it is no reason to set it aside: whoever mends the permission has it again."""
    disk = DeniedDisk()
    written(disk)
    disk.denied = PRIMARY
    manager = sorted_out(disk, is_only=False)
    assert "Permission denied" in manager.failed[TP]
    assert disk.list_dir("/data/t-0") and not [name for name in disk.list_dir("/data") if name.endswith("-stray")]


def test_a_log_of_an_unknown_topic_stays_where_nobody_else_has_it() -> None:
    disk = written()
    for path in (PRIMARY, COPY):
        disk.remove(path)
    log = sorted_out(disk, is_only=True).get_log(TP)
    assert log is not None and log.log_end_offset == 1


def test_a_log_of_an_earlier_topic_is_a_stray_whatever_is_beside_it() -> None:
    disk = written()
    write_partition_metadata(disk, "/data/t-0", OTHER)
    assert sorted_out(disk, is_only=False).get_log(TP) is None


def test_an_id_that_was_made_anew_is_durable_after_a_clean_stop() -> None:
    disk = written()
    disk.remove(PRIMARY)
    disk.remove(COPY)
    manager = sorted_out(disk, is_only=True)
    manager.create_log(TP, ID, LogConfig())
    disk.sync_dir("/data/t-0")
    manager.close()
    disk.crash(lose_all=True)
    log = start(disk).get_log(TP)
    assert log is not None and log.topic_id == ID


def test_a_log_without_records_is_opened_though_its_id_was_never_durable() -> None:
    disk = FakeDisk()
    manager = start(disk)
    manager.create_log(TP, ID, LogConfig()).ensure_on_disk()
    manager.close()
    for path in (PRIMARY, COPY):  # a full disk, for instance, has let go on no further
        disk.write_bytes(path, b"")
    manager = start(disk)
    assert manager.create_log(TP, ID, LogConfig()).log_end_offset == 0
    assert read_partition_metadata(disk, "/data/t-0") == ID
