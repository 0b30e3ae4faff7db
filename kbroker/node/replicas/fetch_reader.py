"""Reads the partitions of Fetch requests, and waits until there is enough (``ReplicaManager.fetchMessages``).

``node.replicas.fetch_policies`` says how far a consumer or a follower may see, what counts as news, and how much is
held back. Record bytes never enter Python: a partition's records are a file region that the connection sends.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from kbroker.cores.replication.follower_state import OffsetOutOfRange, find_divergence
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.replicas.fetch_policies import ConsumerPolicy, FollowerPolicy
from kbroker.types import ZERO_UUID
from kbroker.wire.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.cores.replication.fetch_params import FetchParams, FetchResult
    from kbroker.cores.replication.fetch_view import FetchView, ViewedPartition
    from kbroker.handlers.services.connection import Connection
    from kbroker.log.partition_log import PartitionLog
    from kbroker.node.replicas.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class FetchReader:
    """Serves the Fetch requests of a node."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    async def fetch(self, params: FetchParams, view: FetchView, connection: Connection) -> FetchResult:
        """Read the partitions of a view; if that is less than ``min_bytes``, wait for events and read again.

        A partition's error is in its result. ``ConnectionLost`` when the client goes away meanwhile.
        """
        view.begin_request(
            params.min_bytes,
            committed_only=params.committed_only,
            replica_epoch=params.replica_epoch,
            may_move=params.select is not None and params.selection is None,
            reader=params.reader if params.selection is None else (params.reader, params.selection),
        )
        read = _Read(self._manager, params, view)
        try:
            if not read.at_once():
                await read.in_turns()
            if not read.is_satisfied and params.max_wait_ms > 0:
                await self._wait(params, read, connection)
        finally:
            view.in_request = False
            if view.watched and not view.stays_watched:
                self._manager.purgatory.unwatch_fetch(view)
        read.policy.count_sent(read)
        return read

    async def _wait(self, params: FetchParams, read: _Read, connection: Connection) -> None:
        view, policy, now = read.view, read.policy, self._manager.env.now
        deadline = now() + params.max_wait_ms / 1000
        while not read.is_satisfied:
            remaining = deadline - now()
            if remaining <= 0:
                return
            if view.is_due:  # by events of partitions that had been read already
                if not read.at_once(again=True):
                    await read.in_turns()
                continue
            read.watch()
            idle = min(remaining, policy.max_idle_s)
            rules_changed = await connection.wait_for(view, idle, gives_way=policy.gives_way)
            if connection.session_ended:
                return  # with what was read before
            woken = view.done
            if not woken:
                policy.waited_in_vain()
            if rules_changed:
                view.look_at_all()
            if not read.at_once(again=True):
                await read.in_turns()
            if rules_changed:
                return  # whoever may not read any more is told so now
            if not woken and (policy.hw_unknown or (policy.gives_way and connection.has_pipelined_request)):
                return


