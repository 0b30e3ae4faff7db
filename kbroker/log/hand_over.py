"""A log is handed over to another node of the machine: its sealed segments get a second name in a directory there.

No bytes of records are copied, and no name is taken away: whenever one of the two nodes is killed, each has a whole
log, or a directory that is removed at its next start. A file with two names is not changed in place
(`Segment.own_file`).

`HandOver.link` runs where the log is owned, once it is flushed, `HandOver.complete` in any thread.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kbroker.log.checkpoint_files import PARTITION_METADATA, TOPIC_ID_COPY
from kbroker.log.damage import FILE_NAME as DAMAGE
from kbroker.log.file_names import (
    ABORTED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SET_ASIDE_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from kbroker.log.leader_epochs import LeaderEpochs

if TYPE_CHECKING:
    from kbroker.log.disk import Disk
    from kbroker.log.partition_log import PartitionLog

_COPIED = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, ABORTED_SUFFIX, SNAPSHOT_SUFFIX)


class HandOver:
    """A log that is handed over: all of it that is durable and sealed."""

    def __init__(self, log: PartitionLog, disk: Disk, directory: str) -> None:
        """The log has just been rolled. Its files get names in ``directory``, which is empty; ``disk`` has it."""
        self._log = log
        self.disk = disk
        self._source, self.directory = log.directory, directory
        self._generation = log.generation
        self._copied: list[str] = []
        self._epochs = LeaderEpochs(log.leader_epochs.entries)
        self.end_offset = log.log_end_offset
        """The end of what is handed over."""
        self.log_start_offset = log.log_start_offset
        self.size = log.size

    def link(self) -> None:
        """Give the segments their second names. ``OSError`` if that cannot be: it is another file system."""
        active = file_name(self.end_offset)
        for name in self.disk.list_dir(self._source):
            path, other = os.path.join(self._source, name), os.path.join(self.directory, name)
            if SET_ASIDE_SUFFIX in name or (name.endswith(LOG_SUFFIX) and name < active):
                self.disk.link(path, other)
            elif name in (PARTITION_METADATA, TOPIC_ID_COPY, DAMAGE) or (
                name.endswith(_COPIED) and (name < active or name == active + SNAPSHOT_SUFFIX)
            ):
                self._copied.append(name)
        self._epochs.truncate_from_end(self.end_offset)

    def complete(self) -> None:
        """Copy the small files, and make durable what cannot be made anew from the segments. ``OSError``."""
        disk = self.disk
        for name in self._copied:
            data = disk.read_bytes(os.path.join(self._source, name))
            sync = not name.endswith((OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX))
            disk.write_bytes(os.path.join(self.directory, name), data, sync=sync)
        self._epochs.write(disk, self.directory, sync=True)
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):  # the next records are not shared
            disk.write_bytes(os.path.join(self.directory, file_name(self.end_offset) + suffix), b"")
        disk.sync_dir(self.directory)

    @property
    def still_holds(self) -> bool:
        """Whether the log has not become another meanwhile: it was not cut, nor deleted."""
        return self._log.generation == self._generation
