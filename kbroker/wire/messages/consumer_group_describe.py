from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Str, UuidField, field, message, struct


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    group_ids: list[Str] = field()
    include_authorized_operations: Bool = False


@struct
class TopicPartitions:
    topic_id: UuidField = ZERO_UUID
    topic_name: Str = ""
    partitions: list[Int32] = field()


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field()


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
    assignment: Assignment = field()
    target_assignment: Assignment = field()
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
