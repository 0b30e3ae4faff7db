"""A disk in memory that forgets what was not made durable, and fails when told to.

The rules of forgetting are those that a careful program may assume of a POSIX file system and no better:

- What was written to a file is durable after the file's ``sync``. Before it, any 512-byte sector of it may
  or may not be there, and a file may have grown with zeros where its data did not arrive.
- A file that was cut shorter has, after a crash, either its old content or what was made of it after the cut.
- A name created, renamed or removed is durable after ``sync_dir`` of its directory. Before it, the
  directory's changes may be lost from the last one backwards (they are journalled in order), each as a whole.

:meth:`FakeDisk.crash` is a power cut; :meth:`FakeDisk.kill` the end of the process alone, after which all
that was written is there. Faults are injected by ``on_operation``, called before each operation that changes
or reads something, or by ``crash_after``.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kbroker.log.disk import Buffer, DiskUsage

SECTOR = 512
PAGE = 4096


class PowerCut(Exception):
    """The simulated machine stopped in the middle of an operation; nothing works until ``restart``."""


@dataclass(slots=True, eq=False)
class _File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    modified_ms: int = 0
    cut_to: int | None = None
    """The least length it was truncated to since the last ``sync``."""


@dataclass(slots=True)
class _Dir:
    entries: dict[str, _File | _Dir] = field(default_factory=dict)
    durable: dict[str, _File | _Dir] = field(default_factory=dict)
    journal: list[dict[str, _File | _Dir | None]] = field(default_factory=list)
    """Changes since the last ``sync_dir``: what each name became, ``None`` for gone."""

    def change(self, changes: dict[str, _File | _Dir | None]) -> None:
        _apply(self.entries, changes)
        self.journal.append(changes)


def _apply(entries: dict[str, _File | _Dir], changes: dict[str, _File | _Dir | None]) -> None:
    for name, node in changes.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _files(directory: _Dir) -> Iterator[_File]:
    """Yields the file of each name; one with two names twice."""
    for node in directory.entries.values():
        if isinstance(node, _Dir):
            yield from _files(node)
        else:
            yield node


class FakeFile:
    """An open file of a :class:`FakeDisk`."""

    __slots__ = ("_disk", "_generation", "_node", "path")

    fd = -1

    def __init__(self, disk: FakeDisk, node: _File, path: str) -> None:
        self._disk = disk
        self._node = node
        self._generation = disk.generation
        self.path = path

    def _check(self, operation: str, write: tuple[_File, int, bytes] | None = None) -> None:
        if self._generation != self._disk.generation:
            raise OSError(errno.EBADF, "file was open when the machine stopped", self.path)
        self._disk.operate(operation, self.path, write)

    def size(self) -> int:
        return len(self._node.data)

    def pread(self, length: int, position: int) -> bytes:
        self._check("read")
        return bytes(self._node.data[position : position + length])

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        blob = b"".join(buffers)
        if self._disk.is_stopped:
            self._check("write")
        try:
            self._check("write", (self._node, position, blob))
        except (PowerCut, OSError):
            # Part of the write happened: how much is decided by the same source of chance as everything else.
            cut = self._disk.rng.randrange(len(blob) + 1) if blob else 0
            self._put(position, blob[:cut])
            raise
        room = self._disk.room_for(self._node, position + len(blob))
        if room < position + len(blob):
            self._put(position, blob[: max(0, room - position)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._put(position, blob)

    def _put(self, position: int, blob: bytes) -> None:
        if not blob:
            return
        data = self._node.data
        if len(data) < position:
            data.extend(bytes(position - len(data)))
        data[position : position + len(blob)] = blob
        self._node.modified_ms = self._disk.now_ms

    def truncate(self, size: int) -> None:
        self._check("truncate")
        data = self._node.data
        if len(data) > size:
            del data[size:]
            cut = self._node.cut_to
            self._node.cut_to = size if cut is None else min(cut, size)
        else:
            data.extend(bytes(size - len(data)))
        self._node.modified_ms = self._disk.now_ms

    def sync(self) -> None:
        self._check("sync")
        self._node.durable = bytes(self._node.data)
        self._node.cut_to = None

    def close(self) -> None:
        """Nothing to give back: the node lives as long as a name or a reader does."""


class _FakeLock:
    def __init__(self, disk: FakeDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.node = disk._file(path)

    def check(self) -> None:
        if self._disk._file(self._path) is not self.node:
            raise FileNotFoundError(errno.ENOENT, "another file has its name", self._path)

    def release(self) -> None:
        self._disk.locks.discard(self.node)


class FakeDisk:
    """A :class:`kbroker.log.disk.Disk` in memory. All paths are absolute or all relative; ``/`` separates."""

    def __init__(self, *, seed: int = 0, capacity: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.capacity = capacity
        """Bytes that all files together may hold, or ``None`` for no limit (``ENOSPC`` beyond)."""
        self.taken = 0
        """Bytes of it that are somebody else's."""
        self.now_ms = 0
        """The modification time that a change of a file gets."""
        self.generation = 0
        self.operations = 0
        """Operations so far that change something: a crash point is a number of these."""
        self.crash_after: int | None = None
        """Stop the machine in the operation that would be number ``crash_after`` (from 0)."""
        self.on_crash_point: Callable[[FakeDisk], None] | None = None
        """Called in each operation that changes something, with a copy whose machine has stopped in it. Chance has it
        with copy n as with a disk of seed n and ``crash_after`` n: one run shows what one for each point does."""
        self.on_operation: Callable[[str, str], None] | None = None
        """Called as ``(operation, path)`` before each; may raise ``OSError`` to make it fail. Operations:
        read write truncate sync create mkdir rename link remove sync_dir."""
        self.locks: set[_File] = set()
        """Those that are held, whatever names they have by now."""
        self._stopped = False
        self._root = _Dir()

    # -- faults

    def operate(self, operation: str, path: str, write: tuple[_File, int, bytes] | None = None) -> None:
        """Count an operation and let the faults have their turn."""
        if self._stopped:
            raise PowerCut(f"{operation} {path} after the machine stopped")
        if self.on_operation is not None:
            self.on_operation(operation, path)
        if operation != "read":
            if self.crash_after is not None and self.operations >= self.crash_after:
                self._stopped = True
                raise PowerCut(f"{operation} {path}")
            if self.on_crash_point is not None:
                self.on_crash_point(self._stopped_in(write))
            self.operations += 1

    def _stopped_in(self, write: tuple[_File, int, bytes] | None) -> FakeDisk:
        copies: dict[int, _File | _Dir] = {}
        stopped = self.snapshot(copies)
        stopped.rng.seed(self.operations)
        if write is not None:
            node, position, blob = write
            cut = stopped.rng.randrange(len(blob) + 1) if blob else 0
            if isinstance(copy := copies.get(id(node)), _File):
                FakeFile(stopped, copy, "")._put(position, blob[:cut])
        return stopped

    def room_for(self, node: _File, wanted: int) -> int:
        """The length that ``node`` may get, at most ``wanted``."""
        if self.capacity is None:
            return wanted
        free = self.capacity - self.taken - self.used()
        return min(wanted, len(node.data) + max(0, free))

    def used(self) -> int:
        """Bytes in all files."""

        return sum(len(node.data) for node in {id(node): node for node in _files(self._root)}.values())

    def kill(self) -> None:
        """The process ends: open files and locks go, everything written stays."""
        self.generation += 1
        self.locks.clear()
        self._stopped = False
        self.crash_after = None

    @property
    def is_stopped(self) -> bool:
        """Whether every operation is refused."""
        return self._stopped

    def shared(self) -> FakeDisk:
        """The same disk as another process of the machine has it: with open files, locks and faults of its own."""
        other = FakeDisk(seed=self.rng.getrandbits(32), capacity=self.capacity)
        other._root = self._root
        other.now_ms = self.now_ms
        return other

    def stop(self) -> None:
        """The machine stands still: every operation from now on, by whoever still tries, is a :class:`PowerCut`."""
        self._stopped = True

    def crash(self, *, lose_all: bool = False) -> None:
        """The power fails and comes back. What was not durable survives in part, as chance has it, or
        (``lose_all``) not at all."""
        self.kill()
        self._settle(self._root, lose_all, set())

    def _settle(self, directory: _Dir, lose_all: bool, seen: set[int]) -> None:
        keep = 0 if lose_all else self.rng.randrange(len(directory.journal) + 1)
        entries = dict(directory.durable)
        for changes in directory.journal[:keep]:
            _apply(entries, changes)
        directory.entries = entries
        directory.durable = dict(entries)
        directory.journal = []
        for name in sorted(entries):
            node = entries[name]
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, _Dir):
                self._settle(node, lose_all, seen)
            else:
                self._settle_file(node, lose_all)

    def _settle_file(self, node: _File, lose_all: bool) -> None:
        old, new = node.durable, node.data
        if node.cut_to is not None and node.cut_to < len(old):
            # Either the truncation is lost and all that was written after it, which went to other sectors
            # than the old content; or it happened, and there is no old content beyond it.
            if lose_all or self.rng.random() < 0.5:
                new = bytearray(old)
            else:
                old = old[: node.cut_to]
        node.cut_to = None
        if lose_all or bytes(new) == old:
            result = bytearray(old)
        else:
            # The length is metadata and goes at once or not at all; contents arrive sector by sector.
            shorter, longer = sorted((len(old), len(new)))
            length = self.rng.choice((len(old), len(new), self.rng.randint(shorter, longer)))
            result = bytearray(old[:length].ljust(length, b"\0"))
            arrive = self.rng.choice((0.0, 0.5, 1.0))
            for start in range(0, length, SECTOR):
                if self.rng.random() < arrive:
                    end = min(start + SECTOR, length, len(new))
                    if end > start:
                        result[start:end] = new[start:end]
        node.data = result
        node.durable = bytes(result)

    def flip_bit(self, path: str, bit: int) -> None:
        """Change one bit of a file, both what is read now and what is durable."""
        node = self._file(path)
        node.data[bit // 8] ^= 1 << bit % 8
        node.durable = bytes(node.data)

    def damage(self, path: str) -> str:
        """Flip a bit of a file, lose the writes to a block, answer with another block or lose the end, as chance has
        it; what was done. The file is damaged for who has it open, too."""
        node, rng = self._file(path), self.rng
        data, size = node.data, rng.choice((SECTOR, PAGE))
        start = rng.randrange(len(data)) // size * size if data else 0
        end = min(start + size, len(data))
        way = rng.choice(("has a flipped bit", "has lost a block", "has another block", "has lost its end"))
        if way == "has a flipped bit" and data:
            data[rng.randrange(start, end)] ^= 1 << rng.randrange(8)
        elif way == "has lost a block":
            data[start:end] = bytes(end - start)
        elif way == "has another block":
            parent, _ = self._parent(path)
            others = [each.data for _, each in sorted(parent.entries.items()) if isinstance(each, _File) and each.data]
            other = rng.choice(others) if others else data
            source = rng.randrange(len(other)) // size * size if other else 0
            data[start:end] = bytes(other[source : source + end - start]).ljust(end - start, b"\0")
        else:
            del data[start:]
        node.durable = bytes(data)
        return f"{path} {way}: {end - start} bytes at {start}"

    def spoil(self, path: str) -> str:
        """Empty a file, cut it or remove it, as chance has it; what was done. A file that is not there stays so."""
        if self.exists(path):
            parent, name = self._parent(path)
            node = self._file(path)
            way = self.rng.choice(("emptied", "cut", "removed"))
            if way == "removed":
                del parent.entries[name]
            else:
                size = self.rng.randrange(len(node.data)) if way == "cut" and node.data else 0
                node.data = node.data[:size]
            node.durable, parent.durable, parent.journal = bytes(node.data), dict(parent.entries), []
            return f"{path} {way}"
        return f"no {path}"

    def snapshot(self, copies: dict[int, _File | _Dir] | None = None) -> FakeDisk:
        """A copy that goes its own way; without open files, locks and faults. ``copies`` gets it node by node."""
        copies = {} if copies is None else copies

        def copy(node: _File | _Dir) -> _File | _Dir:
            done = copies.get(id(node))
            if done is not None:
                return done
            if isinstance(node, _File):
                made: _File | _Dir = _File(bytearray(node.data), node.durable, node.modified_ms, node.cut_to)
                copies[id(node)] = made
                return made
            directory = _Dir()
            copies[id(node)] = directory
            directory.entries = {name: copy(child) for name, child in node.entries.items()}
            directory.durable = {name: copy(child) for name, child in node.durable.items()}
            directory.journal = [
                {name: None if child is None else copy(child) for name, child in changes.items()}
                for changes in node.journal
            ]
            return directory

        other = FakeDisk(capacity=self.capacity)
        other.rng.setstate(self.rng.getstate())
        other.taken = self.taken
        other.now_ms = self.now_ms
        root = copy(self._root)
        assert isinstance(root, _Dir)
        other._root = root
        return other

    # -- the Disk protocol

    def _walk(self, path: str) -> _File | _Dir | None:
        node: _File | _Dir | None = self._root
        for name in path.split("/"):
            if not name or name == ".":
                continue
            if not isinstance(node, _Dir):
                return None
            node = node.entries.get(name)
        return node

    def _file(self, path: str) -> _File:
        node = self._walk(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _Dir):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _dir(self, path: str) -> _Dir:
        node = self._walk(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _File):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[_Dir, str]:
        head, _, name = path.rstrip("/").rpartition("/")
        return self._dir(head), name

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        if create and self._walk(path) is None:
            parent, name = self._parent(path)
            self.operate("create", path)
            parent.change({name: _File(modified_ms=self.now_ms)})
        return FakeFile(self, self._file(path), path)

    def exists(self, path: str) -> bool:
        return self._walk(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._walk(path), _Dir)

    is_own_dir = is_dir

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._dir(path).entries)

    def list_dirs(self, path: str) -> list[str]:
        return [name for name in self.list_dir(path) if self.is_dir(f"{path}/{name}")]

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def make_dirs(self, path: str) -> None:
        directory = self._root
        for name in path.split("/"):
            if not name or name == ".":
                continue
            node = directory.entries.get(name)
            if node is None:
                self.operate("mkdir", path)
                node = _Dir()
                directory.change({name: node})
            if isinstance(node, _File):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            directory = node

    def make_dir(self, path: str) -> None:
        self._parent(path)  # which is there
        self.make_dirs(path)

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        if source is not target:
            raise OSError(errno.EXDEV, "renames stay in one directory here", old)
        node = source.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self.operate("rename", old)
        source.change({old_name: None, new_name: node})

    def link(self, path: str, other: str) -> None:
        node = self._file(path)
        parent, name = self._parent(other)
        if name in parent.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), other)
        self.operate("link", other)
        parent.change({name: node})

    def is_shared(self, path: str) -> bool:
        wanted = self._walk(path)

        return sum(node is wanted for node in _files(self._root)) > 1

    def remove(self, path: str) -> None:
        if self._walk(path) is None:
            return
        self._file(path)
        parent, name = self._parent(path)
        self.operate("remove", path)
        parent.change({name: None})

    def remove_tree(self, path: str) -> None:
        node = self._walk(path)
        if node is None:
            return
        if isinstance(node, _File):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        for name in sorted(node.entries):
            child = node.entries[name]
            if isinstance(child, _Dir):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        parent, name = self._parent(path)
        self.operate("remove", path)
        parent.change({name: None})

    def sync_dir(self, path: str) -> None:
        directory = self._dir(path)
        self.operate("sync_dir", path)
        directory.durable = dict(directory.entries)
        directory.journal = []

    def read_bytes(self, path: str) -> bytes:
        node = self._file(path)
        self.operate("read", path)
        return bytes(node.data)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        if len(data):
            file.write_at(0, [data])
        if sync:
            file.sync()

    def take_room(self, path: str, size: int) -> None:
        self.write_bytes(path, bytes(size))

    def usage(self, path: str) -> DiskUsage:
        used = self.taken + self.used()
        total = self.capacity if self.capacity is not None else 1 << 40
        return DiskUsage(total, max(0, total - used))

    def lock(self, path: str) -> _FakeLock:
        self.open(path, create=True)
        lock = _FakeLock(self, path)
        if lock.node in self.locks:
            raise BlockingIOError(f"{path} is locked by another process")
        self.locks.add(lock.node)
        return lock
