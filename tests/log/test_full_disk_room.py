"""The reserve of a disk: who writes on when the disk is full, for how long, and when there is room again."""

from __future__ import annotations

import errno

import pytest

from kbroker.log.fake_disk import FakeDisk
from kbroker.log.full_disk import Room

CAPACITY = 4 << 20
PIECE = CAPACITY // 256


def full_disk() -> tuple[FakeDisk, Room]:
    disk = FakeDisk(capacity=CAPACITY)
    disk.make_dirs("/d")
    room = Room(disk, "/d")
    assert room.fill_reserve()
    disk.taken = CAPACITY - disk.used()
    return disk, room


def reserve(disk: FakeDisk) -> list[str]:
    return [name for name in disk.list_dir("/d") if name.startswith(".reserve")]


def test_a_full_disk_is_written_as_long_as_there_is_a_reserve() -> None:
    disk, room = full_disk()
    told: list[str] = []
    room.on_full = lambda: told.append("full")
    log, metadata = room.disk().open("/d/log", create=True), room.disk(keep=0)
    assert not room.is_full and len(reserve(disk)) == 4
    for count in (3, 2, 1):
        log.write_at(log.size(), [bytes(PIECE)])
        assert room.is_full and len(reserve(disk)) == count
    with pytest.raises(OSError, match="No space left"):
        log.write_at(log.size(), [bytes(PIECE)])
    metadata.write_bytes("/d/quorum-state", bytes(PIECE))
    assert disk.read_bytes("/d/quorum-state") == bytes(PIECE) and reserve(disk) == []
    with pytest.raises(OSError, match="No space left"):
        metadata.write_bytes("/d/quorum-state.tmp", b"more")
    assert told == ["full"]


def test_there_is_room_again_when_there_is_more_than_the_reserve() -> None:
    disk, room = full_disk()
    room.disk().write_bytes("/d/x", b"x")
    disk.taken -= PIECE
    assert not room.fill_reserve() and room.is_full, "it would be full again at once"
    disk.taken -= 16 * PIECE
    assert room.fill_reserve() and not room.is_full
    assert len(reserve(disk)) == 4
    assert disk.read_bytes("/d/x") == b"x"


def test_a_start_on_a_full_disk_is_not_taken_for_one_with_room() -> None:
    disk, _ = full_disk()
    for name in reserve(disk):
        disk.remove(f"/d/{name}")
    disk.taken = CAPACITY - PIECE
    again = Room(disk, "/d")
    assert not again.fill_reserve() and again.is_full
    assert len(reserve(disk)) == 1, "as far as there is room"
    again.disk(keep=0).write_bytes("/d/quorum-state", b"voted")
    assert disk.read_bytes("/d/quorum-state") == b"voted"


def test_a_write_that_fails_for_another_reason_is_not_repeated() -> None:
    disk, room = full_disk()
    disk.taken = 0
    file = room.disk().open("/d/x", create=True)
    writes: list[str] = []

    def broken(operation: str, path: str) -> None:
        if operation == "write":
            writes.append(path)
            raise OSError(errno.EIO, "broken", path)

    disk.on_operation = broken
    with pytest.raises(OSError, match="broken"):
        file.write_at(0, [b"x"])
    assert writes == ["/d/x"] and not room.is_full and len(reserve(disk)) == 4


def test_the_last_bytes_of_a_full_disk_are_the_metadata_logs_also_once_it_has_begun_with_them() -> None:
    disk, room = full_disk()
    for name in reserve(disk)[1:]:
        disk.remove(f"/d/{name}")
        disk.taken += PIECE
    others, metadata = room.disk(), room.disk(keep=0)
    file = others.open("/d/log", create=True)
    metadata.write_bytes("/d/quorum-state", b"voted")
    assert reserve(disk) == [] and disk.usage("/d").usable > 0
    with pytest.raises(OSError, match="No space left"):
        others.write_bytes("/d/x", b"x")
    with pytest.raises(OSError, match="No space left"):
        file.write_at(0, [b"x"])
    others.rename("/d/log", "/d/log.deleted")  # or there is never room again
    again = Room(disk, "/d")
    assert not again.fill_reserve()
    assert disk.size("/d/.reserve.0") == PIECE - len(b"voted"), "what is left, at the next start"
    again.disk(keep=0).write_bytes("/d/quorum-state", b"voted again")
    disk.taken = 0
    assert room.fill_reserve()
    others.write_bytes("/d/x", b"x")
    assert {disk.size(f"/d/{name}") for name in reserve(disk)} == {PIECE}


def test_the_reserve_of_an_earlier_release_leaves_its_names_to_the_logs_of_a_topic() -> None:
    disk = FakeDisk()
    disk.make_dirs("/d/.reserve-1")
    for number in (0, 2, 3):
        disk.write_bytes(f"/d/.reserve-{number}", bytes(PIECE))
    assert Room(disk, "/d").fill_reserve()
    assert [name for name in disk.list_dir("/d") if name.startswith(".reserve-")] == [".reserve-1"]
    assert len(reserve(disk)) == 5


def test_a_full_disk_that_has_no_room_for_new_names_makes_the_reserve_of_an_earlier_release_anew() -> None:
    disk = FakeDisk(capacity=CAPACITY)
    disk.make_dirs("/d")
    for number in range(4):
        disk.write_bytes(f"/d/.reserve-{number}", bytes(PIECE))
    disk.taken = CAPACITY - disk.used()

    def full(operation: str, path: str) -> None:
        if operation == "rename":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.on_operation = full
    assert Room(disk, "/d").fill_reserve()
    assert reserve(disk) == [f".reserve.{number}" for number in range(4)]
