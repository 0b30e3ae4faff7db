"""Produce (key 0): append record batches.

Served: 3 (record batch v2) to 13 (topics by id). 5: log_start_offset; 8: record_errors, error_message;
9: flexible; 10: current_leader and node_endpoints (KIP-951); 11: as 10; 12: transactions v2 (KIP-890); 13: topic ids
(KIP-516).

Advertised from 0, as Apache Kafka does on a broker's listeners (KAFKA-18659): librdkafka takes a broker without
Produce 0 for one without the features it needs. A request below 3 is nevertheless refused.

A request that would keep everybody waiting, by the number of its batches or by what it takes to judge their records, is
appended in turns with everything else (``node.long_produces``); later ones of the same connection wait for it.

This is the hottest path of the node: no task, scope or timer per request, and one pass over the request. Requests that
repeat the last one of their connection take an even shorter way (``repeated_produce``).
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import CloseConnection, DelayedResponse, RequestContext
from kbroker.handlers.leaders import current_leader
from kbroker.handlers.registration import handler
from kbroker.handlers.repeated_produce import is_transactional, learn
from kbroker.handlers.transactional_produce import Unverified, Verified, handle_transactional
from kbroker.log.record_validation import Steps, TakesLong, examine
from kbroker.log.validation import check_produce_version
from kbroker.replication.delayed import Appended
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from kbroker.log.partition_log import AppendInfo

logger = logging.getLogger(__name__)

STEP_BATCHES = 256
STEP_SECONDS = 0.005
"""A request gives way to others after so many batches, or so much time."""

_PART_BYTES = 256
"""About what a partition's part of a request takes in memory besides its records."""

_SHARED_BUFFER = 64 * 1024
"""A connection's buffer of at most this size is not one request's alone."""

_ADMIN_CLIENT = "__admin_client"

_REFUSED_BY_PRODUCER_STATE = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
)
"""Told with the log start offset, as all that a log finds wrong with a batch itself."""


@handler(ProduceRequest, learn=learn)
def handle(request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | DelayedResponse | None:
    """Append each partition's batch; the answer waits for replication only if acks=all needs more than this node."""
    if request.transactional_id is not None:
        return handle_transactional(request, ctx, _append)
    return _append(request, ctx)


_Response = ProduceResponse | DelayedResponse | None


def _append(request: ProduceRequest, ctx: RequestContext, verified: Verified | None = None) -> _Response:
    """At once, if that does not keep others waiting for long, and after all earlier requests of the connection."""
    steps = _steps(request, ctx, verified)
    long_produces = ctx.services.long_produces
    step = None
    if ctx.connection.peer not in long_produces.waiting:
        try:
            step = next(steps)
        except StopIteration as end:
            response: _Response = end.value
            return response
    return _append_in_turns(request, ctx, steps, step)


def _append_in_turns(request: ProduceRequest, ctx: RequestContext, steps: Steps[_Response], step: Any) -> _Response:
    delayed = DelayedResponse()

    def on_done(response: _Response) -> None:
        if isinstance(response, DelayedResponse):
            response.on_complete(lambda: delayed.complete(response.response))
        else:
            delayed.complete(response)

    size = _held_bytes(request)
    if not ctx.services.long_produces.add(ctx.connection, steps, step, size, on_done, needs_answer=request.acks != 0):
        raise CloseConnection("too much is waiting already that takes long to append")
    return None if request.acks == 0 else delayed


def _held_bytes(request: ProduceRequest) -> int:
    """What the request keeps in memory: its parts, and the buffers of which its records are views, with whatever else
    is in them (what follows the request in its frame, say)."""
    size = 0
    buffers: dict[int, int] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            size += _PART_BYTES + len(records or b"")
            if isinstance(records, memoryview):
                buffers[id(records.obj)] = memoryview(records.obj).nbytes
    return max(size, sum(length for length in buffers.values() if length > _SHARED_BUFFER))


def _steps(request: ProduceRequest, ctx: RequestContext, verified: Verified | None) -> Steps[_Response]:
    """Append each partition's batch; a step has many small ones, or a part of what it takes to look at a long one."""
    appends = _Appends(request, ctx, verified)
    by_id = ctx.header.api_version >= 13
    manager = ctx.services.replica_manager
    now_ms = ctx.services.env.wall_clock_ms()
    topics = []
    count = 0
    until = 0.0
    for topic in request.topic_data:
        name = manager.topic_name(topic.topic_id) if by_id else topic.name
        answers = []
        for data in topic.partition_data:
            if count:  # not before the first: most requests have one
                seconds = ctx.services.env.now()
                if count == 1:
                    until = seconds + STEP_SECONDS
                elif seconds >= until or count >= STEP_BATCHES:
                    count = 0
                    yield None
                    if by_id:  # another topic may have the name by now
                        name = manager.topic_name(topic.topic_id)
            count += 1
            try:
                partition = appends.partition_for(name, data)
                records: Any = data.records
                guard = None if verified is None else appends.guard(name, data.index)
                while True:
                    try:
                        info = partition.append(records, request.acks, now_ms, guard)
                        break
                    except TakesLong:
                        records = yield from examine(
                            memoryview(records), now_ms, partition.log.config, partition.topic_partition
                        )
                        if by_id:
                            name = manager.topic_name(topic.topic_id)  # for the partitions behind it, too
                            if name is None:
                                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID) from None
                        partition = manager.get_partition(name, data.index)
                answers.append(appends.appended(data.index, partition, info))
            except ApiError as error:
                answers.append(appends.refused(name, data.index, error))
            except Exception:
                logger.exception("Produce to %s-%d failed", name, data.index)
                answers.append(appends.refused(name, data.index, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)))
        if answers:  # as in Kafka, whose answers are by partition
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    return appends.response(topics)


