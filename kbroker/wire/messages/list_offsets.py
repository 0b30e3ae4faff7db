from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Int64, Request, Str, field, message, struct


@struct
class ListOffsetsPartition:
    partition_index: Int32 = 0
    current_leader_epoch: Int32 = field("4+", ignorable=True, default=-1)
    timestamp: Int64 = 0


@struct
class ListOffsetsTopic:
    name: Str = ""
    partitions: list[ListOffsetsPartition] = field()


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    replica_id: Int32 = 0
    isolation_level: Int8 = field("2+")
    topics: list[ListOffsetsTopic] = field()
    timeout_ms: Int32 = field("10+", ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: Str = ""
    partitions: list[ListOffsetsPartitionResponse] = field()


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field()
