"""Writes snapshots of the metadata (KIP-630), each of which takes the place of the log before it."""

from __future__ import annotations

import logging

import trio

from kbroker.env import Env
from kbroker.node.image_publisher import ImagePublisher
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import SnapshotStore, encode_snapshot
from kbroker.types import OffsetAndEpoch

logger = logging.getLogger(__name__)


class MetadataSnapshots:
    """Writes a snapshot whenever the log has grown by so many bytes. ``run`` it beside the quorum."""

    def __init__(
        self, log: ReplicatedLog, store: SnapshotStore, images: ImagePublisher, env: Env, max_bytes_between: int
    ) -> None:
        """``max_bytes_between`` is ``metadata.log.max.record.bytes.between.snapshots``."""
        self._log = log
        self._store = store
        self._images = images
        self._env = env
        self._max_bytes_between = max_bytes_between
        self._bytes_at_last = 0
        self.latest_bytes = 0
        """Size of the last snapshot that was written here, and when (ms since 1970), for metrics."""
        self.latest_ms: int | None = None
        self._wanted = trio.Event()

    def on_high_watermark(self) -> None:
        """Have a snapshot written if the log has grown enough. Does not wait."""
        if self._log.bytes_seen - self._bytes_at_last >= self._max_bytes_between:
            self._wanted.set()

    async def run(self) -> None:
        """Write those that are wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await self.write()

    async def write(self) -> OffsetAndEpoch:
        """Write the latest image as a snapshot, and delete the log before it; the snapshot's id."""
        log, store, image = self._log, self._store, self._images.image
        timestamp = self._images.last_timestamp
        snapshot_id = OffsetAndEpoch(image.offset + 1, image.epoch)
        self._bytes_at_last = log.bytes_seen
        if snapshot_id in store.ids():
            return snapshot_id
        now_ms = self._env.wall_clock_ms()
        kraft_version, voters = log.kraft_version, log.voters.at(image.offset)

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

        self.latest_bytes, self.latest_ms = await self._env.run_blocking(write), now_ms
        log.on_snapshot_written(snapshot_id, now_ms)
        logger.info("wrote metadata snapshot %s", store.path(snapshot_id))
        return snapshot_id
