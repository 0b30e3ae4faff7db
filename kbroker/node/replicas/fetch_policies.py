"""Consumers and followers: how far each may read, what counts as news for it, and how much is held back.

A policy lives for one request. ``node.replicas.fetch_reader`` asks it about each partition, and calls `count_sent` once
at the end.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from kbroker.cores.replication.fetch_params import CONSUMER_REPLICA_ID

if TYPE_CHECKING:
    from kbroker.cores.replication.fetch_params import FetchParams, FetchResult
    from kbroker.cores.replication.fetch_view import FetchView, ViewedPartition
    from kbroker.log.log_reader import ReadInfo
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.replica_manager import ReplicaManager


class ConsumerPolicy:
    """Rules for consumers: they see what is committed, and are woken when the high watermark moves.

    `on_read` is not called for a consumer whose view does not track changes. A client's quota (``consumer_byte_rate``)
    is the handler's: it holds for the answer as a whole.
    """

    __slots__ = ("_manager", "_params", "_view")

    gives_way = True
    """Answered early if the client asks something else meanwhile, which would wait for the rest of the time, as it does
    on Apache Kafka: Spark asks for offsets in each micro-batch behind a Fetch for records that it does not need yet."""
    max_idle_s = inf
    """Seconds to wait for bytes before the partitions are checked for other news."""
    hw_unknown = False
    """No response has had the present high watermark yet."""
    answer_now = False
    """The response must not wait for bytes."""

    def __init__(self, manager: ReplicaManager, params: FetchParams, view: FetchView) -> None:
        self._manager = manager
        self._params = params
        self._view = view

    def bound(self, partition: Partition) -> int:
        """The exclusive end of what may be read. A debugging consumer sees what is not committed yet."""
        params = self._params
        if params.replica_id != CONSUMER_REPLICA_ID:
            return partition.log.log_end_offset
        return partition.last_stable_offset if params.committed_only else partition.state.high_watermark

    def on_read(self, partition: Partition, wanted: ViewedPartition, bound: int, info: ReadInfo) -> ReadInfo:
        """A partition without news is left out until its next event.

        Not on a follower, whose log may be begun anew without an event here, nor for a consumer that may be sent on at
        any time. Where the answers of a selector are kept, it is left out as long as they are.
        """
        view, state = self._view, partition.state
        if (
            wanted.fetch_offset == bound
            and wanted.high_watermark == state.high_watermark
            and wanted.log_start_offset == partition.log.log_start_offset
            and state.is_leader
            and self._params.replica_id == CONSUMER_REPLICA_ID
            and (self._params.select is None or self._params.selection is not None)
        ):
            if wanted.key not in view.watched:
                self._manager.purgatory.watch_fetch(view, wanted.key, partition.topic_partition)
            view.has_no_news(wanted.key)
        return info

    def on_unreadable(self) -> None:
        """A partition cannot be read: the others are waited for all the same."""

    def waited_in_vain(self) -> None:
        """Nothing came within `max_idle_s`."""

    def begin_read(self, again: bool) -> None:
        """The partitions are about to be read, perhaps ``again`` for the same request."""

    def count_sent(self, result: FetchResult) -> None:
        """Count the bytes of a response."""
        traffic = self._manager.progress.traffic
        if traffic is not None:
            traffic.sent(result.names, result.results)


class FollowerPolicy:
    """Rules for other replicas: they see the whole log, and their offsets are news of their progress.

    The throttle of replication (KIP-73) is applied and counted here.
    """

    __slots__ = (
        "_again",
        "_hw_delay_s",
        "_manager",
        "_replica_epoch",
        "_replica_id",
        "_throttle",
        "_view",
        "answer_now",
        "hw_unknown",
        "max_idle_s",
    )

    gives_way = False

    def __init__(self, manager: ReplicaManager, params: FetchParams, view: FetchView) -> None:
        self._manager = manager
        self._view = view
        self._replica_id = params.replica_id
        self._replica_epoch = params.replica_epoch
        throttle = manager.throttles.leader
        self._throttle = throttle if throttle.is_active else None
        self._again = False
        self._hw_delay_s = manager.env.budgets.high_watermark_delay
        """Delay of a response only for a new high watermark; doubles when idle."""
        self.max_idle_s = inf
        self.hw_unknown = False
        self.answer_now = False
        """The follower does not know where the log begins: a DeleteRecords may wait for it to delete what comes before.
        Or it has named a partition that this node cannot read yet, and is to ask again."""

    def begin_read(self, again: bool) -> None:
        """The partitions are about to be read, perhaps ``again`` for the same request."""
        self._again = again
        self.answer_now = self.hw_unknown = False
        self.max_idle_s = inf

    def bound(self, partition: Partition) -> int:
        """The log's end. ``ApiError`` for a stranger, or an earlier life of a broker."""
        partition.check_follower(self._replica_id, self._replica_epoch)
        return partition.log.log_end_offset

    def on_read(self, partition: Partition, wanted: ViewedPartition, bound: int, info: ReadInfo) -> ReadInfo:
        """Record the follower's progress, and decide whether it needs a response besides records.

        A read of the same request again is no progress, unless a later request has reported another offset since.
        """
        view, state, log, offset = self._view, partition.state, partition.log, wanted.fetch_offset
        if not self._again or state.progress[self._replica_id].log_end_offset != offset:
            partition.follower_fetched(self._replica_id, offset, wanted.replica_log_start_offset, self._replica_epoch)
        if view.dirty is not None and wanted.key not in view.watched:
            self._manager.purgatory.watch_fetch(view, wanted.key, partition.topic_partition)
        if wanted.log_start_offset != log.log_start_offset and view.dirty is not None:
            self.answer_now = True
        elif state.high_watermark != wanted.high_watermark:
            self.hw_unknown = True
            self.max_idle_s = self._hw_delay_s
        elif state.high_watermark < bound and not state.under_min_isr:
            self.max_idle_s = self._hw_delay_s  # the high watermark is about to move
        elif offset == log.log_end_offset:
            view.has_no_news(wanted.key)
        if self._throttle is not None and self._is_held_back(partition):
            return info._replace(records=b"", readable=0)
        return info

    def on_unreadable(self) -> None:
        """In a session a partition that cannot be read is answered at once; the follower asks for it again."""
        if self._view.dirty is not None:
            self.answer_now = True

    def waited_in_vain(self) -> None:
        """Nothing came within `max_idle_s`: look for news half as often."""
        self._hw_delay_s *= 2

    def _is_held_back(self, partition: Partition) -> bool:
        """Whether the throttle keeps records from the follower (``ReplicaManager.shouldLeaderThrottle``)."""
        assert self._throttle is not None
        return (
            self._replica_id not in partition.state.isr
            and self._throttle.is_throttled(*partition.topic_partition)
            and self._throttle.is_exceeded(self._manager.throttles.now_ms())
        )

    def count_sent(self, result: FetchResult) -> None:
        """Count the bytes that are sent, and those of throttled partitions."""
        traffic = self._manager.progress.traffic
        if traffic is not None:
            traffic.replicated(result.results)
            traffic.reassignment_bytes_out += self._reassigned_bytes(result)
        if self._throttle is None:
            return
        size = 0
        for name, data in zip(result.names, result.results, strict=True):
            if name is not None and self._throttle.is_throttled(name, data.partition_index):
                size += len(data.records)  # type: ignore[arg-type]
        if size:
            self._throttle.record(size, self._manager.throttles.now_ms())

    def _reassigned_bytes(self, result: FetchResult) -> int:
        """The bytes of partitions that are being moved to this follower."""
        topics = self._manager.image.topics
        return sum(
            len(data.records)
            for name, data in zip(result.names, result.results, strict=True)
            if name is not None and data.records and topics.is_adding(name, data.partition_index, self._replica_id)
        )
