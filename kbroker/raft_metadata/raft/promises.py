"""The promises of a voter, kept where damage to the metadata log cannot reach them: ``quorum-promises``.

A voter has promised two things to the others. It does not vote again in an epoch (``quorum-state`` says for whom it
has voted), and all below the end of its log is on its disk: leaders commit because of that, and voters compare their
logs to a candidate's. A log that was damaged, emptied or put back from a backup looks like a younger one. Who votes
with it may elect a leader that lacks what was committed. So the file has the end that the log had on the disk, by epoch
and offset, and a second time the node's vote and its directories' ids; it lies in the log directory, beside
``meta.properties``.
Apache Kafka ignores it: what it appends or votes on its own makes the log longer, and ``quorum-state`` newer.

The file has two lines of fixed length, each with its checksum. The first is replaced with the file, and is durable
before others hear of what it says. The second, the log's end, is written in place *after* the log was flushed, and not
flushed itself: after a kill it is exact, and after a power cut it is some earlier end. It never tells of an end that
was not on the disk. Where the log is to become shorter, the second line is made so before, durably.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from zlib import crc32

from kbroker.log.checkpoint_files import MetaProperties
from kbroker.log.disk import Disk, DiskFile, write_atomically
from kbroker.raft_metadata.raft.election_state import ElectionState
from kbroker.raft_metadata.raft.voters import ReplicaKey
from kbroker.types import OffsetAndEpoch, Uuid, uuid_from_str, uuid_to_str

FILE_NAME = "quorum-promises"
_FIRST = 8192
_SECOND = 512


def _line(fields: Mapping[str, object], size: int) -> bytes:
    text = json.dumps(fields, separators=(",", ":")).encode("ascii")
    return (b"%08x %s" % (crc32(text), text)).ljust(size - 1) + b"\n"


def _fields(line: bytes) -> dict[str, object] | None:
    """The content of a line; None if it is damaged."""
    checksum, _, text = line.rstrip().partition(b" ")
    if checksum != b"%08x" % crc32(text):
        return None
    fields = json.loads(text)
    assert isinstance(fields, dict)  # the checksum says that this class wrote it
    return fields


class Promises:
    """The promises of a voter, in memory alone: for tests, simulations and nodes that never vote."""

    def __init__(self) -> None:
        self.election: ElectionState | None = None
        self.voters: list[int] = []
        """The ids of the voters when the election state was written."""
        self.end = OffsetAndEpoch(0, 0)
        """The end of the log that is on the disk, or was when the log was last whole; with the last record's epoch."""
        self.lost: str | None = None
        """The reason why the log may lack something below ``end``, or that was committed. None for a whole log."""
        self.is_missing = False
        """Whether nothing was known at the start: the node is new, or Apache Kafka has run it until now."""
        self.is_damaged = False
        """Whether the file could not be read at the start, and no other sign says that something is lost."""
        self.vote_lost = False
        """Whether nothing says in which epochs this voter has voted."""
        self.directories: dict[str, Uuid] = {}
        """The ids of the node's log directories, by their paths."""
        self._lock = threading.Lock()
        """Held while the file is written: a leader's flushes run beside everything else."""

    def note_end(self, end: OffsetAndEpoch) -> None:
        """The log is on the disk up to ``end``. While something is lost only a later end counts. Any thread."""
        with self._lock:
            if end != self.end and (self.lost is None or _key(end) > _key(self.end)):
                self.end = end
                self._write_end(sync=False)

    def lower_end(self, end: OffsetAndEpoch) -> None:
        """The log is about to be cut at ``end``, because the leader's is another. Durable on return."""
        with self._lock:
            if self.lost is None and _key(end) < _key(self.end):
                self.end = end
                self._write_end(sync=True)

    def is_kept_by(self, end: OffsetAndEpoch) -> bool:
        """Whether a log with this end has at least what was promised.

        Epochs come first: a log that was cut because of another leader has a record of that leader's epoch.
        """
        return _key(end) >= _key(self.end)

    def lose(self, reason: str) -> None:
        """Note, durably, that the log may lack something that was promised."""
        with self._lock:
            self.lost = reason
            self._write()

    def lose_vote(self) -> None:
        """Note, durably, that nobody knows in which epochs this voter has voted."""
        with self._lock:
            self.vote_lost = True
            self._write()

    def regain(self, end: OffsetAndEpoch) -> None:
        """The log has all again, and ends at ``end``. Durable on return."""
        with self._lock:
            self.lost, self.end = None, end
            self._write()

    def accept(self, end: OffsetAndEpoch) -> None:
        """A person says that the log may go on from ``end``, and that this voter votes again. Durable on return."""
        self.vote_lost = False
        self.regain(end)

    def vote(self, election: ElectionState, voters: list[int]) -> None:
        """Note, durably, what ``quorum-state`` is about to say."""
        with self._lock:
            self.election, self.voters = election, voters
            self._write()

    def note_directories(self, directories: Mapping[str, Uuid]) -> None:
        """Note the ids of log directories; of those that are not named, what is known stays."""
        known = {**self.directories, **directories}
        if known != self.directories:
            with self._lock:
                self.directories = known
                self._write()

    def close(self) -> None:
        """Make the log's end durable, too."""

    def _write(self) -> None:
        """Replace the file, durably."""

    def _write_end(self, *, sync: bool) -> None:
        """Write the second line."""


