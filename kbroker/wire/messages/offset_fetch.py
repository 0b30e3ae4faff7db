from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class OffsetFetchRequestTopic:
    name: Str = field("0-7")
    partition_indexes: list[Int32] = field("0-7")


@struct
class OffsetFetchRequestTopics:
    name: Str = field("8-9", ignorable=True)
    topic_id: UuidField = field("10+", ignorable=True)
    partition_indexes: list[Int32] = field("8+")


@struct
class OffsetFetchRequestGroup:
    group_id: Str = field("8+")
    member_id: Str | None = field("9+", nullable="9+", ignorable=True, default=None)
    member_epoch: Int32 = field("9+", ignorable=True, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field("8+", nullable="8+")


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    group_id: Str = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+")
    require_stable: Bool = field("7+")


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32 = field("0-7")
    committed_offset: Int64 = field("0-7")
    committed_leader_epoch: Int32 = field("5-7", ignorable=True, default=-1)
    metadata: Str | None = field("0-7", nullable="0-7")
    error_code: Int16 = field("0-7")


@struct
class OffsetFetchResponseTopic:
    name: Str = field("0-7")
    partitions: list[OffsetFetchResponsePartition] = field("0-7")


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32 = field("8+")
    committed_offset: Int64 = field("8+")
    committed_leader_epoch: Int32 = field("8+", ignorable=True, default=-1)
    metadata: Str | None = field("8+", nullable="8+")
    error_code: Int16 = field("8+")


@struct
class OffsetFetchResponseTopics:
    name: Str = field("8-9", ignorable=True)
    topic_id: UuidField = field("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field("8+")


@struct
class OffsetFetchResponseGroup:
    group_id: Str = field("8+")
    topics: list[OffsetFetchResponseTopics] = field("8+")
    error_code: Int16 = field("8+")


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7")
    error_code: Int16 = field("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+")