class _Read:
    """The reading of one request.

    ``results[i]`` answers ``partitions[i]``, whose topic is ``names[i]``. A view that tracks changes lists only
    partitions that something has happened to.
    """

    __slots__ = (
        "_failed",
        "_limit",
        "_manager",
        "_observes",
        "_params",
        "_read_count",
        "_size",
        "is_satisfied",
        "names",
        "partitions",
        "policy",
        "results",
        "view",
    )
    partitions: list[ViewedPartition]
    names: list[str | None]
    results: list[PartitionData]
    is_satisfied: bool
    """The response is due: it has ``min_bytes``, an error, or news that must not wait."""

    def __init__(self, manager: ReplicaManager, params: FetchParams, view: FetchView) -> None:
        self.view = view
        self.policy: ConsumerPolicy | FollowerPolicy = (
            FollowerPolicy(manager, params, view) if params.replica_id >= 0 else ConsumerPolicy(manager, params, view)
        )
        self._manager = manager
        self._params = params
        self._observes = view.dirty is not None or params.replica_id >= 0

    def at_once(self, again: bool = False) -> bool:
        """Read every partition within the limits of the request (``ReplicaManager.readFromLog``), if they are few.

        ``again``: for a request that has read them before. False if they are many: `in_turns` is to read them.
        """
        view = self.view
        partitions = view.begin_read()
        if not again or view.dirty is not None:
            self.partitions = partitions
            if self._params.uses_topic_ids:
                self.names = list(map(self._name_of, partitions))
            else:
                self.names = [wanted.key.topic for wanted in partitions]
        if self._observes:
            self.policy.begin_read(again)
        self.results = []
        self._limit = self._params.max_bytes
        self._size = self._read_count = 0
        self._failed = False
        if len(partitions) > self._manager.env.budgets.fetch_turn_partitions:
            return False
        self._read_some(partitions, self.names)
        return True

    def _name_of(self, wanted: ViewedPartition) -> str | None:
        if wanted.name is None:
            wanted.name = self._manager.topic_name(wanted.key.topic_id)
        return wanted.name

    async def in_turns(self) -> None:
        """Read many partitions, between which other requests have their turn. They are watched meanwhile."""
        self.watch()
        step = self._manager.env.budgets.fetch_turn_partitions
        for start in range(0, len(self.partitions), step):
            await trio.lowlevel.checkpoint()
            end = start + step
            self._read_some(self.partitions[start:end], self.names[start:end])

    def watch(self) -> None:
        """Have the events of the partitions end a wait; not of those that the reader may know nothing of."""
        view, watch, may_read = self.view, self._manager.purgatory.watch_fetch, self._params.may_read
        exists = self._manager.topic_name if self._params.uses_topic_ids else None
        for wanted, name in zip(self.partitions, self.names, strict=True):
            if name is None or wanted.key in view.watched or (may_read is not None and not may_read(name)):
                continue
            if exists is None or exists(wanted.key.topic_id) is not None:  # else the name may be a successor's
                watch(view, wanted.key, (name, wanted.key.partition))

    def _read_some(self, partitions: Sequence[ViewedPartition], names: Sequence[str | None]) -> None:
        results, policy, exists = self.results, self.policy, self._manager.exists
        may_read = self._params.may_read
        for wanted, name in zip(partitions, names, strict=True):
            index = wanted.key.partition
            if may_read is not None and not may_read(name):
                refusal = _error(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                refusal.aborted_transactions = []  # as in Kafka, which has not looked whether there are some
                results.append(refusal)
                policy.on_unreadable()
                continue
            if name is None:
                results.append(_error(index, ErrorCode.UNKNOWN_TOPIC_ID))
                policy.on_unreadable()
                continue
            try:
                data = self._read_partition(name, wanted)
            except ApiError as error:
                data = _error(index, error.code)
                policy.on_unreadable()
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or exists(name, index):
                    self._failed = True
            except Exception:
                logger.exception("Fetch from %s-%d at offset %d failed", name, index, wanted.fetch_offset)
                data = _error(index, ErrorCode.UNKNOWN_SERVER_ERROR)
                self._failed = True
            else:
                size = len(data.records)  # type: ignore[arg-type]
                self._size += size
                self._limit = max(0, self._limit - size)
                self._read_count += 1
                if data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                    self._failed = True
            results.append(data)
        view = self.view
        self.is_satisfied = (
            view.readable_bytes >= view.min_bytes
            or self._failed
            or policy.answer_now
            # A tracking view may have partitions that were not read, as they have no news: those are waited for.
            or (not self._read_count and len(self.partitions) == len(view.partitions))
        )

    def _read_partition(self, name: str, wanted: ViewedPartition) -> PartitionData:
        partition = self._manager.get_partition(name, wanted.key.partition)
        if wanted.key.topic_id != ZERO_UUID and wanted.key.topic_id != partition.topic_id:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        state, params, policy = partition.state, self._params, self.policy
        if params.only_leader and not state.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        bound = policy.bound(partition)
        log, offset = partition.log, wanted.fetch_offset
        if not state.is_leader and log.is_damaged:  # the leader may have what would be passed here
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        data = PartitionData(
            partition_index=wanted.key.partition,
            last_stable_offset=partition.last_stable_offset,
            preferred_read_replica=-1,
            records=b"",
        )
        if wanted.last_fetched_epoch >= 0:
            diverging = _divergence(log, wanted)
            if diverging is not None:
                data.high_watermark = partition.high_watermark
                data.log_start_offset = log.log_start_offset
                data.diverging_epoch = diverging
                return data
        if params.select is not None and state.is_leader:
            preferred = partition.preferred_read_replica(offset, params.select, params.listener)
            if preferred >= 0:
                data.high_watermark = state.high_watermark
                data.log_start_offset = log.log_start_offset
                data.preferred_read_replica = preferred
                return data
        limit = min(wanted.partition_max_bytes, self._limit)
        try:
            info = log.read(offset, limit, max_offset=bound, min_one_message=self._size == 0)
        except OSError as error:
            partition.storage_failed(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if self._observes:
            info = policy.on_read(partition, wanted, bound, info)
        data.high_watermark = state.high_watermark
        data.log_start_offset = log.log_start_offset
        data.records = info.records
        if size := len(info.records):
            partition.bytes_out += size
            partition.requests += 1
        self.view.readable_bytes += info.readable
        if params.committed_only:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in (log.aborted_transactions(offset, info) if len(info.records) else ())
            ]
        else:
            data.aborted_transactions = None
        return data


def _divergence(log: PartitionLog, wanted: ViewedPartition) -> EpochEndOffset | None:
    """The point where the reader's log parts from this one (KIP-320); None if it continues it."""
    try:
        diverging = find_divergence(
            log.leader_epochs,
            log.log_start_offset,
            log.log_end_offset,
            fetch_offset=wanted.fetch_offset,
            last_fetched_epoch=wanted.last_fetched_epoch,
        )
    except OffsetOutOfRange:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE) from None
    return None if diverging is None else EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)


def _error(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=b"",
    )
