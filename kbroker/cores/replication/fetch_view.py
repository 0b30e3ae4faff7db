"""A Fetch as a view of partitions: the watched ones, those with news, and the bytes that are ready.

Pure: it knows neither logs nor time. ``node.replicas.fetch_reader`` reads the partitions of a view, and
``cores.replication.purgatory`` notifies it of their events. A Fetch outside a session is a view that lives for one
request; a fetch session (KIP-227, ``cores.replication.fetch_session``) keeps its view from request to request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from kbroker.types import ZERO_UUID, Uuid
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.wire.messages.fetch import FetchPartition, PartitionData


class PartitionKey(NamedTuple):
    """A partition as requests name it: by topic id (Fetch 13+; then ``topic`` is "") or by topic name."""

    topic: str
    topic_id: Uuid
    partition: int


def key_of(topic: str, topic_id: Uuid, partition: int) -> PartitionKey:
    """The key of a partition that a request names."""
    return PartitionKey("" if topic_id != ZERO_UUID else topic, topic_id, partition)


class ViewedPartition:
    """A partition's parameters in the latest request, and the offsets in its last response."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "name",
        "partition_max_bytes",
        "replica_log_start_offset",
    )

    def __init__(self, key: PartitionKey, partition: FetchPartition) -> None:
        self.key = key
        self.name: str | None = None
        """The name of a topic by id, once it was found: a session knows it when the topic is gone."""
        self.fetch_offset = partition.fetch_offset
        self.partition_max_bytes = partition.partition_max_bytes
        self.current_leader_epoch = partition.current_leader_epoch
        self.last_fetched_epoch = partition.last_fetched_epoch
        self.replica_log_start_offset = partition.log_start_offset
        self.high_watermark = -1
        self.log_start_offset = -1

    def update_request(self, partition: ViewedPartition) -> None:
        """Take the parameters of a later request."""
        self.fetch_offset = partition.fetch_offset
        self.partition_max_bytes = partition.partition_max_bytes
        self.current_leader_epoch = partition.current_leader_epoch
        self.last_fetched_epoch = partition.last_fetched_epoch
        self.replica_log_start_offset = partition.replica_log_start_offset

    def update_response(self, response: PartitionData, has_records: bool) -> bool:
        """Remember a response as sent; whether it holds news (``CachedPartition.maybeUpdateResponseData``)."""
        news = has_records
        if response.high_watermark != self.high_watermark:
            news = True
            self.high_watermark = response.high_watermark
        if response.log_start_offset != self.log_start_offset:
            news = True
            self.log_start_offset = response.log_start_offset
        if response.preferred_read_replica >= 0:
            news = True
        if response.error_code:
            # The next response without this error is news, whatever it holds.
            news = True
            self.high_watermark = -1
        diverging = response.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            news = True
        return news


