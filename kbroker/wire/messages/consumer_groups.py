from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Str, UuidField, field, message, struct


@struct
class HeartbeatTopicPartitions:
    topic_id: UuidField = ZERO_UUID
    partitions: list[Int32] = field()


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    group_id: Str = ""
    member_id: Str = ""
    member_epoch: Int32 = 0
    instance_id: Str | None = field(nullable="0+", default=None)
    rack_id: Str | None = field(nullable="0+", default=None)
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[Str] | None = field(nullable="0+", default=None)
    subscribed_topic_regex: Str | None = field("1+", nullable="1+", default=None)
    server_assignor: Str | None = field(nullable="0+", default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = field(nullable="0+", default=None)


@struct
class HeartbeatAssignment:
    topic_partitions: list[HeartbeatTopicPartitions] = field()


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    member_id: Str | None = field(nullable="0+", default=None)
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: HeartbeatAssignment | None = field(nullable="0+", default=None)


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    group_ids: list[Str] = field()
    include_authorized_operations: Bool = False


@struct
class DescribeTopicPartitions:
    topic_id: UuidField = ZERO_UUID
    topic_name: Str = ""
    partitions: list[Int32] = field()


@struct
class DescribeAssignment:
    topic_partitions: list[DescribeTopicPartitions] = field()


@struct
class Member:
    member_id: Str = ""
    instance_id: Str | None = field(nullable="0+", default=None)
    rack_id: Str | None = field(nullable="0+", default=None)
    member_epoch: Int32 = 0
    client_id: Str = ""
    client_host: Str = ""
    subscribed_topic_names: list[Str] = field()
    subscribed_topic_regex: Str | None = field(nullable="0+", default=None)
    assignment: DescribeAssignment = field()
    target_assignment: DescribeAssignment = field()
    member_type: Int8 = field("1+", ignorable=True, default=-1)


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    group_id: Str = ""
    group_state: Str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: Str = ""
    members: list[Member] = field()
    authorized_operations: Int32 = -2147483648


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = field()
