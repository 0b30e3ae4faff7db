"""Fetch (key 1): read record batches, waiting for them if the client wishes.

Served: 4 (isolation level, aborted transactions) to 18. 5: log_start_offset; 7: incremental sessions (KIP-227);
9: current_leader_epoch; 11: rack_id, preferred_read_replica; 12: flexible, last_fetched_epoch, diverging_epoch,
current_leader; 13: topic ids (KIP-516); 14: as 13 (tiered storage's error); 15: replica_state; 16: node_endpoints
(KIP-951); 17: replica directory id (KIP-853); 18: high_watermark of the replica (KIP-1166).

Record bytes never enter Python: a partition's records are a file region that the connection sends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.leaders import current_leader
from kbroker.handlers.quorum import ask_quorum
from kbroker.handlers.registration import handler
from kbroker.replication.delayed import DelayedFetch
from kbroker.replication.fetch_session import FetchPlan, FetchSession, PartitionKey, SessionPartition, key_of
from kbroker.replication.follower_state import OffsetOutOfRange, find_divergence
from kbroker.replication.replica_selector import RACK_AWARE_SELECTOR
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

logger = logging.getLogger(__name__)

CONSUMER_REPLICA_ID = -1
STEP_PARTITIONS = 256
"""A request for more gives way to others after so many."""
_ENDLESS = 2**63 - 1
NEWS_SECONDS = 0.05
"""How long a follower that waits for records may not know that the high watermark has moved. Mostly it learns it with
the next records; were it told at once, every acknowledged record would cost a second round trip."""
READ_COMMITTED = 1
MANY_PARTITIONS = 16
"""A consumer's session of so many is looked after by what happens to them: most of the time nothing does."""


@handler(FetchRequest)
async def handle(request: FetchRequest, ctx: RequestContext) -> FetchResponse:
    """On a controller listener the metadata log, from the Raft core (KIP-595); topics on all others."""
    if ctx.connection.is_controller:
        response: FetchResponse = await ask_quorum(request, ctx)
        return response
    return await fetch_topics(request, ctx)


