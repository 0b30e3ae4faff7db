from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Request, Str, UuidField, field, message, struct


@struct
class TopicRequest:
    name: Str = ""


@struct
class Cursor:
    topic_name: Str = ""
    partition_index: Int32 = 0


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    topics: list[TopicRequest] = field()
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = field(nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = field(ignorable=True, default=-1)
    replica_nodes: list[Int32] = field()
    isr_nodes: list[Int32] = field()
    eligible_leader_replicas: list[Int32] | None = field(nullable="0+", default=None)
    last_known_elr: list[Int32] | None = field(nullable="0+", default=None)
    offline_replicas: list[Int32] = field(ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = 0
    name: Str | None = field(nullable="0+")
    topic_id: UuidField = field(ignorable=True)
    is_internal: Bool = field(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field()
    topic_authorized_operations: Int32 = -2147483648


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field()
    next_cursor: Cursor | None = field(nullable="0+", default=None)
