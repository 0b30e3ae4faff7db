from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Request, Str, field, message, struct


@struct
class ReassignablePartition:
    partition_index: Int32 = 0
    replicas: list[Int32] | None = field(nullable="0+", default=None)


@struct
class ReassignableTopic:
    name: Str = ""
    partitions: list[ReassignablePartition] = field()


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: list[ReassignableTopic] = field()


@struct
class ReassignablePartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")


@struct
class ReassignableTopicResponse:
    name: Str = ""
    partitions: list[ReassignablePartitionResponse] = field()


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = field("1+", ignorable=True, default=True)
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    responses: list[ReassignableTopicResponse] = field()