async def fetch_topics(request: FetchRequest, ctx: RequestContext) -> FetchResponse:
    """Read now; if that is less than ``min_bytes``, wait for appends to the requested partitions and read again."""
    version = ctx.header.api_version
    services = ctx.services
    requested = []
    for topic in request.topics:
        name, topic_id = (topic.topic, ZERO_UUID) if version < 13 else ("", Uuid(topic.topic_id))
        for partition in topic.partitions:
            wanted = SessionPartition(PartitionKey(name, topic_id, partition.partition))
            wanted.update_request(partition)
            requested.append(wanted)
            if not len(requested) % STEP_PARTITIONS:
                await trio.lowlevel.checkpoint()
    if len(requested) > 1:  # one that is named again is asked for once, as the last has it (FetchRequest.fetchData)
        requested = list({wanted.key: wanted for wanted in requested}.values())
    forgotten = [
        key_of(topic.topic if version < 13 else "", topic.topic_id if version >= 13 else ZERO_UUID, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    plan = services.fetch_sessions.plan(
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        uses_topic_ids=version >= 13,
        requested=requested,
        forgotten=forgotten,
        now_ms=int(services.env.now() * 1000),
    )
    if plan.error:
        return FetchResponse(error_code=plan.error)
    if plan.session is not None:
        for key in forgotten:
            if key in plan.session.watched:
                services.replica_manager.purgatory.unwatch_session(plan.session, key)

    replica_id, replica_epoch = request.replica_id, -1
    if version >= 15:
        replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    reader = _Reader(request, ctx, plan, replica_id, replica_epoch)
    await reader.read()
    if not reader.satisfied and request.max_wait_ms > 0:
        deadline = services.env.now() + request.max_wait_ms / 1000
        purgatory = services.replica_manager.purgatory
        while not reader.satisfied:
            remaining = deadline - services.env.now()
            if remaining <= 0:
                break
            waiting = DelayedFetch(
                reader.watched, reader.min_bytes - reader.size, reader.read_committed, reader.by_follower
            )
            if reader.missed_bytes >= waiting.missing_bytes:
                await reader.read(again=True)
                continue
            waiting.missing_bytes -= reader.missed_bytes
            purgatory.watch_fetch(waiting)
            if reader.tracked is not None:
                reader.tracked.waiting = waiting
                if reader.by_follower:
                    # That a follower has got so far may have had more appended, by whoever waited for it.
                    waiting.advanced(reader.tracked.missed_bytes)
            try:
                # A consumer that asks for offsets meanwhile would wait for the rest of the time, as it does on Apache
                # Kafka: Spark's do in each micro-batch, with a Fetch under way for records that nobody needs yet.
                gives_way = not reader.by_follower
                await ctx.connection.wait_for(waiting, min(remaining, reader.patience), gives_way=gives_way)
            finally:
                purgatory.unwatch_fetch(waiting)
                if reader.tracked is not None:
                    reader.tracked.waiting = None
            if not waiting.done:
                reader.news_seconds *= 2
            await reader.read(again=True)
            if not waiting.done and (reader.has_news or (gives_way and ctx.connection.is_asked_more)):
                break
    reader.count_throttled()
    return _respond(reader, plan, ctx)


class _Reader:
    """One request's reads. ``results`` runs parallel to ``partitions``: the plan's, or in a session that tracks changes
    those that something has happened to."""

    def __init__(
        self, request: FetchRequest, ctx: RequestContext, plan: FetchPlan, replica_id: int, replica_epoch: int
    ) -> None:
        services = ctx.services
        self.ctx = ctx
        self.manager = services.replica_manager
        self.partitions: Sequence[SessionPartition] = plan.partitions
        self.max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.by_follower = replica_id >= 0
        # Any replica serves a consumer that could be sent to it (KIP-392).
        self.only_leader = self.by_follower or (replica_id == CONSUMER_REPLICA_ID and ctx.header.api_version < 11)
        self.rack = ""
        if replica_id == CONSUMER_REPLICA_ID and services.config.replica_selector_class == RACK_AWARE_SELECTOR:
            self.rack = request.rack_id
        self.patience = inf
        """Seconds to wait for data before what else there is to tell is looked at."""
        self.throttle = self.manager.throttles.leader if self.by_follower else None
        if self.throttle is not None and not self.throttle.is_active:
            self.throttle = None
        self.news_seconds = NEWS_SECONDS
        """So long it may not know this; each time that nothing has come of it, twice as long."""
        self.has_news = False
        """A follower does not know yet how far its leader's records are committed."""
        self.urgent = False
        """It does not know where the log begins: somebody may wait for it to delete what comes before."""
        self.tells_all = plan.full
        self.tracked = plan.session if plan.session is not None and plan.session.dirty is not None else None
        self.read_committed = request.isolation_level == READ_COMMITTED
        if self.tracked is not None:
            self._take_up_session(self.tracked)
        self.storage_error = (
            ErrorCode.KAFKA_STORAGE_ERROR if ctx.header.api_version > 5 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        self.results: list[PartitionData] = []
        self.names: list[str | None] = []
        self.size = 0
        self.watched: list[tuple[str, int]] = []
        self.satisfied = False
        self.missed_bytes = 0
        """What came to partitions while others were still being read."""
        self._find_names()

    def _take_up_session(self, tracked: FetchSession) -> None:
        """What a session knows of its partitions holds for requests of the same kind, and of a broker that registers
        anew nothing does: it may only then come into the ISR (KIP-903)."""
        if self.by_follower:
            is_other = tracked.replica_epoch != self.replica_epoch
        else:
            is_other = bool(self.rack) or tracked.committed_only != self.read_committed
        if is_other:
            tracked.mark_all()
            self.partitions = tracked.to_look_at()
        tracked.committed_only = self.read_committed
        tracked.replica_epoch = self.replica_epoch

    def _find_names(self) -> None:
        if self.ctx.header.api_version >= 13:
            name_of = self.manager.topic_name
            self.names = [name_of(wanted.key.topic_id) for wanted in self.partitions]
        else:
            self.names = [wanted.key.topic for wanted in self.partitions]

    async def read(self, *, again: bool = False) -> None:
        """Read every partition within the limits of the request (``ReplicaManager.readFromLog``).

        ``again``: it is the same request still, so a follower's progress is not news. With many partitions everybody
        else has a turn now and then, and what is appended then is counted.
        """
        purgatory = self.manager.purgatory
        watching: DelayedFetch | None = None
        self.missed_bytes = 0
        try:
            for _ in self._read(again):
                if watching is None:
                    indexes = (wanted.key.partition for wanted in self.partitions)
                    keys = list(zip(self.names, indexes, strict=True))
                    watching = DelayedFetch(keys, _ENDLESS, self.read_committed, self.by_follower)
                    purgatory.watch_fetch(watching)
                    if self.tracked is not None:
                        self.tracked.waiting = watching  # it hears of partitions that are not looked at now
                await trio.lowlevel.checkpoint()
        finally:
            if watching is not None:
                purgatory.unwatch_fetch(watching)
                if self.tracked is not None:
                    self.tracked.waiting = None
                self.missed_bytes = _ENDLESS if watching.done else _ENDLESS - watching.missing_bytes

    def _read(self, again: bool) -> Iterator[None]:
        if self.tracked is not None:
            self.tracked.missed_bytes = 0
        if self.tracked is not None and again:
            self.partitions = self.tracked.to_look_at()
            self._find_names()
        self.has_news = self.urgent = False
        self.patience = inf
        results: list[PartitionData] = []
        watched: list[tuple[str, int]] = []
        limit = self.max_bytes
        size = 0
        failed = False
        exists = self.manager.exists
        gives_way = len(self.partitions) > STEP_PARTITIONS
        for wanted, name in zip(self.partitions, self.names, strict=True):
            if gives_way and not len(results) % STEP_PARTITIONS:
                yield
            index = wanted.key.partition
            if name is None:
                results.append(_error(index, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            try:
                data = self._read_partition(name, wanted, limit, size == 0, again)
            except ApiError as error:
                code = error.code
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not exists(name, index):
                    results.append(_error(index, code))
                    continue
                failed = True
                data = _error(index, self.storage_error if code == ErrorCode.KAFKA_STORAGE_ERROR else code)
            except Exception:
                logger.exception("Fetch from %s-%d at offset %d failed", name, index, wanted.fetch_offset)
                failed = True
                data = _error(index, ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                length = len(data.records)  # type: ignore[arg-type]
                size += length
                limit = max(0, limit - length)
                watched.append((name, index))
                if data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                    failed = True
            results.append(data)
        self.results = results
        self.size = size
        if self.tracked is not None and not self.by_follower:
            # There may be partitions that have nothing to tell, and are waited for.
            waits = watched or len(self.tracked.partitions) > len(self.partitions)
            self.satisfied = failed or not waits or size >= self.min_bytes
        elif self.tracked is not None:
            # It hears of what happens to its partitions by itself, and of one that cannot be read at once.
            self.satisfied = failed or self.urgent or size >= self.min_bytes or len(watched) < len(results)
        else:
            self.watched = watched
            self.satisfied = failed or self.urgent or not watched or size >= self.min_bytes

    def _read_partition(
        self, name: str, wanted: SessionPartition, limit: int, first: bool, again: bool
    ) -> PartitionData:
        partition = self.manager.get_partition(name, wanted.key.partition)
        if wanted.key.topic_id != ZERO_UUID and wanted.key.topic_id != partition.topic_id:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        state = partition.state
        if not state.is_leader and self.only_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.by_follower:
            self.manager.check_follower(partition, self.replica_id, self.replica_epoch)
        log = partition.log
        offset = wanted.fetch_offset
        last_stable_offset = partition.last_stable_offset
        data = PartitionData(
            partition_index=wanted.key.partition,
            last_stable_offset=last_stable_offset,
            preferred_read_replica=-1,
            records=b"",
        )
        if wanted.last_fetched_epoch >= 0:
            try:
                diverging = find_divergence(
                    log.leader_epochs,
                    log.log_start_offset,
                    log.log_end_offset,
                    fetch_offset=offset,
                    last_fetched_epoch=wanted.last_fetched_epoch,
                )
            except OffsetOutOfRange:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE) from None
            if diverging is not None:
                data.high_watermark = partition.high_watermark
                data.log_start_offset = log.log_start_offset
                data.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
                return data
        if self.rack and state.is_leader:
            preferred = self.manager.preferred_read_replica(partition, offset, self.rack)
            if preferred >= 0:
                data.high_watermark = state.high_watermark
                data.log_start_offset = log.log_start_offset
                data.preferred_read_replica = preferred
                return data
        if self.replica_id == CONSUMER_REPLICA_ID:
            bound = last_stable_offset if self.read_committed else state.high_watermark
        else:
            bound = log.log_end_offset
        try:
            info = log.read(offset, min(wanted.partition_max_bytes, limit), max_offset=bound, min_one_message=first)
        except OSError as error:
            self.manager.storage_failed(partition, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if self.by_follower:
            self._on_follower(partition, wanted, bound, again)
            if self.throttle is not None and self._is_held_back(partition):
                info = info._replace(records=b"")
        elif self.tracked is not None:
            self._on_consumer(partition, wanted, bound)
        data.high_watermark = state.high_watermark
        data.log_start_offset = log.log_start_offset
        data.records = info.records
        if self.read_committed:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in (log.aborted_transactions(offset, info) if len(info.records) else ())
            ]
        else:
            data.aborted_transactions = None
        return data

    def _is_held_back(self, partition: Any) -> bool:
        """Whether a follower gets nothing for now (``ReplicaManager.shouldLeaderThrottle``)."""
        assert self.throttle is not None
        return (
            self.replica_id not in partition.state.isr
            and self.throttle.is_throttled(*partition.topic_partition)
            and self.throttle.is_exceeded(self.manager.throttles.now_ms())
        )

    def count_throttled(self) -> None:
        """Count what a follower is sent of throttled partitions."""
        if self.throttle is None:
            return
        size = 0
        for name, data in zip(self.names, self.results, strict=True):
            if name is not None and self.throttle.is_throttled(name, data.partition_index):
                size += len(data.records)  # type: ignore[arg-type]
        if size:
            self.throttle.record(size, self.manager.throttles.now_ms())

    def _on_consumer(self, partition: Any, wanted: SessionPartition, bound: int) -> None:
        """A partition that has nothing to tell is not looked at again before something happens to it.

        A follower's log may be begun anew, and a replica nearer to the consumer come in sync, without a word here.
        """
        tracked, state = self.tracked, partition.state
        assert tracked is not None and tracked.dirty is not None
        if (
            wanted.fetch_offset == bound
            and wanted.high_watermark == state.high_watermark
            and wanted.log_start_offset == partition.log.log_start_offset
            and state.is_leader
            and self.replica_id == CONSUMER_REPLICA_ID
            and not self.rack
        ):
            if wanted.key not in tracked.watched:
                self.manager.purgatory.watch_session(partition.topic_partition, tracked, wanted.key)
            tracked.dirty.pop(wanted.key, None)

    def _on_follower(self, partition: Any, wanted: SessionPartition, bound: int, again: bool) -> None:
        """Note how far a follower is, and what there is to tell it besides records."""
        state, log, offset = partition.state, partition.log, wanted.fetch_offset
        if not again or state.progress[self.replica_id].log_end_offset != offset:
            self.manager.follower_fetched(
                partition, self.replica_id, offset, wanted.replica_log_start_offset, self.replica_epoch
            )
        if self.tracked is not None and wanted.key not in self.tracked.watched:
            self.manager.purgatory.watch_session(partition.topic_partition, self.tracked, wanted.key)
        if wanted.log_start_offset != log.log_start_offset and not self.tells_all:
            self.urgent = True
        elif state.high_watermark != wanted.high_watermark:
            self.has_news = True
            self.patience = self.news_seconds
        elif state.high_watermark < bound and not state.under_min_isr:
            self.patience = self.news_seconds  # and this is going to be news
        elif self.tracked is not None and self.tracked.dirty is not None and offset == log.log_end_offset:
            self.tracked.dirty.pop(wanted.key, None)  # there is nothing to tell


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


def _respond(reader: _Reader, plan: FetchPlan, ctx: RequestContext) -> FetchResponse:
    """Shape the response: everything for a full fetch, the news for an incremental one."""
    version = ctx.header.api_version
    session = plan.session
    response = FetchResponse()
    endpoints: dict[int, NodeEndpoint] = {}
    topics: list[FetchableTopicResponse] = []
    last: FetchableTopicResponse | None = None
    # What the cached state of a new session is to hold must be remembered too, so the session comes first.
    if plan.may_create:
        session = ctx.services.fetch_sessions.maybe_create(
            plan.partitions,
            replica_id=max(reader.replica_id, -1),
            uses_topic_ids=version >= 13,
            now_ms=int(ctx.services.env.now() * 1000),
        )
        if session is not None and (session.privileged or session.size >= MANY_PARTITIONS):
            session.track_changes(ctx.services.replica_manager.purgatory.unwatch_session)
    for wanted, name, data in zip(reader.partitions, reader.names, reader.results, strict=True):
        if session is not None:
            has_records = len(data.records) > 0  # type: ignore[arg-type]
            news = wanted.changed(data, has_records, update=True)
            if not plan.full:
                if not news:
                    continue
                if has_records and wanted.key in session.partitions:
                    session.partitions.move_to_end(wanted.key)
                    if session.dirty is not None:
                        session.dirty.pop(wanted.key, None)
                        session.mark(wanted.key)
        if version >= 16 and data.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            leader = current_leader(ctx, name or "", data.partition_index)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
            if leader.host is not None:
                endpoints[leader.leader_id] = NodeEndpoint(
                    node_id=leader.leader_id, host=leader.host, port=leader.port, rack=leader.rack
                )
        key: Any = wanted.key
        if last is None or last.topic != key.topic or last.topic_id != key.topic_id:
            last = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[])
            topics.append(last)
        last.partitions.append(data)
    response.responses = topics
    if endpoints:
        response.node_endpoints = list(endpoints.values())
    if session is not None:
        response.session_id = session.session_id
    return response
