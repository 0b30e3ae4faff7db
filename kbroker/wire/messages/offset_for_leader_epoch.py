from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, field, message, struct


@struct
class OffsetForLeaderPartition:
    partition: Int32 = 0
    current_leader_epoch: Int32 = field("2+", ignorable=True, default=-1)
    leader_epoch: Int32 = 0


@struct
class OffsetForLeaderTopic:
    topic: Str = ""
    partitions: list[OffsetForLeaderPartition] = field()


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    replica_id: Int32 = field("3+", ignorable=True, default=-2)
    topics: list[OffsetForLeaderTopic] = field()


@struct
class EpochEndOffset:
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = field("1+", ignorable=True, default=-1)
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult:
    topic: Str = ""
    partitions: list[EpochEndOffset] = field()


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field()
