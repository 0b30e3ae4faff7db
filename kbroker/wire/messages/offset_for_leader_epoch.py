"""OffsetForLeaderEpoch (key 23): versions 2-4, flexible from 4."""

from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, field, message, struct


@struct
class OffsetForLeaderPartition:
    """Part of OffsetForLeaderEpochRequest."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = field("2+", ignorable=True, default=-1)
    leader_epoch: Int32 = 0


@struct
class OffsetForLeaderTopic:
    """Part of OffsetForLeaderEpochRequest."""

    topic: Str = ""
    partitions: list[OffsetForLeaderPartition] = field()


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """Request of OffsetForLeaderEpoch (key 23)."""

    replica_id: Int32 = field("3+", ignorable=True, default=-2)
    topics: list[OffsetForLeaderTopic] = field()


@struct
class EpochEndOffset:
    """Part of OffsetForLeaderEpochResponse."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = field("1+", ignorable=True, default=-1)
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult:
    """Part of OffsetForLeaderEpochResponse."""

    topic: Str = ""
    partitions: list[EpochEndOffset] = field()


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """Response to OffsetForLeaderEpoch (key 23)."""

    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field()
