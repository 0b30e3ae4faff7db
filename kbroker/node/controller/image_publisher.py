"""Publishes the committed metadata: reads records into images, and hands each image to all that follow the metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import trio

from kbroker.errors import FatalError
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage
from kbroker.raft_metadata.image.loader import ImageLoader, Published
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.types import OffsetAndEpoch
from kbroker.wire.errors import WireError

if TYPE_CHECKING:
    from kbroker.raft_metadata.raft.snapshot import SnapshotContent
    from kbroker.runtime.env import Env

Subscriber = Callable[[MetadataDelta, MetadataImage], None]
"""Called with the changes and the new image, in order, on the event loop. Must not wait."""


class ImagePublisher:
    """The latest published image of the metadata log, and its subscribers (Kafka's ``MetadataLoader``)."""

    def __init__(self, log: ReplicatedLog, leader_id: Callable[[], int]) -> None:
        """Begin with the latest snapshot, if there is one; its image is published with the first records after it.

        ``leader_id`` gives the leader of the quorum, -1 if it is not known.
        """
        self._log = log
        self._leader_id = leader_id
        self._loader = ImageLoader()
        self._image = MetadataImage()
        self._next_offset = 0
        self.snapshots_loaded = 0
        """Snapshots read so far, for metrics."""
        self._subscribers: list[Subscriber] = []
        self._published = trio.Event()
        latest = log.latest_snapshot_id
        if latest is not None and latest.offset > 0:
            self._load_snapshot(latest)

    @property
    def image(self) -> MetadataImage:
        """The latest published image; everything in it is committed."""
        return self._image

    @property
    def loaded_image(self) -> MetadataImage:
        """The image of all records read so far, which may end within a transaction (KIP-868)."""
        return self._loader.image

    @property
    def next_offset(self) -> int:
        """The offset of the first record that has not been read."""
        return self._next_offset

    @property
    def last_timestamp(self) -> int:
        """The timestamp of the last batch read, in milliseconds."""
        return self._loader.last_timestamp

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber(delta, image)`` with every further image, and now with the whole of the latest."""
        self._subscribers.append(subscriber)
        if self._image.offset >= 0:
            subscriber(MetadataDelta.whole(self._image), self._image)

    async def wait_for(self, condition: Callable[[MetadataImage], bool]) -> None:
        """Wait until ``condition`` holds for the latest image."""
        while not condition(self._image):
            if self._published.is_set():
                self._published = trio.Event()  # one for all who wait
            await self._published.wait()

    def read_to(self, end_offset: int, epoch: int) -> None:
        """Publish the log's records below ``end_offset``, from its latest snapshot if older ones are gone.

        ``epoch`` is the image's if there are no records to take one from.
        """
        if self._next_offset < end_offset:
            if (latest := self._snapshot_to_load()) is not None:
                self._publish(*self._load_snapshot(latest))
            for _ in self._read(end_offset, epoch):
                pass

    async def read_in_turns(self, end_offset: int, epoch: int, env: Env) -> None:
        """Read as `read_to` does; a change of a thousand records, or a snapshot, does not hold up others.

        Nobody else may read or adopt meanwhile.
        """
        if self._next_offset >= end_offset:
            return
        with trio.CancelScope(shield=True):  # what is half read could not be read again
            if (latest := self._snapshot_to_load()) is not None:
                content = await env.run_long(partial(self._log.load_snapshot, latest))
                for _ in _in_turns(self._loader.replay_snapshot(content.records), env):
                    await trio.lowlevel.checkpoint()
                self._publish(*self._loaded(content, latest))
            for _ in _in_turns(self._read(end_offset, epoch), env):
                await trio.lowlevel.checkpoint()

    def _snapshot_to_load(self) -> OffsetAndEpoch | None:
        """The latest snapshot, if the log does not have the next record any more."""
        if self._next_offset >= self._log.start_offset:
            return None
        latest = self._log.latest_snapshot_id
        assert latest is not None, "the log begins at a snapshot"
        return latest

    def _read(self, end_offset: int, epoch: int) -> Iterator[None]:
        """Read to an offset in steps of one record, and publish."""
        offset = self._next_offset
        try:
            for batch in self._log.read(offset, end_offset, lazily=True):
                yield from self._loader.replay(batch)
                offset, epoch = batch.last_offset + 1, batch.epoch
        except WireError as error:
            raise FatalError(f"the metadata log is damaged at or after offset {offset}: {error}") from error
        self._next_offset = offset
        if self._next_offset - 1 > self._image.offset:
            published = self._loader.publish(OffsetAndEpoch(self._next_offset - 1, epoch), self._leader_id())
            if published is not None:
                self._publish(*published)

    def adopt(self, delta: MetadataDelta, image: MetadataImage, timestamp_ms: int) -> None:
        """Publish the image that this node's controller has made of the next records of the log."""
        self._next_offset = image.offset + 1
        self._loader.adopt(image, timestamp_ms)
        self._publish(delta, image)

    def abandon_transaction(self) -> bool:
        """Forget the records of a transaction whose writer is gone (KIP-868); whether there was one."""
        if not self._loader.in_transaction:
            return False
        self._loader.abandon_transaction()
        return True

    def _load_snapshot(self, snapshot_id: OffsetAndEpoch) -> Published:
        content = self._log.load_snapshot(snapshot_id)
        for _ in self._loader.replay_snapshot(content.records):
            pass
        return self._loaded(content, snapshot_id)

    def _loaded(self, content: SnapshotContent, snapshot_id: OffsetAndEpoch) -> Published:
        published = self._loader.publish_snapshot(snapshot_id)
        self.snapshots_loaded += 1
        self._loader.last_timestamp = content.last_contained_log_timestamp
        self._next_offset = snapshot_id.offset
        return published

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._image = image
        self._published.set()
        for subscriber in self._subscribers:
            subscriber(delta, image)


def _in_turns(steps: Iterable[None], env: Env) -> Iterator[None]:
    """Make the steps; yields where others are to have a turn."""
    steps = iter(steps)
    for turn in turn_lengths(env):
        if sum(1 for _ in islice(steps, turn)) < turn:
            return
        yield


def turn_lengths(env: Env) -> Iterator[int]:
    """Returns the records of one turn after the other: short turns at first, up to 16 times as long if it lasts."""
    turn, short_until = env.budgets.turn_records, env.now() + env.budgets.short_turns_seconds
    while True:
        yield turn
        if env.now() >= short_until:
            turn = min(2 * turn, 16 * env.budgets.turn_records)
