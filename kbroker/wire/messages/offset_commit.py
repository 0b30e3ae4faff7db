from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field("6+", ignorable=True, default=-1)
    committed_metadata: Str | None = field(nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: Str = field("0-9", ignorable=True)
    topic_id: UuidField = field("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field()


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    group_id: Str = ""
    generation_id_or_member_epoch: Int32 = field("1+", ignorable=True, default=-1)
    member_id: Str = field("1+", ignorable=True)
    group_instance_id: Str | None = field("7+", nullable="7+", default=None)
    retention_time_ms: Int64 = field("2-4", ignorable=True, default=-1)
    topics: list[OffsetCommitRequestTopic] = field()


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class OffsetCommitResponseTopic:
    name: Str = field("0-9", ignorable=True)
    topic_id: UuidField = field("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field()


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field()
