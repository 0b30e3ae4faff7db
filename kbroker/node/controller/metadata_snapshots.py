"""Writes snapshots of the metadata (KIP-630, KIP-876), each of which takes the place of the log before it.

So one is written, too, when the log or a snapshot is found damaged while the node runs: the image in memory has all.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from kbroker.log.full_disk import is_no_room, unless_full
from kbroker.node.controller.image_publisher import ImagePublisher
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import SnapshotStore, encode_snapshot
from kbroker.runtime.env import Env
from kbroker.runtime.timing import Alarm
from kbroker.types import OffsetAndEpoch

logger = logging.getLogger(__name__)


class MetadataSnapshots:
    """Writes a snapshot when the log has grown by so many bytes, and after so long. ``run`` it beside the quorum."""

    def __init__(
        self,
        log: ReplicatedLog,
        store: SnapshotStore,
        images: ImagePublisher,
        env: Env,
        max_bytes_between: int,
        max_interval_ms: int,
    ) -> None:
        """``max_bytes_between`` is ``metadata.log.max.record.bytes.between.snapshots``.

        ``max_interval_ms`` is ``metadata.log.max.snapshot.interval.ms``; 0 for no snapshots by time.
        """
        self._log = log
        self._store = store
        self._images = images
        self._env = env
        self._max_bytes_between = max_bytes_between
        self._max_interval = max_interval_ms / 1000 or math.inf
        self._bytes_at_last = 0
        self._last_at = 0.0
        self._wanted = False
        self._alarm = Alarm()
        log.want_snapshot = self._begin
        self.latest_bytes = 0
        """Size of the last snapshot that was written here, and when (ms since 1970), for metrics."""
        self.latest_ms: int | None = None

    def on_high_watermark(self) -> None:
        """Have a snapshot written if the log has grown enough. Does not wait."""
        if self._log.bytes_seen - self._bytes_at_last >= self._max_bytes_between:
            self._wanted = True
            self._alarm.ring()

    def _begin(self) -> None:
        self._wanted = self._images.image.offset >= 0  # else the next one does as well
        self._alarm.ring()

    @property
    def files(self) -> Mapping[OffsetAndEpoch, str]:
        """The snapshots and their paths, oldest first."""
        return {snapshot_id: self._store.path(snapshot_id) for snapshot_id in self._store.ids()}

    async def replace(self, damaged: OffsetAndEpoch, reason: str) -> None:
        """Set a damaged snapshot aside, and write a new one. Nothing is done before there is an image."""
        if self._images.image.offset >= 0:
            await self._env.run_blocking(self._store.set_aside, damaged, reason)
            self._begin()

    async def run(self) -> None:
        """Write those that are wanted or due, until cancelled."""
        self._last_at = self._env.now()
        while True:
            if not self._wanted:
                await self._alarm.sleep_until(self._last_at + self._max_interval)
            is_due = self._env.now() >= self._last_at + self._max_interval
            if self._wanted or (is_due and self._images.image.offset >= 0):
                await self.write()
            elif is_due:
                self._last_at = self._env.now()  # there is nothing yet

    async def write(self) -> None:
        """Write the latest image as a snapshot, and delete the log before it.

        Nothing is written where nothing was committed since the last one, or the disk is full: the log has all of it,
        too, and the next one may find room.
        """
        log, store, image = self._log, self._store, self._images.image
        timestamp = self._images.last_timestamp
        snapshot_id = OffsetAndEpoch(image.offset + 1, image.epoch)
        self._bytes_at_last, self._last_at, self._wanted = log.bytes_seen, self._env.now(), False
        if snapshot_id in store.ids() and not log.damage:
            return
        now_ms = self._env.wall_clock_ms()
        kraft_version, voters = log.kraft_version_at(image.offset), log.voters.at(image.offset)

        def write() -> int:
            data = encode_snapshot(
                image.records(),
                epoch=image.epoch,
                now_ms=now_ms,
                last_contained_log_timestamp=timestamp,
                kraft_version=kraft_version,
                voters=voters,
                metadata_version=image.features.metadata_version,
            )
            store.write(snapshot_id, data)
            return len(data)

        try:
            self.latest_bytes, self.latest_ms = await self._env.run_blocking(write), now_ms
        except OSError as error:
            if not is_no_room(error):
                raise
            logger.warning("no room for the metadata snapshot %s: %s", store.path(snapshot_id), error)
            with unless_full():
                log.begin_at_latest_snapshot()  # the next one may have the room of the last but one
            return
        log.on_snapshot_written(snapshot_id, now_ms)
        logger.info("wrote metadata snapshot %s", store.path(snapshot_id))