def _key(end: OffsetAndEpoch) -> tuple[int, int]:
    return end.epoch, end.offset


class PromisesFile(Promises):
    """:class:`Promises` in the log directory of the metadata log."""

    def __init__(self, disk: Disk, log_dir: str, identity: MetaProperties) -> None:
        """Read them; those of another directory (by ``directory.id``) do not count."""
        super().__init__()
        self._disk = disk
        self.path = os.path.join(log_dir, FILE_NAME)
        self._identity = identity
        self._file: DiskFile | None = None
        self.is_missing = not disk.exists(self.path)
        if self.is_missing:
            return
        first, second = _read(disk, self.path)
        if first is None:
            # It may have said that something is lost.
            self.lost, self.is_damaged = f"{self.path} is damaged", True
        elif first["directory"] not in (None, _text(identity.directory_id)):
            self.is_missing = True
            return
        else:
            self.lost = None if first["lost"] is None else str(first["lost"])
            self.vote_lost = bool(first["vote_lost"])
            self.directories = _directories(first)
            self.voters = [int(voter) for voter in first["voters"]]  # type: ignore[attr-defined]
            self.election = _election(first["election"])
        if second is not None:
            self.end = OffsetAndEpoch(int(second["offset"]), int(second["epoch"]))  # type: ignore[call-overload]

    def close(self) -> None:
        """Make the log's end durable, too. ``OSError``."""
        with self._lock:
            if self._file is not None:
                self._file.sync()
                self._file.close()
                self._file = None

    def _write(self) -> None:
        election, identity = self.election, self._identity
        fields = {
            "version": 0,
            "cluster": identity.cluster_id,
            "node": identity.node_id,
            "directory": _text(identity.directory_id),
            "directories": {path: uuid_to_str(each) for path, each in self.directories.items()},
            "voters": self.voters,
            "lost": None if self.lost is None else self.lost[:1000],
            "vote_lost": self.vote_lost,
            "election": None
            if election is None
            else {
                "epoch": election.epoch,
                "leader": election.leader_id,
                "voted": None
                if election.voted is None
                else [election.voted.id, uuid_to_str(election.voted.directory_id)],
            },
        }
        if self._file is not None:
            self._file.close()
            self._file = None
        write_atomically(self._disk, self.path, _line(fields, _FIRST) + self._second())

    def _write_end(self, *, sync: bool) -> None:
        if self._file is None:
            if not self._disk.exists(self.path):
                self._write()
                return
            self._file = self._disk.open(self.path)
        self._file.write_at(_FIRST, [self._second()])
        if sync:
            self._file.sync()

    def _second(self) -> bytes:
        return _line({"offset": self.end.offset, "epoch": self.end.epoch}, _SECOND)


def _text(directory_id: Uuid | None) -> str | None:
    return None if directory_id is None else uuid_to_str(directory_id)


def _read(disk: Disk, path: str) -> tuple[dict[str, object] | None, dict[str, object] | None]:
    data = disk.read_bytes(path)
    return _fields(data[:_FIRST]), _fields(data[_FIRST : _FIRST + _SECOND])


def _election(fields: object) -> ElectionState | None:
    if not isinstance(fields, dict):
        return None
    voted = fields["voted"]
    key = None if voted is None else ReplicaKey(int(voted[0]), uuid_from_str(voted[1]))
    return ElectionState(int(fields["epoch"]), int(fields["leader"]), key)


def _directories(first: Mapping[str, object]) -> dict[str, Uuid]:
    known = first["directories"]
    assert isinstance(known, dict)
    return {path: uuid_from_str(text) for path, text in known.items()}


def promised_identities(disk: Disk, log_dir: str) -> dict[str, MetaProperties]:
    """The content that ``meta.properties`` of a node's directories had, by their paths, as the promises know it."""
    path = os.path.join(log_dir, FILE_NAME)
    first = _read(disk, path)[0] if disk.exists(path) else None
    if first is None:
        return {}
    cluster_id, node_id = str(first["cluster"]), int(first["node"])  # type: ignore[call-overload]
    directories: dict[str, Uuid | None] = {**_directories(first)}
    own = first["directory"]
    directories[os.path.abspath(log_dir)] = None if own is None else uuid_from_str(str(own))
    return {path: MetaProperties(cluster_id, node_id, each) for path, each in directories.items()}
