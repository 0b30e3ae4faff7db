"""SCRAM credentials before there is an image of the metadata.

Controllers log in to one another before they can elect a leader, and without a leader nobody knows what is committed.
Until then a node takes what is on its own disk: ``bootstrap.checkpoint`` (``kbroker format --add-scram``), the latest
snapshot and its log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kbroker.raft_metadata.image import PrincipalsDelta, PrincipalsImage
from kbroker.raft_metadata.raft.snapshot import CorruptSnapshot, read_bootstrap
from kbroker.wire.records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord

if TYPE_CHECKING:
    from kbroker.log.disk import Disk
    from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog

ScramCredentials = Mapping[tuple[str, int], UserScramCredentialRecord]
"""By user and mechanism."""


class EarlyCredentials:
    """The credentials on this node's disk: each record is read once, unless the log is cut or begun anew."""

    def __init__(self, log: ReplicatedLog, disk: Disk, log_dir: str) -> None:
        self._log = log
        self._disk = disk
        self._log_dir = os.fspath(log_dir)
        self._image = PrincipalsImage()
        self._read_to = -1
        self._truncations = -1

    def credentials(self) -> ScramCredentials:
        """Those of the log as it is now, committed or not."""
        log = self._log
        if self._truncations != log.truncations or self._read_to < log.start_offset:
            self._begin()
        end = log.end_offset
        if self._read_to < end:
            batches = log.read(self._read_to, end)
            self._apply(record for batch in batches if not batch.is_control for record in batch.records)
            self._read_to = end
        return self._image.scram

    def _begin(self) -> None:
        """Take what comes before the log's records."""
        log = self._log
        self._image = PrincipalsImage()
        snapshot = log.latest_snapshot_id
        if snapshot is not None and snapshot.offset > 0:
            self._apply(log.load_snapshot(snapshot).records)
            self._read_to = snapshot.offset
        else:
            # A log that has begun has these records, too: they are its first, and the file may be damaged by now.
            with suppress(CorruptSnapshot):
                self._apply(read_bootstrap(self._disk, self._log_dir) or ())
            self._read_to = log.start_offset
        self._truncations = log.truncations

    def _apply(self, records: Iterable[object]) -> None:
        delta = PrincipalsDelta(self._image)
        for record in records:
            if isinstance(record, UserScramCredentialRecord):
                delta.on_scram(record)
            elif isinstance(record, RemoveUserScramCredentialRecord):
                delta.on_remove_scram(record)
        self._image = delta.apply()
