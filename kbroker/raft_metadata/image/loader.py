"""The image of the committed metadata log, made from its batches and snapshots.

A metadata transaction (BeginTransactionRecord ... EndTransactionRecord, KIP-868) takes effect as a whole at its end, or
not at all if it is aborted.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.raft_metadata.image import MetadataDelta, MetadataImage
from kbroker.raft_metadata.raft.batches import MetadataBatch
from kbroker.types import OffsetAndEpoch
from kbroker.value_types import NamedTuple
from kbroker.wire.records import control
from kbroker.wire.records.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord


class Published(NamedTuple):
    """An image, and the delta that led to it from the one before."""

    delta: MetadataDelta
    image: MetadataImage


class ImageLoader:
    """Keeps the image of all batches it was given. ``image`` is the last one outside a transaction."""

    def __init__(self, image: MetadataImage | None = None) -> None:
        self.image = MetadataImage() if image is None else image
        self.last_timestamp = -1
        self._delta = MetadataDelta(self.image)
        self._transaction: list[object] | None = None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._transaction is not None

    def load_snapshot(self, records: list[object], snapshot_id: OffsetAndEpoch) -> Published:
        """Start again from a snapshot's records. The delta has all of them, and the removal of all that they lack."""
        for _ in self.replay_snapshot(records):
            pass
        return self.publish_snapshot(snapshot_id)

    def replay_snapshot(self, records: list[object]) -> Iterator[None]:
        """Start again from a snapshot's records, in steps of one; `publish_snapshot` is to follow."""
        self._transaction = None
        self._delta = MetadataDelta(MetadataImage(controller_id=self.image.controller_id))
        for record in records:
            self._delta.replay(record)
            yield

    def publish_snapshot(self, snapshot_id: OffsetAndEpoch) -> Published:
        """The snapshot's image. The delta has the removal of all that it lacks, too."""
        before = self.image
        published = self._publish(OffsetAndEpoch(snapshot_id.offset - 1, snapshot_id.epoch))
        delta, image = published
        for topic_id, topic in before.topics.by_id.items():
            if topic_id not in image.topics.by_id:
                delta.deleted_topics[topic_id] = topic
        for resource in before.configs.by_resource:
            if resource not in image.configs.by_resource:
                delta.changed_configs[resource] = None
        for broker_id in before.brokers:
            if broker_id not in image.brokers:
                delta.changed_brokers[broker_id] = None
        return published

    def take(self, batch: MetadataBatch) -> None:
        """Replay the next batch."""
        for _ in self.replay(batch):
            pass

    def replay(self, batch: MetadataBatch) -> Iterator[None]:
        """Replay the next batch, in steps of one record. Nothing may be published in the midst of it."""
        self.last_timestamp = batch.timestamp
        take = self._take_control if batch.is_control else self._take_record
        for record in batch.records:
            take(record)
            yield

    def publish(self, last: OffsetAndEpoch, leader_id: int = -1) -> Published | None:
        """The image up to ``last``, the position of the last record replayed; None inside a transaction.

        ``leader_id`` is the controller if no record has said who that is: snapshots have none of those.
        """
        if self._transaction is not None:
            return None
        if self._delta.controller_id < 0:
            self._delta.controller_id = leader_id
        return self._publish(last)

    def abandon_transaction(self) -> None:
        """Drop the open transaction, as if it had been aborted."""
        self._transaction = None

    def adopt(self, image: MetadataImage, timestamp_ms: int) -> None:
        """Continue from an image that this node's controller has made of its own records."""
        self.image = image
        self.last_timestamp = timestamp_ms
        self._delta = MetadataDelta(image)

    def _publish(self, last: OffsetAndEpoch) -> Published:
        delta = self._delta
        self.image = delta.apply(last)
        self._delta = MetadataDelta(self.image)
        return Published(delta, self.image)

    def _take_control(self, record: object) -> None:
        # Other control records, such as VotersRecord, concern the replicated log alone.
        if isinstance(record, control.LeaderChangeMessage):
            self._delta.controller_id = record.leader_id

    def _take_record(self, record: object) -> None:
        if isinstance(record, BeginTransactionRecord):
            self._transaction = []
        elif isinstance(record, AbortTransactionRecord):
            self._transaction = None
        elif isinstance(record, EndTransactionRecord):
            for held in self._transaction or ():
                self._delta.replay(held)
            self._transaction = None
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._delta.replay(record)
