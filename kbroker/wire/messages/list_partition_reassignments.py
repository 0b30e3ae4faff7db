from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message, struct


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
