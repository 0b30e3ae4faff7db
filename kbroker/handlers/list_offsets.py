"""ListOffsets (key 2): the earliest and latest offsets, and offsets by timestamp.

Served: 1 to 11. 2: isolation level; 4: leader epochs; 6: flexible; 7: max timestamp; 8: earliest local; 9: last
tiered; 10: timeout_ms; 11: earliest pending upload. There is no tiered storage here, and the answers are those of
Apache Kafka without it: earliest local is the earliest, and last tiered and earliest pending upload are -1.
"""

from __future__ import annotations

import logging
from collections import Counter

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import Versions, handler
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

logger = logging.getLogger(__name__)

VERSIONS = Versions(1, 11)

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


@handler(ListOffsetsRequest, versions=VERSIONS)
def handle(request: ListOffsetsRequest, ctx: RequestContext) -> ListOffsetsResponse:
    """Look each partition up; a partition named twice is refused, as in Kafka."""
    counts = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
    topics = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            try:
                if counts[topic.name, index] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                answers.append(_look_up(topic.name, partition, request, ctx))
            except ApiError as error:
                answers.append(ListOffsetsPartitionResponse(partition_index=index, error_code=error.code))
            except Exception:
                logger.exception("ListOffsets of %s-%d failed", topic.name, index)
                answers.append(
                    ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
                )
        if answers:  # as in Kafka, whose answers are by partition
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _not_available(version: int) -> ApiError:
    return ApiError(ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE)


def _look_up(
    topic: str, wanted: ListOffsetsPartition, request: ListOffsetsRequest, ctx: RequestContext
) -> ListOffsetsPartitionResponse:
    """``Partition.fetchOffsetForTimestamp``."""
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
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
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
        found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if found is not None and found.offset < bound:
            answer.timestamp = found.timestamp
            answer.offset = found.offset
            epoch = found.leader_epoch
        elif found is not None and lags:
            raise _not_available(version)
    if epoch is not None and version >= 4:
        answer.leader_epoch = epoch
    return answer
