"""Descriptions of the topologies of Kafka Streams applications, and a keeper of them in files (KIP-1331).

A member of a streams group sends the description of its topology when it is asked. The keeper that a node's file names
stores it; whoever describes the group gets it. Kafka's ``StreamsGroupTopologyDescription`` and its plugin.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from kbroker.base.file_lock import HAS_LOCKS, try_lock

_LOOK_SECONDS: Final = 0.01
"""Another process tells nobody when it is done with a file."""


class _Entry:
    __slots__ = ("deletions", "lock", "users")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.deletions = 0
        """The number that were asked for since the first of the users of now came."""


class Overtaken(OSError):
    """A deletion was asked for after the work that waits: there is nothing left to do for it."""


class FileLocks:
    """Locks of paths. A deletion goes before the work that was asked for before it and has not begun."""

    def __init__(self, timeout: float) -> None:
        """A wait of more than ``timeout`` seconds ends in ``TimeoutError``: nobody waits for the outcome then."""
        self._timeout = timeout
        self._guard = threading.Lock()
        self._entries: dict[Path, _Entry] = {}

    @contextmanager
    def held(self, path: Path, *, deletes: bool = False) -> Iterator[None]:
        """Hold the lock of a path. ``TimeoutError``, `Overtaken`, another ``OSError`` if the lock cannot be made."""
        deadline = time.monotonic() + self._timeout
        with self._guard:
            entry = self._entries.setdefault(path, _Entry())
            entry.users += 1
            entry.deletions += deletes
            deletions = entry.deletions
        try:
            if not entry.lock.acquire(timeout=self._timeout):
                raise TimeoutError(f"{path} is in use")
            try:
                with _held_by_process(path.with_name(f"{path.name}.lock"), deadline):
                    if not deletes and entry.deletions != deletions:
                        raise Overtaken(f"{path} is deleted meanwhile")
                    yield
            finally:
                entry.lock.release()
        finally:
            with self._guard:
                entry.users -= 1
                if not entry.users:
                    del self._entries[path]


@contextmanager
def _held_by_process(lock: Path, deadline: float) -> Iterator[None]:
    if not HAS_LOCKS:  # threads alone are kept apart
        yield
        return
    while (fd := _try(lock)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{lock} is held by another process")
        time.sleep(_LOOK_SECONDS)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # whoever has it open sees that it is not the file of this name any more
        os.close(fd)


def _try(lock: Path) -> int | None:
    """The open file if it is locked now, and still has its name."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if try_lock(fd) and os.path.samestat(os.fstat(fd), lock.stat()):
            return fd
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


LOCK_SECONDS: Final = 4.0
"""For so long a group's file is waited for: a node gives up after five, and does not know what comes of it."""


class SourceNode(NamedTuple):
    """A node that reads topics."""

    name: str
    topics: tuple[str, ...]
    """Empty where they are chosen while the application runs."""
    successors: tuple[str, ...]


class ProcessorNode(NamedTuple):
    """A node that processes records, perhaps with state."""

    name: str
    stores: tuple[str, ...]
    successors: tuple[str, ...]


class SinkNode(NamedTuple):
    """A node that writes to a topic."""

    name: str
    topic: str | None
    """None where it is chosen for each record."""
    successors: tuple[str, ...]


DescribedNode: TypeAlias = SourceNode | ProcessorNode | SinkNode


class DescribedSubtopology(NamedTuple):
    """Nodes that are connected."""

    id: str
    nodes: tuple[DescribedNode, ...]


class GlobalStore(NamedTuple):
    """A store that every instance of the application has whole."""

    source: SourceNode
    processor: ProcessorNode


class TopologyDescription(NamedTuple):
    """The topology of an application."""

    subtopologies: tuple[DescribedSubtopology, ...]
    global_stores: tuple[GlobalStore, ...]


class DescriptionRefused(Exception):
    """The keeper will never take this description: no member is asked for it again. The client gets the text."""


class TopologyDescriptions(Protocol):
    """A keeper of descriptions (Kafka's ``StreamsGroupTopologyDescriptionPlugin``).

    Its methods are called in threads, several at a time, or are each an ``async def``. Each may be called again with
    the same arguments.
    """

    def store(self, group_id: str, topology_epoch: int, description: TopologyDescription) -> None:
        """Keep a description. :class:`DescriptionRefused`; after any other error a member is asked again later."""

    def get(self, group_id: str, topology_epoch: int) -> TopologyDescription | None:
        """The description of a group's topology, None if it is not there."""

    def delete(self, group_id: str) -> None:
        """Forget what is kept of a group, which may be nothing. After an error the group is not deleted either."""