class FetchView:
    """The partitions of one reader, in serving order, and what has happened to them since they were read.

    ``dirty`` is None in a view that reads every partition each time: the view of a single request, whose answer lists
    them all, and of a small session. Else it is the set of partitions to read. Invariant: a partition that is not
    dirty has no news, and is watched, so that its next event makes it dirty.

    The reader waits as long as ``readable_bytes + arrived_bytes < min_bytes``. ``done`` ends a wait, and stays set
    until the next read begins.
    """

    __slots__ = (
        "arrived_bytes",
        "by_follower",
        "committed_only",
        "dirty",
        "done",
        "in_request",
        "min_bytes",
        "partitions",
        "readable_bytes",
        "reader",
        "replica_epoch",
        "stays_watched",
        "wake",
        "watched",
    )

    def __init__(self, partitions: dict[PartitionKey, ViewedPartition], by_follower: bool) -> None:
        self.partitions = partitions
        self.by_follower = by_follower
        """Another replica reads: up to the log's end, and not to the high watermark."""
        self.dirty: dict[PartitionKey, None] | None = None
        self.watched: dict[PartitionKey, tuple[str, int]] = {}
        """Topic and index of each watched partition (``Purgatory.watch_fetch``)."""
        self.stays_watched = False
        """Partitions stay watched between requests: the view of an open session that tracks changes."""
        self.in_request = False
        """A request is being served."""
        self.committed_only = False
        """The latest request was read_committed: records of open transactions are not for it."""
        self.replica_epoch = -1
        """The broker epoch in the latest request."""
        self.reader: Hashable = None
        """The reader of the latest request, and the authorizer's rules for it."""
        self.min_bytes = 0
        self.readable_bytes = 0
        """Bytes that the present read has found, to the byte. The response may hold fewer, as it ends with a batch; a
        reader whose minimum is its limit must not wait for the rest of a batch."""
        self.arrived_bytes = 0
        """Bytes that have become readable since the present read began."""
        self.done = False
        self.wake: Callable[[], None] | None = None
        """Set by the connection's task while it waits."""

    # --- requests ---------------------------------------------------------------------------------------------

    def track_changes(self) -> None:
        """From now on read only partitions that something has happened to; at first, all."""
        self.dirty = dict.fromkeys(self.partitions)
        self.stays_watched = True

    def update(self, requested: dict[PartitionKey, ViewedPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Apply the changes that a session's request names."""
        for key, partition in requested.items():
            if self.dirty is not None:
                self.dirty[key] = None
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = partition
            else:
                known.update_request(partition)
        for key in forgotten:
            self.partitions.pop(key, None)
            if self.dirty is not None:
                self.dirty.pop(key, None)

    def begin_request(
        self,
        min_bytes: int,
        *,
        committed_only: bool = False,
        replica_epoch: int = -1,
        may_move: bool = False,
        reader: Hashable = None,
    ) -> None:
        """Take up a request.

        Every partition is looked at again when isolation level or broker epoch have changed (a broker that registered
        anew may join the ISR only now, KIP-903), when the reader is another or the rules for it have changed, and for a
        consumer that may be sent to another replica: one may come nearer without an event here.
        """
        self.in_request = True
        self.min_bytes = min_bytes
        if self.dirty is not None and (
            may_move
            or self.committed_only != committed_only
            or self.replica_epoch != replica_epoch
            or self.reader != reader
        ):
            self.look_at_all()
        self.committed_only = committed_only
        self.replica_epoch = replica_epoch
        self.reader = reader

    def look_at_all(self) -> None:
        """Have the next read look at every partition."""
        if self.dirty is not None:
            self.dirty = dict.fromkeys(self.partitions)

    def begin_read(self) -> list[ViewedPartition]:
        """Begin to count anew; the partitions to read."""
        self.done = False
        self.readable_bytes = self.arrived_bytes = 0
        if self.dirty is None:
            return list(self.partitions.values())
        partitions = self.partitions
        return [partitions[key] for key in self.dirty if key in partitions]

    def has_no_news(self, key: PartitionKey) -> None:
        """Leave a watched partition without news out of responses until its next event."""
        if self.dirty is not None:
            self.dirty.pop(key, None)

    def sent_records(self, key: PartitionKey) -> None:
        """Records of a session's partition were sent: it is served last next time, so that none starves."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self.partitions[key] = partition
            if self.dirty is not None:
                self.dirty.pop(key, None)
                self.dirty[key] = None

    @property
    def is_due(self) -> bool:
        """Whether to read again at once: an event has ended the wait, or the bytes of the present read and those that
        came while it went on are enough together."""
        return self.done or (self.arrived_bytes > 0 and self.readable_bytes + self.arrived_bytes >= self.min_bytes)

    # --- events of a partition --------------------------------------------------------------------------------

    def mark(self, key: PartitionKey) -> None:
        """Mark a partition for the next response without waking the reader."""
        if self.dirty is not None:
            self.dirty[key] = None

    def advanced(self, key: PartitionKey, added_bytes: int) -> None:
        """``added_bytes`` more may be read."""
        if self.dirty is not None:
            self.dirty[key] = None
        self.arrived_bytes += added_bytes
        if self.readable_bytes + self.arrived_bytes >= self.min_bytes:
            self.complete()

    def changed(self, key: PartitionKey) -> None:
        """The partition has another leader, is gone, or cannot be read."""
        self.mark(key)
        self.complete()

    def complete(self) -> None:
        """Wake the reader, if it waits."""
        if not self.done:
            self.done = True
            if self.wake is not None:
                self.wake()
