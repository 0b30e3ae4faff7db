"""Produce (key 0): append record batches.

Served: 3 (record batch v2) to 13 (topics by id). 5: log_start_offset; 8: record_errors, error_message;
9: flexible; 10: current_leader and node_endpoints (KIP-951); 11: as 10; 12: transactions v2 (KIP-890); 13: topic ids
(KIP-516).

Advertised from 0, as Apache Kafka does on a broker's listeners (KAFKA-18659): librdkafka takes a broker without
Produce 0 for one without the features it needs. A request below 3 is nevertheless refused.

A request that would keep everybody waiting, by the number of its batches or by what it takes to judge their records, is
appended in turns with everything else, and one whose transaction is to be looked at elsewhere when that is done; later
ones of the same connection come after it (``node.serving.work_queue``).

This is the hottest path of the node: no task, scope or timer per request, and one pass over the request. In a crowded
round of the poller the small batches of all requests are gathered, and answered when they are written at its end.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.authorization import may, may_each
from kbroker.handlers.context import CloseConnection, RequestContext
from kbroker.handlers.produce_appends import Appends, set_from
from kbroker.handlers.registration import handler
from kbroker.handlers.transactional_produce import (
    Response,
    Steps,
    Verified,
    all_refused,
    is_transactional,
    verified_first,
)
from kbroker.log.record_validation import TakesLong, examine
from kbroker.runtime.later import Later
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceResponse

if TYPE_CHECKING:
    from kbroker.handlers.authorization import May
    from kbroker.handlers.services.partitions import Partition
    from kbroker.runtime.round import Round

logger = logging.getLogger(__name__)

STEP_BATCHES = 256
STEP_SECONDS = 0.005
"""A request gives way to others after this many batches, or this much time."""

_BATCHES_A_LOOK = 4
"""Batches that are appended between two looks at the clock."""

_PART_BYTES = 256
"""About how many bytes a partition's part of a request takes besides its records."""

_SHARED_BUFFER = 64 * 1024
"""A connection's buffer of at most this size is not one request's alone."""


@handler(ProduceRequest)
def handle(request: ProduceRequest, ctx: RequestContext) -> Response:
    """Append each partition's batch; the answer waits for replication only if acks=all needs more than this node.

    That happens at once, if it neither has to wait nor keeps others waiting for long, and after all earlier requests of
    the connection.
    """
    may_write = None
    if ctx.services.authorizer is not None:
        may_write = may_each(ctx, AclOperation.WRITE, ResourceType.TOPIC)
    is_first = ctx.connection.peer not in ctx.services.produce_queue.waiting
    if not _may_write_in_transaction(request, ctx):
        steps = all_refused(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif request.transactional_id is not None:
        steps = verified_first(
            request, ctx, may_write, lambda verified: _steps(request, ctx, verified, None, may_write)
        )
    else:
        # With acks=0 nothing is gathered: a failed write must end the connection after the replies that are owed, and
        # what the client asks next on the connection must find the batch.
        steps = _steps(request, ctx, None, ctx.round if is_first and request.acks else None, may_write)
    step = None
    if is_first:
        try:
            step = next(steps)
        except StopIteration as end:
            response: Response = end.value
            return response
    return _queue(request, ctx, steps, step)


def _may_write_in_transaction(request: ProduceRequest, ctx: RequestContext) -> bool:
    """Whether the batches may be those of a transaction, if there is one that is: with its id, and the permission."""
    transactional_id = request.transactional_id
    if transactional_id is not None and ctx.services.authorizer is None:
        return True
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None and is_transactional(data.records):
                return transactional_id is not None and may(
                    ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
                )
    return True


def _queue(request: ProduceRequest, ctx: RequestContext, steps: Steps[Response], step: Any) -> Response:
    delayed: Later[ProduceResponse | None] = Later()
    size, needs_answer = _held_bytes(request), request.acks != 0
    if not ctx.services.produce_queue.add(
        ctx.connection, steps, step, size, lambda response: set_from(delayed, response), needs_answer=needs_answer
    ):
        raise CloseConnection("too many Produce requests wait already")
    return delayed if needs_answer else None


def _held_bytes(request: ProduceRequest) -> int:
    """Bytes that the request keeps in memory: its parts, and the buffers that its records are views of.

    A buffer counts whole, with bytes that follow the request in its frame, say.
    """
    size = 0
    buffers: dict[int, int] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            size += _PART_BYTES + len(records or b"")
            if isinstance(records, memoryview):
                buffers[id(records.obj)] = memoryview(records.obj).nbytes
    return max(size, sum(length for length in buffers.values() if length > _SHARED_BUFFER))


def _steps(
    request: ProduceRequest,
    ctx: RequestContext,
    verified: Verified | None,
    round: Round | None,
    may_write: May | None,
) -> Steps[Response]:
    """Append each partition's batch; a step has many small ones, or a part of what it takes to look at a long one.

    The first step is in ``round``, if there is one: its small batches are gathered.
    """
    appends = Appends(request, ctx, verified, round, may_write)
    by_id = ctx.header.api_version >= 13
    manager, now, connection = ctx.services.replica_manager, ctx.services.env.now, ctx.connection
    now_ms = ctx.services.env.wall_clock_ms()
    topics = []
    count = 0
    until = 0.0
    for topic in request.topic_data:
        name = manager.topic_name(topic.topic_id) if by_id else topic.name
        answers = []
        for data in topic.partition_data:
            if count:  # not before the first: most requests have one
                if count == 1:
                    until = now() + STEP_SECONDS
                elif count >= STEP_BATCHES or (not count % _BATCHES_A_LOOK and now() >= until):
                    count = 0
                    appends.leave_round()
                    yield None
                    if by_id:  # another topic may have the name by now
                        name = manager.topic_name(topic.topic_id)
            count += 1
            partition: Partition | None = None
            try:
                partition = appends.partition_for(name, data)
                if connection.refused_batches:
                    appends.check_turn(connection.refused_batches, topic, data, partition)
                records: Any = data.records
                if appends.round is not None:
                    gathered = appends.gather(data.index, partition, records, now_ms, appends.round)
                    if gathered is not None:
                        answers.append(gathered)
                        continue
                guard = None if verified is None else appends.guard(name, data.index)
                while True:
                    try:
                        info = partition.append(records, request.acks, now_ms, guard)
                        break
                    except TakesLong:
                        appends.leave_round()
                        records = yield from examine(
                            memoryview(records), now_ms, partition.log.config, partition.topic_partition
                        )
                        if by_id:
                            name = manager.topic_name(topic.topic_id)  # for the partitions behind it, too
                            if name is None:
                                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID) from None
                        partition = manager.get_partition(name or partition.topic_partition.topic, data.index)
                answers.append(appends.appended(data.index, partition, info))
            except ApiError as error:
                answers.append(appends.refused(name, topic, data, error, partition))
            except Exception:
                logger.exception("Produce to %s-%d failed", name, data.index)
                failure = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
                answers.append(appends.refused(name, topic, data, failure, partition))
        if answers:  # as in Kafka, whose answers are by partition
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    return appends.response(topics)
