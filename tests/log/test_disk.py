"""The real disk and the fake one, held to the same words; and what only one of them can do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kbroker.log.disk import Disk, OsDisk, raise_file_limit, write_atomically
from kbroker.log.fake_disk import FakeDisk, PowerCut
from kbroker.log.segments.open_files import OpenFiles


@pytest.fixture(params=["os", "os without pwritev", "os without fdatasync", "fake"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Disk, str]:
    if request.param == "fake":
        disk: Disk = FakeDisk()
        disk.make_dirs("/base")
        return disk, "/base"
    if request.param == "os without pwritev":
        monkeypatch.delattr(os, "pwritev")
    if request.param == "os without fdatasync":  # macOS
        monkeypatch.delattr(os, "fdatasync")
    return OsDisk(), str(tmp_path)


def test_files_are_written_and_read_at_positions(place: tuple[Disk, str]) -> None:
    disk, base = place
    path = f"{base}/file"
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    file = disk.open(path, create=True)
    file.write_at(0, [b"hello ", bytearray(b"big "), memoryview(b"world")])
    file.write_at(6, [b"BIG"])
    file.write_at(20, [b"far"])
    assert file.size() == disk.size(path) == 23
    assert file.pread(100, 0) == b"hello BIG world\0\0\0\0\0far"
    assert file.pread(3, 6) == b"BIG"
    assert file.pread(10, 50) == b""
    file.truncate(5)
    file.sync()
    assert disk.read_bytes(path) == b"hello"
    file.write_at(5, [b"%d," % index for index in range(2000)])
    assert disk.read_bytes(path).endswith(b",1998,1999,")
    file.close()
    file.close()


def test_names(place: tuple[Disk, str]) -> None:
    disk, base = place
    disk.make_dirs(f"{base}/a/b")
    disk.make_dirs(f"{base}/a/b")
    disk.write_bytes(f"{base}/a/x", b"1")
    disk.write_bytes(f"{base}/a/x", b"22", sync=True)
    assert disk.list_dir(f"{base}/a") == ["b", "x"]
    assert disk.list_dirs(f"{base}/a") == ["b"]
    assert disk.is_dir(f"{base}/a/b")
    assert not disk.is_dir(f"{base}/a/x")
    disk.rename(f"{base}/a/x", f"{base}/a/y")
    assert not disk.exists(f"{base}/a/x")
    write_atomically(disk, f"{base}/a/y", b"333")
    assert disk.read_bytes(f"{base}/a/y") == b"333"
    disk.sync_dir(f"{base}/a")
    disk.remove(f"{base}/a/y")
    disk.remove(f"{base}/a/y")
    assert disk.list_dir(f"{base}/a") == ["b"]
    disk.rename(f"{base}/a", f"{base}/c")
    disk.remove_tree(f"{base}/c")
    disk.remove_tree(f"{base}/c")
    assert disk.list_dir(base) == []
    with pytest.raises(FileNotFoundError):
        disk.read_bytes(f"{base}/none")
    with pytest.raises(FileNotFoundError):
        disk.size(f"{base}/none")
    usage = disk.usage(base)
    assert 0 < usage.usable <= usage.total


def test_a_directory_is_no_file(place: tuple[Disk, str]) -> None:
    disk, base = place
    disk.write_bytes(f"{base}/x", b"")
    with pytest.raises(FileExistsError):
        disk.make_dirs(f"{base}/x")


def test_a_lock_is_held_once(place: tuple[Disk, str]) -> None:
    disk, base = place
    lock = disk.lock(f"{base}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{base}/.lock")
    lock.release()
    disk.lock(f"{base}/.lock").release()


def test_a_lock_is_that_of_a_file_whatever_its_name(place: tuple[Disk, str]) -> None:
    disk, base = place
    lock = disk.lock(f"{base}/.lock")
    lock.check()
    disk.rename(f"{base}/.lock", f"{base}/away")
    with pytest.raises(FileNotFoundError):
        lock.check()
    other = disk.lock(f"{base}/.lock")
    with pytest.raises(FileNotFoundError):
        lock.check()
    with pytest.raises(BlockingIOError):
        disk.lock(f"{base}/away")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock(f"{base}/.lock")
    other.release()


def test_a_link_to_a_directory_is_one_and_no_other_link_is(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "x").touch()
    for link, target in {"a": "b", "to-file": "x", "broken": "none", "loop": "loop"}.items():
        (tmp_path / link).symlink_to(target)
    assert OsDisk().list_dirs(str(tmp_path)) == ["a", "b"]


def test_log_dirs_are_private(tmp_path: Path) -> None:
    OsDisk().make_dirs(f"{tmp_path}/logs")
    assert os.stat(f"{tmp_path}/logs").st_mode & 0o077 == 0


def test_a_short_write_goes_on_until_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, bytes(data[:7]), position))
    file = OsDisk().open(f"{tmp_path}/x", create=True)
    file.write_at(0, [b"0123456789" * 10])
    assert file.pread(200, 0) == b"0123456789" * 10


def test_open_files_are_bounded_and_outlive_their_eviction(tmp_path: Path) -> None:
    files = OpenFiles(OsDisk(), capacity=2)
    first = files.get(f"{tmp_path}/0", create=True)
    first.write_at(0, [b"zero"])
    for name in range(1, 5):
        files.get(f"{tmp_path}/{name}", create=True)
    assert len(files) == 2
    assert first.pread(4, 0) == b"zero"
    fd = first.fd
    del first
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert files.get(f"{tmp_path}/0").pread(4, 0) == b"zero"


def test_the_limit_of_open_files_is_a_number() -> None:
    assert raise_file_limit() >= 64


# -- the fake's own powers


def test_what_was_not_synced_may_be_lost() -> None:
    disk = FakeDisk()
    disk.make_dirs("/d")
    disk.sync_dir("/")
    file = disk.open("/d/x", create=True)
    file.write_at(0, [b"durable"])
    file.sync()
    disk.sync_dir("/d")
    file.write_at(7, [b" and not"])
    disk.write_bytes("/d/y", b"new")
    disk.crash(lose_all=True)
    assert disk.list_dir("/d") == ["x"]
    assert disk.read_bytes("/d/x") == b"durable"
    with pytest.raises(OSError, match="machine stopped"):
        file.pread(1, 0)


def test_a_killed_process_loses_nothing() -> None:
    disk = FakeDisk()
    disk.make_dirs("/d")
    disk.write_bytes("/d/x", b"abc")
    disk.lock("/d/.lock")
    disk.kill()
    assert disk.read_bytes("/d/x") == b"abc"
    disk.lock("/d/.lock")


def test_crashes_leave_different_remains() -> None:
    contents, names = set(), set()
    for seed in range(60):
        disk = FakeDisk(seed=seed)
        disk.make_dirs("/d")
        disk.sync_dir("/")
        disk.write_bytes("/d/x", b"a" * 2000, sync=True)
        disk.sync_dir("/d")
        disk.open("/d/x").write_at(0, [b"b" * 3000])
        disk.write_bytes("/d/y", b"")
        disk.rename("/d/y", "/d/z")
        disk.crash()
        contents.add(disk.read_bytes("/d/x"))
        names.add(tuple(disk.list_dir("/d")))
    assert names == {("x",), ("x", "y"), ("x", "z")}
    assert len(contents) > 10
    assert b"a" * 2000 in contents
    assert b"b" * 3000 in contents


def test_a_cut_file_has_its_old_content_or_the_new() -> None:
    found = set()
    for seed in range(40):
        disk = FakeDisk(seed=seed)
        disk.make_dirs("/d")
        disk.sync_dir("/")
        disk.write_bytes("/d/x", b"a" * 600, sync=True)
        disk.sync_dir("/d")
        file = disk.open("/d/x")
        file.truncate(100)
        file.write_at(100, [b"b" * 100])
        disk.crash()
        found.add(disk.read_bytes("/d/x").rstrip(b"\0"))
    assert b"a" * 600 in found
    assert b"a" * 100 + b"b" * 100 in found
    assert all(b"b" not in content or len(content) <= 200 for content in found)


def test_the_power_fails_at_a_chosen_operation() -> None:
    disk = FakeDisk()
    disk.make_dirs("/d")
    disk.crash_after = disk.operations + 1
    file = disk.open("/d/x", create=True)
    with pytest.raises(PowerCut):
        file.write_at(0, [b"abc"])
    with pytest.raises(PowerCut):
        disk.make_dirs("/e")
    disk.kill()
    disk.make_dirs("/e")


def test_a_full_disk_takes_what_fits() -> None:
    disk = FakeDisk(capacity=10)
    file = disk.open("/x", create=True)
    with pytest.raises(OSError, match="No space") as caught:
        file.write_at(0, [b"0123456789abc"])
    assert caught.value.errno == errno.ENOSPC
    assert disk.read_bytes("/x") == b"0123456789"
    assert disk.usage("/") == (10, 0)


def test_a_snapshot_goes_its_own_way() -> None:
    disk = FakeDisk(seed=4)
    disk.write_bytes("/x", b"1")
    copy = disk.snapshot()
    disk.write_bytes("/x", b"2")
    copy.flip_bit("/x", 0)
    assert (disk.read_bytes("/x"), copy.read_bytes("/x")) == (b"2", b"0")


def test_damage_is_seen_at_once_and_stays() -> None:
    ways = set()
    for seed in range(60):
        disk = FakeDisk(seed=seed)
        disk.make_dirs("/d")
        before = {f"/d/{name}": bytes([name + 1]) * 9000 for name in range(2)}
        for path, content in before.items():
            disk.write_bytes(path, content, sync=True)
        disk.sync_dir("/d")
        disk.sync_dir("/")
        file = disk.open("/d/0")
        told = disk.damage("/d/0")
        found = file.pread(10_000, 0)
        changed = [at for at in range(len(found)) if found[at] != 1]
        if "flipped bit" in told:
            assert len(changed) == 1 and len(found) == 9000
        elif "has lost a block" in told:
            assert not any(found[at] for at in changed) and changed
        elif "has lost its end" in told:
            assert len(found) < 9000 and not changed
        else:
            assert {found[at] for at in changed} <= {0, 2} and len(found) == 9000
        ways.add(told.partition(":")[0])
        disk.crash()
        assert disk.read_bytes("/d/0") == found and disk.read_bytes("/d/1") == before["/d/1"]
    assert len(ways) == 4


@pytest.mark.parametrize("allocates", ["yes", "no", "promises only"])
def test_a_file_takes_room_whatever_the_file_system_says(
    allocates: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no call for it, and ZFS one that reserves nothing."""
    if allocates == "no":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    if allocates == "promises only":
        monkeypatch.setattr(os, "posix_fallocate", lambda fd, offset, size: os.truncate(fd, size))
    file = tmp_path / "reserve"
    file.write_bytes(b"before")
    OsDisk().take_room(str(file), 1 << 16)
    with file.open("rb") as written:
        os.fsync(written.fileno())
    assert file.stat().st_size == 1 << 16 <= file.stat().st_blocks * 512
    assert allocates == "yes" or any(file.read_bytes()), "zeros may take no room"
