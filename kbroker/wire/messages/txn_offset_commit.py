from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field("2+", ignorable=True, default=-1)
    committed_metadata: Str | None = field(nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    name: Str = field("0-5", ignorable=True)
    topic_id: UuidField = field("6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = field()


@message(api_key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    transactional_id: Str = ""
    group_id: Str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id_or_member_epoch: Int32 = field("3+", default=-1)
    member_id: Str = field("3+")
    group_instance_id: Str | None = field("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field()


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    name: Str = field("0-5", ignorable=True)
    topic_id: UuidField = field("6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = field()


@message(api_key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = field()
