"""Snapshots of the metadata (KIP-630): ``<end offset>-<epoch>.checkpoint`` beside the log.

A snapshot holds all records below its end offset, compacted: a header, the voters, the image's records, a footer.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Sequence

from kbroker.log.disk import Disk, write_atomically
from kbroker.log.file_names import SET_ASIDE_SUFFIX
from kbroker.raft_metadata.raft.batches import decode_batches, encode_control_records, encode_records
from kbroker.raft_metadata.raft.voters import VoterSet
from kbroker.types import METADATA_TOPIC, OffsetAndEpoch
from kbroker.value_types import NamedTuple
from kbroker.wire.errors import WireError
from kbroker.wire.records import control

logger = logging.getLogger(__name__)

BOOTSTRAP_FILE = "bootstrap.checkpoint"
_FILE_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")
_FORMAT_ANEW = "nothing else has what it holds: format the directory anew (kbroker format)"
PART_SUFFIX = ".part"
"""Ends the name of a snapshot that is being fetched."""
_RECORDS_PER_BATCH = 1000


class SnapshotContent(NamedTuple):
    """The content of a snapshot. ``voters`` and ``kraft_version`` are None if it has no such records."""

    records: list[object]
    kraft_version: int | None
    voters: VoterSet | None
    last_contained_log_timestamp: int


class CorruptSnapshot(Exception):
    """A damaged snapshot file; the text names the file and the damage."""


def snapshot_file_name(snapshot_id: OffsetAndEpoch) -> str:
    """The file's name. It has the end offset, the first that is not in the snapshot."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"


def parse_snapshot_file_name(name: str) -> OffsetAndEpoch | None:
    """The id in a file's name, None for other files."""
    match = _FILE_NAME.match(name)
    return None if match is None else OffsetAndEpoch(int(match[1]), int(match[2]))


def encode_snapshot(
    records: Iterable[object],
    *,
    epoch: int = 0,
    now_ms: int,
    last_contained_log_timestamp: int,
    kraft_version: int | None = None,
    voters: VoterSet | None = None,
    metadata_version: int = 30,
) -> bytes:
    """The bytes of a snapshot. ``epoch`` is written into the batches, as Kafka does."""
    head: list[object] = [control.SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_log_timestamp)]
    if kraft_version is not None and kraft_version > 0:
        head.append(control.KRaftVersionRecord(kraft_version=kraft_version))
        if voters is not None:
            head.append(voters.to_record())
    out = bytearray(encode_control_records(head, base_offset=0, epoch=epoch, timestamp_ms=now_ms))
    offset = len(head)
    pending: list[object] = []

    def write(batch: Sequence[object]) -> None:
        nonlocal offset
        out.extend(
            encode_records(
                batch, base_offset=offset, epoch=epoch, timestamp_ms=now_ms, metadata_version=metadata_version
            )
        )
        offset += len(batch)

    for record in records:
        pending.append(record)
        if len(pending) == _RECORDS_PER_BATCH:
            write(pending)
            pending = []
    if pending:
        write(pending)
    out += encode_control_records(
        [control.SnapshotFooterRecord()], base_offset=offset, epoch=epoch, timestamp_ms=now_ms
    )
    return bytes(out)


def decode_snapshot(data: bytes) -> SnapshotContent:
    """The content of a whole snapshot; ``WireError`` if it is damaged or ends before its footer."""
    records: list[object] = []
    kraft_version: int | None = None
    voters: VoterSet | None = None
    timestamp = -1
    seen_header = seen_footer = False
    end = 0
    for batch in decode_batches(data):
        end += batch.size
        if not batch.is_control:
            if not seen_header or seen_footer:
                raise WireError("records outside the snapshot's header and footer")
            records += batch.records
            continue
        for record in batch.records:
            if isinstance(record, control.SnapshotHeaderRecord):
                seen_header = True
                timestamp = record.last_contained_log_timestamp
            elif isinstance(record, control.SnapshotFooterRecord):
                seen_footer = True
            elif isinstance(record, control.KRaftVersionRecord):
                kraft_version = record.kraft_version
            elif isinstance(record, control.VotersRecord):
                voters = VoterSet.from_record(record)
    if not seen_header:
        raise WireError("the snapshot has no header")
    if not seen_footer or end != len(data):
        raise WireError("the snapshot ends before its footer")
    return SnapshotContent(records, kraft_version, voters, timestamp)


