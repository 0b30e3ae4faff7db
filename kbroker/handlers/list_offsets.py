"""ListOffsets (key 2): the earliest and latest offsets, and offsets by timestamp.

Served: 1 to 11. 2: isolation level; 4: leader epochs; 6: flexible; 7: max timestamp; 8: earliest local; 9: last
tiered; 10: timeout_ms; 11: earliest pending upload. There is no tiered storage here, and the answers are those of
Apache Kafka without it: earliest local is the earliest, and last tiered and earliest pending upload are -1.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterable, Iterator

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_each, prefetch_permissions
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.log.segments.timestamp_lookup import TimestampOffset
from kbroker.runtime.later import Later
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

logger = logging.getLogger(__name__)

CONSUMER = -1
DEBUGGING_REPLICA_ID = -2
"""Asks any replica, not only the leader."""

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

_LOOKUP_BYTES = 640
"""About how many bytes a look-up by timestamp keeps while it waits."""

MOST_AT_ONCE = 1000
"""Known offsets that one request is told without giving way to others."""


async def _prefetch_permissions(request: ListOffsetsRequest, ctx: RequestContext) -> None:
    await prefetch_permissions(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, (topic.name for topic in request.topics))


@handler(ListOffsetsRequest, prefetch_permissions=_prefetch_permissions)
def handle(request: ListOffsetsRequest, ctx: RequestContext) -> ListOffsetsResponse | Later[ListOffsetsResponse]:
    """Look each partition up; a partition named twice is refused, as in Kafka.

    Offsets that are known are told at once, unless very many are asked for. Look-ups by timestamp read batches: they
    take turns with the rest of the node's work.
    """
    counts = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
    reads = []
    topics, denied = [], []
    may_see = None
    if ctx.services.authorizer is not None:
        may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC)
    for topic in request.topics:
        answers = []
        if may_see is not None and not may_see(topic.name):
            denied.append(_denied(topic))  # after the others, as in Kafka
            continue
        for partition in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
            answers.append(answer)
            if counts[topic.name, partition.partition_index] > 1:
                answer.error_code = ErrorCode.INVALID_REQUEST
            elif partition.timestamp >= 0 or partition.timestamp == MAX_TIMESTAMP or len(counts) > MOST_AT_ONCE:
                reads.append((topic.name, partition, answer))
            else:
                for _ in _fill_in(answer, topic.name, partition, request, ctx):
                    pass  # nothing is to be read
        if answers:  # as in Kafka, whose answers are by partition
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    response = ListOffsetsResponse(topics=topics + denied if denied else topics)
    if not reads:
        return response

    delayed: Later[ListOffsetsResponse] = Later()

    def steps() -> Generator[None, None, None]:
        for name, partition, answer in reads:
            yield from _fill_in(answer, name, partition, request, ctx)
            yield
        delayed.set(response)

    size = len(reads) * _LOOKUP_BYTES
    if ctx.services.timestamp_lookups.add(ctx.connection, steps(), None, size):
        return delayed
    busy = _not_available(ctx.header.api_version).code  # clients ask again after a while
    for _, _, answer in reads:
        answer.error_code = busy
    return response


def _denied(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _fill_in(
    answer: ListOffsetsPartitionResponse,
    topic: str,
    wanted: ListOffsetsPartition,
    request: ListOffsetsRequest,
    ctx: RequestContext,
) -> Iterator[None]:
    """Put what there is to tell, or why not, into ``answer``, in steps."""
    try:
        yield from look_up(answer, topic, wanted, request, ctx)
    except ApiError as error:
        answer.error_code = error.code
    except Exception:
        logger.exception("ListOffsets of %s-%d failed", topic, wanted.partition_index)
        answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR


def _not_available(version: int) -> ApiError:
    return ApiError(ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE)


def look_up(
    answer: ListOffsetsPartitionResponse,
    topic: str,
    wanted: ListOffsetsPartition,
    request: ListOffsetsRequest,
    ctx: RequestContext,
) -> Iterable[None]:
    """Fill in one partition's answer (``Partition.fetchOffsetForTimestamp``). ``ApiError`` if it is refused.

    Returns the steps that are left: none, unless batches are to be read.
    """
    version = ctx.header.api_version
    timestamp = wanted.timestamp
    if timestamp < 0:
        since = _SINCE_VERSION.get(timestamp, 0 if timestamp in (LATEST, EARLIEST) else 1 << 15)
        if version < since:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    manager = ctx.services.replica_manager
    if request.replica_id == DEBUGGING_REPLICA_ID:
        partition = manager.get_partition(topic, wanted.partition_index)
        partition.check_leader_epoch(wanted.current_leader_epoch)
    else:
        partition = manager.get_leader(topic, wanted.partition_index, wanted.current_leader_epoch)
    log = partition.log
    # A new leader does not know yet how far its predecessor had come with what is committed.
    lags = request.replica_id == CONSUMER and partition.high_watermark_lags
    if request.replica_id != CONSUMER:
        bound = log.log_end_offset
    elif request.isolation_level == 1:
        bound = partition.last_stable_offset
    else:
        bound = partition.high_watermark
    epoch: int | None = None
    if timestamp == LATEST:
        if lags:
            raise _not_available(version)
        answer.offset = bound
        epoch = partition.state.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        epoch = log.leader_epochs.epoch_for(log.log_start_offset)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        answer.offset = -1
    else:
        by_maximum = timestamp == MAX_TIMESTAMP
        steps = log.offset_of_max_timestamp() if by_maximum else log.offset_for_timestamp(timestamp)
        return _read(answer, steps, bound, version, lags=lags)
    if epoch is not None and version >= 4:
        answer.leader_epoch = epoch
    return ()


def _read(
    answer: ListOffsetsPartitionResponse,
    steps: Generator[None, None, TimestampOffset | None],
    bound: int,
    version: int,
    *,
    lags: bool,
) -> Iterator[None]:
    """Fill in what a look-up by timestamp finds below ``bound``."""
    found = yield from steps
    if found is None:
        return
    if found.offset < bound:
        answer.timestamp = found.timestamp
        answer.offset = found.offset
        if found.leader_epoch is not None and version >= 4:
            answer.leader_epoch = found.leader_epoch
    elif lags:
        raise _not_available(version)