_Unreplicated = tuple[PartitionProduceResponse, Appended]
"""The answer for a batch that is in the log of this node, and what is to be replicated before it holds."""


class _Appends:
    """What one request may write to, and what has to be waited for once its batches are in their logs."""

    __slots__ = ("_ctx", "_failed", "_manager", "_request", "_unflushed", "_unreplicated", "_verified")

    def __init__(self, request: ProduceRequest, ctx: RequestContext, verified: Verified | None) -> None:
        self._request = request
        self._ctx = ctx
        self._manager = ctx.services.replica_manager
        self._verified = verified
        self._failed = False
        self._unreplicated: list[_Unreplicated] = []
        self._unflushed: list[tuple[PartitionProduceResponse, Any]] | None = None

    def partition_for(self, name: str | None, data: PartitionProduceData) -> Any:
        """The partition that takes the records, for all that can be said before they are looked at; or ``ApiError``."""
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._manager.partitions.get((name, data.index))
        if partition is None:
            partition = self._manager.get_partition(name, data.index)
        request, header = self._request, self._ctx.header
        _check_records(data.records, header.api_version, request.transactional_id)
        if request.acks not in (-1, 1, 0):
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
        if partition.is_internal and header.client_id != _ADMIN_CLIENT:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
        return partition

    def guard(self, name: str | None, index: int) -> Any:
        """What the coordinator said of the partition's transaction; raises what it refused with."""
        guard = self._verified.get((name, index)) if self._verified is not None and name is not None else None
        if isinstance(guard, ApiError):
            raise guard
        return guard

    def appended(self, index: int, partition: Any, info: AppendInfo) -> PartitionProduceResponse:
        """The answer for what is in the log; what it has to wait for is kept for ``response``."""
        answer = PartitionProduceResponse(
            index=index,
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )
        if partition.must_flush:
            if self._unflushed is None:
                self._unflushed = []
            self._unflushed.append((answer, partition))
        if self._request.acks == -1 and partition.state.high_watermark <= info.last_offset:
            appended = Appended(partition, partition.state.leader_epoch, info.last_offset + 1)
            self._unreplicated.append((answer, appended))
        return answer

    def refused(self, name: str | None, index: int, error: ApiError) -> PartitionProduceResponse:
        """The answer for what is not in the log."""
        self._failed = True
        return _error_answer(index, error, self._manager, name)

    def response(self, topics: list[TopicProduceResponse]) -> _Response:
        """The answer to the request: now, after what it waits for, or none for acks=0."""
        request, ctx = self._request, self._ctx
        if request.acks == 0:
            if self._failed:
                # The client expects no answer: closing is the only way to tell it (KafkaApis.handleProduceRequest).
                raise CloseConnection(f"error in a produce request with acks=0: {_summary(topics)}")
            return None
        response = ProduceResponse(responses=topics)
        if self._failed and ctx.header.api_version >= 10:
            _add_leaders(response, ctx)
        if self._unflushed is not None:
            return _flush_first(response, self._unflushed, self._unreplicated, request.timeout_ms, ctx)
        if self._unreplicated:
            return _delay(DelayedResponse(), response, self._unreplicated, request.timeout_ms, ctx)
        return response


