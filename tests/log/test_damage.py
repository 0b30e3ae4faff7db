"""Damage is told from a torn tail, noted before the log changes, and forgotten only when it has healed."""

from __future__ import annotations

from kbroker.log.damage import FILE_NAME, Damage, note, read_damage
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.wire.batch_header import walk_headers
from tests.log.log_helpers import DIRECTORY, append, open_log


def test_damage_is_remembered_until_it_has_healed() -> None:
    disk = FakeDisk()
    log = open_log(disk, LogConfig())
    for number in range(6):
        append(log, [b"%d" % number + b"v" * 100])
    path = log.active_segment.path
    assert not log.is_damaged
    disk.flip_bit(path, (list(walk_headers(disk.read_bytes(path)))[2][0] + 80) * 8)
    log = open_log(disk)
    assert [(each.start_offset, each.segment) for each in log.damage] == [(2, path.rpartition("/")[2])]
    log.close()
    log = open_log(disk, clean=True)
    assert log.is_damaged
    log.healed()
    assert not log.is_damaged
    assert not open_log(disk, clean=True).is_damaged


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