class DescriptionFiles:
    """Keeps each group's latest description in a file of JSON. Nodes of a cluster can share the directory."""

    def __init__(self, directory: str | Path) -> None:
        """``directory`` is made when it is missing. ``OSError`` if that cannot be."""
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._locks = FileLocks(LOCK_SECONDS)

    def store(self, group_id: str, topology_epoch: int, description: TopologyDescription) -> None:
        """See `TopologyDescriptions.store`. The file is replaced as a whole.

        ``OSError``, also where the group's file is deleted meanwhile. ``ValueError`` if it has a later epoch's.
        """
        path = self._path(group_id)
        text = json.dumps(
            {"group": group_id, "topology_epoch": topology_epoch, **to_json(description)}, indent=1, sort_keys=True
        )
        with self._locks.held(path):
            kept = _epoch_of(path)
            if kept is not None and kept > topology_epoch:
                raise ValueError(
                    f"{path} is of topology epoch {kept}, which is later than {topology_epoch}: remove it if it is"
                    " another cluster's"
                )
            temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
            try:
                temporary.write_text(text + "\n", "utf-8")
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise

    def get(self, group_id: str, topology_epoch: int) -> TopologyDescription | None:
        """See `TopologyDescriptions.get`. ``OSError``; ``ValueError`` for a file that is damaged."""
        try:
            found = json.loads(self._path(group_id).read_text("utf-8"))
        except FileNotFoundError:
            return None
        return from_json(found) if found["topology_epoch"] == topology_epoch else None

    def delete(self, group_id: str) -> None:
        """See `TopologyDescriptions.delete`. ``OSError``."""
        path = self._path(group_id)
        with self._locks.held(path, deletes=True):
            path.unlink(missing_ok=True)

    def _path(self, group_id: str) -> Path:
        """A name that is one on every file system, whatever the group's id is: its letters, and a hash of all."""
        readable = "".join(letter for letter in group_id if letter.isascii() and (letter.isalnum() or letter in "-_"))
        digest = hashlib.sha256(group_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return self._directory / f"{readable[:80]}-{digest}.json"


def _epoch_of(path: Path) -> int | None:
    """The epoch of a file; None for one that is not there, or is damaged."""
    try:
        return int(json.loads(path.read_text("utf-8"))["topology_epoch"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def to_json(description: TopologyDescription) -> dict[str, object]:
    """A description as JSON has it."""
    return {
        "subtopologies": [
            {"id": each.id, "nodes": [_node_to_json(node) for node in each.nodes]} for each in description.subtopologies
        ],
        "global_stores": [
            {"source": _node_to_json(store.source), "processor": _node_to_json(store.processor)}
            for store in description.global_stores
        ],
    }


def _node_to_json(node: DescribedNode) -> dict[str, object]:
    return {"type": _NAMES[type(node)], **node._asdict()}


def from_json(found: Mapping[str, object]) -> TopologyDescription:
    """The description of what `to_json` gives. ``ValueError`` for anything else."""
    try:
        return TopologyDescription(
            tuple(
                DescribedSubtopology(str(each["id"]), tuple(map(_node_from_json, each["nodes"])))
                for each in found["subtopologies"]  # type: ignore[attr-defined]
            ),
            tuple(map(_store_from_json, found["global_stores"])),  # type: ignore[call-overload]
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no description of a topology: {error!r}") from None


def _store_from_json(found: Mapping[str, Mapping[str, object]]) -> GlobalStore:
    source, processor = _node_from_json(found["source"]), _node_from_json(found["processor"])
    if not isinstance(source, SourceNode) or not isinstance(processor, ProcessorNode):
        raise ValueError("a global store has a source and a processor")
    return GlobalStore(source, processor)


def _node_from_json(found: Mapping[str, object]) -> DescribedNode:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    kind = _KINDS.get(str(fields.pop("type")))
    if kind is None:
        raise ValueError(f"there is no node of type {found['type']!r}")
    made: DescribedNode = kind(**fields)  # type: ignore[arg-type]
    return made


_KINDS: Mapping[str, type[SourceNode] | type[ProcessorNode] | type[SinkNode]] = {
    "source": SourceNode,
    "processor": ProcessorNode,
    "sink": SinkNode,
}
_NAMES: Mapping[type[DescribedNode], str] = {kind: name for name, kind in _KINDS.items()}
