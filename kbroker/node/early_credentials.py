"""SCRAM credentials before there is an image of the metadata.

Controllers log in to one another before they can elect a leader, and without a leader nobody knows what is committed.
Until then a node takes what is on its own disk: ``bootstrap.checkpoint`` (``kbroker format --add-scram``), the latest
snapshot and its log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kbroker.raft_metadata.image import PrincipalsDelta, PrincipalsImage
from kbroker.raft_metadata.raft.snapshot import read_bootstrap
from kbroker.wire.records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord

if TYPE_CHECKING:
    from kbroker.log.disk import Disk
    from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog

ScramCredentials = Mapping[tuple[str, int], UserScramCredentialRecord]
"""By user and mechanism."""


class EarlyCredentials:
    """The credentials on this node's disk, read again when its log has changed."""

    def __init__(self, log: ReplicatedLog, disk: Disk, log_dir: str) -> None:
        self._log = log
        self._disk = disk
        self._log_dir = os.fspath(log_dir)
        self._read_at = -1
        self._credentials: ScramCredentials = {}

    def credentials(self) -> ScramCredentials:
        """Those of the log as it is now, committed or not."""
        end = self._log.end_offset
        if end != self._read_at:
            delta = PrincipalsDelta(PrincipalsImage())
            for record in self._records(end):
                if isinstance(record, UserScramCredentialRecord):
                    delta.on_scram(record)
                elif isinstance(record, RemoveUserScramCredentialRecord):
                    delta.on_remove_scram(record)
            self._credentials = delta.apply().scram
            self._read_at = end
        return self._credentials

    def _records(self, end: int) -> Iterator[Any]:
        snapshot = self._log.latest_snapshot_id
        if snapshot is not None and snapshot.offset > 0:
            yield from self._log.load_snapshot(snapshot).records
        else:
            # A log that has begun has these records, too: they are its first.
            yield from read_bootstrap(self._disk, self._log_dir) or ()
        for batch in self._log.read(self._log.start_offset, end):
            if not batch.is_control:
                yield from batch.records