class SnapshotStore:
    """The snapshots in the metadata log's directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self._checked: tuple[OffsetAndEpoch, SnapshotContent] | None = None
        """The snapshot that was just found to be whole, until it is read."""

    def set_damaged_aside(self) -> list[OffsetAndEpoch]:
        """Rename the newest snapshots as long as they are damaged; the ids of those that stay, oldest first.

        :class:`CorruptSnapshot` if it is the one of formatting, and no log has begun: nothing else has the voters.
        """
        ids = self.ids()
        while ids:
            try:
                self._checked = ids[-1], self.read(ids[-1])
                break
            except CorruptSnapshot as error:
                path = self.path(ids.pop())
                names = self._disk.list_dir(self.directory)
                logs = [os.path.join(self.directory, name) for name in names if name.endswith(".log")]
                if not ids and not any(map(self._disk.size, logs)):
                    raise CorruptSnapshot(f"{error}; {_FORMAT_ANEW}") from error
                self._set_aside(path, error)
        return ids

    def set_aside(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        """Rename a snapshot that is damaged. Blocks."""
        path = self.path(snapshot_id)
        self._set_aside(path, CorruptSnapshot(f"{path} is damaged: {reason}"))

    def _set_aside(self, path: str, error: CorruptSnapshot) -> None:
        logger.warning("%s; it is set aside as %s", error, os.path.basename(path) + SET_ASIDE_SUFFIX)
        self._disk.rename(path, path + SET_ASIDE_SUFFIX)
        self._disk.sync_dir(self.directory)

    def ids(self) -> list[OffsetAndEpoch]:
        """The ids of the snapshots, oldest first."""
        if not self._disk.is_dir(self.directory):
            return []
        found = (parse_snapshot_file_name(name) for name in self._disk.list_dir(self.directory))
        return sorted(snapshot_id for snapshot_id in found if snapshot_id is not None)

    def path(self, snapshot_id: OffsetAndEpoch) -> str:
        """The file of a snapshot."""
        return os.path.join(self.directory, snapshot_file_name(snapshot_id))

    def read(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """A snapshot's content; :class:`CorruptSnapshot` if the file is damaged."""
        path = self.path(snapshot_id)
        checked, self._checked = self._checked, None
        if checked is not None and checked[0] == snapshot_id:
            return checked[1]
        try:
            return decode_snapshot(self._disk.read_bytes(path))
        except WireError as error:
            raise CorruptSnapshot(f"{path} is damaged: {error}") from error

    def write(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """Put a snapshot in place; on return it is on disk. Blocks."""
        write_atomically(self._disk, self.path(snapshot_id), data)

    def read_range(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """A snapshot's size and up to ``max_bytes`` of it; None if there is no such file."""
        try:
            file = self._disk.open(self.path(snapshot_id))
        except FileNotFoundError:
            return None
        try:
            return file.size(), file.pread(max_bytes, position)
        finally:
            file.close()

    def remove_unfinished(self, *suffixes: str) -> None:
        """Remove what is left of snapshots that were not fetched, or written, to their ends; other files stay."""
        for name in self._disk.list_dir(self.directory) if self._disk.is_dir(self.directory) else ():
            if any(name.endswith(end) and parse_snapshot_file_name(name.removesuffix(end)) for end in suffixes):
                self._disk.remove(os.path.join(self.directory, name))

    def write_chunk(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Keep a part of a snapshot that is being fetched, in a ``.part`` file; position 0 begins it anew."""
        path = self.path(snapshot_id) + PART_SUFFIX
        if position == 0:
            self.remove_unfinished(PART_SUFFIX)
        file = self._disk.open(path, create=True)
        try:
            file.write_at(position, [data])
        except OSError:
            self._disk.remove(path)  # a full disk needs the room, and it is fetched anew
            raise
        finally:
            file.close()

    def finish(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """Check the fetched parts and put them in place durably; the content. :class:`CorruptSnapshot` if they are
        damaged."""
        path = self.path(snapshot_id)
        part = path + PART_SUFFIX
        data = self._disk.read_bytes(part)
        try:
            content = decode_snapshot(data)
        except WireError as error:
            self._disk.remove(part)
            raise CorruptSnapshot(f"the snapshot fetched into {path} is damaged: {error}") from error
        file = self._disk.open(part)
        try:
            file.sync()
        finally:
            file.close()
        self._disk.rename(part, path)
        self._disk.sync_dir(self.directory)
        return content

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> list[OffsetAndEpoch]:
        """Remove the snapshots older than ``snapshot_id``; their ids."""
        old = [other for other in self.ids() if other < snapshot_id]
        for other in old:
            self._disk.remove(self.path(other))
        return old


def read_bootstrap(disk: Disk, log_dir: str) -> list[object] | None:
    """The records that the first controller of a cluster writes first, as formatting has left them; None if it has not.

    From 4.4 on, Apache Kafka's ``kafka-storage`` leaves them in the snapshot at offset 0, beside the voters (KIP-1170),
    before that in ``bootstrap.checkpoint``; a snapshot without records leaves it to that file, as Kafka's
    ``QuorumController`` does. :class:`CorruptSnapshot` if a file is damaged.
    """
    first = os.path.join(log_dir, f"{METADATA_TOPIC}-0", snapshot_file_name(OffsetAndEpoch(0, 0)))
    return _read_records(disk, first) or _read_records(disk, os.path.join(log_dir, BOOTSTRAP_FILE))


def _read_records(disk: Disk, path: str) -> list[object] | None:
    if not disk.exists(path):
        return None
    try:
        return decode_snapshot(disk.read_bytes(path)).records
    except WireError as error:
        raise CorruptSnapshot(f"{path} is damaged: {error}; {_FORMAT_ANEW}") from error
