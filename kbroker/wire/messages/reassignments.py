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


@struct
class ListPartitionReassignmentsTopics:
    name: Str = ""
    partition_indexes: list[Int32] = field()


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = field(nullable="0+", default=None)


@struct
class OngoingPartitionReassignment:
    partition_index: Int32 = 0
    replicas: list[Int32] = field()
    adding_replicas: list[Int32] = field()
    removing_replicas: list[Int32] = field()


@struct
class OngoingTopicReassignment:
    name: Str = ""
    partitions: list[OngoingPartitionReassignment] = field()


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    topics: list[OngoingTopicReassignment] = field()