def _flush_first(
    response: ProduceResponse,
    unflushed: list[tuple[PartitionProduceResponse, Any]],
    unreplicated: Sequence[_Unreplicated],
    timeout_ms: int,
    ctx: RequestContext,
) -> DelayedResponse:
    """Make durable what ``flush.messages`` asks for, and answer (or wait for replication) after that."""
    delayed = DelayedResponse()
    manager = ctx.services.replica_manager

    async def flush() -> None:
        for answer, partition in unflushed:
            try:
                await manager.flush(partition)
            except ApiError as error:
                answer.error_code = error.code
                answer.base_offset = -1
        if unreplicated:
            _delay(delayed, response, unreplicated, timeout_ms, ctx)
        else:
            delayed.complete(response)

    manager.start_soon(flush)
    return delayed


def _check_records(records: Any, version: int, transactional_id: str | None) -> None:
    """What the version forbids, and a transaction without its id; the log judges all else."""
    if records is None:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} must have at least one record batch per partition",
        )
    if version < 7:
        check_produce_version(records, version)
    if transactional_id is None and is_transactional(records):
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _error_answer(index: int, error: ApiError, manager: Any, name: str | None) -> PartitionProduceResponse:
    record_errors = getattr(error, "record_errors", ())
    log_start_offset = -1
    unverified = isinstance(error, Unverified)
    if record_errors or (error.code in _REFUSED_BY_PRODUCER_STATE and not unverified):
        partition = manager.partitions.get((name, index))
        if partition is not None and partition.has_log and not partition.offline:
            log_start_offset = partition.log.log_start_offset
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in record_errors
        ],
        # For what ``ReplicaManager.appendRecordsToLeader`` finds wrong in records, not for what the shape of the
        # request forbids; and for a batch whose transaction could not be verified.
        error_message=error.message if record_errors or unverified else None,
    )


def _add_leaders(response: ProduceResponse, ctx: RequestContext) -> None:
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            name = topic.name
            if topic.topic_id != ZERO_UUID:
                name = ctx.services.replica_manager.topic_name(Uuid(topic.topic_id)) or name
            leader = current_leader(ctx, name, partition.index)
            partition.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
            if leader.host is not None:
                endpoints[leader.leader_id] = NodeEndpoint(
                    node_id=leader.leader_id, host=leader.host, port=leader.port, rack=leader.rack
                )
    response.node_endpoints = list(endpoints.values())


def _delay(
    delayed: DelayedResponse,
    response: ProduceResponse,
    unreplicated: Sequence[_Unreplicated],
    timeout_ms: int,
    ctx: RequestContext,
) -> DelayedResponse:
    """Answer once every appended partition is replicated, or with errors for those that are not in time, or not at all:
    others have had turns since the append, if the request is long or something was flushed."""

    def finish(results: dict[Hashable, Any]) -> None:
        failed = False
        for answer, appended in unreplicated:
            error = results[appended.partition.topic_partition]
            if error is not None:
                failed = True
                answer.error_code = error
        if failed and ctx.header.api_version >= 10:
            _add_leaders(response, ctx)  # whoever leads by now, so that the client need not ask
        delayed.complete(response)

    appends = [appended for _, appended in unreplicated]
    ctx.services.replica_manager.watch_produce(appends, finish, timeout_ms)
    return delayed


def _summary(topics: list[TopicProduceResponse]) -> str:
    return ", ".join(
        f"{topic.name}-{partition.index}: {ErrorCode(partition.error_code).name}"
        for topic in topics
        for partition in topic.partition_responses
        if partition.error_code
    )
