from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, UInt16, UuidField, field, message, struct


@struct
class PartitionData:
    partition_index: Int32 = 0


@struct
class TopicData:
    topic_name: Str = ""
    partitions: list[PartitionData] = field()


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    topics: list[TopicData] = field()


@struct
class ReplicaState:
    replica_id: Int32 = 0
    replica_directory_id: UuidField = field("2+")
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Int64 = field("1+", ignorable=True, default=-1)
    last_caught_up_timestamp: Int64 = field("1+", ignorable=True, default=-1)


@struct
class ResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field("2+", nullable="2+", ignorable=True)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = field()
    observers: list[ReplicaState] = field()


@struct
class ResponseTopicData:
    topic_name: Str = ""
    partitions: list[ResponsePartitionData] = field()


@struct
class Listener:
    name: Str = field("2+")
    host: Str = field("2+")
    port: UInt16 = field("2+")


@struct
class Node:
    node_id: Int32 = field("2+")
    listeners: list[Listener] = field("2+")


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: Int16 = 0
    error_message: Str | None = field("2+", nullable="2+", ignorable=True)
    topics: list[ResponseTopicData] = field()
    nodes: list[Node] = field("2+")
