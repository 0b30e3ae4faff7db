"""The image of the committed metadata log, made from its batches and snapshots.

A metadata transaction (BeginTransactionRecord ... EndTransactionRecord, KIP-868) takes effect as a whole at its end, or
not at all if it is aborted.
"""

from __future__ import annotations

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
        before = self.image
        self._transaction = None
        self._delta = MetadataDelta(MetadataImage(controller_id=before.controller_id))
        for record in records:
            self._delta.replay(record)
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
        self.last_timestamp = batch.timestamp
        if batch.is_control:
            for record in batch.records:
                self._take_control(record)
            return
        for record in batch.records:
            self._take_record(record)

    def publish(self, last: OffsetAndEpoch) -> Published | None:
        """The image up to ``last``, the position of the last record replayed; None inside a transaction."""
        if self._transaction is not None:
            return None
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
