from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Request, Str, UuidField, field, message, struct


@struct
class TopicPartitions:
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
    topic_partitions: list[TopicPartitions] | None = field(nullable="0+", default=None)


@struct
class ResponseTopicPartitions:
    topic_id: UuidField = ZERO_UUID
    partitions: list[Int32] = field()


@struct
class Assignment:
    topic_partitions: list[ResponseTopicPartitions] = field()


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    member_id: Str | None = field(nullable="0+", default=None)
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = field(nullable="0+", default=None)
