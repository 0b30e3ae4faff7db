from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Request, Str, UuidField, field, message, struct


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest(Request["ShareGroupHeartbeatResponse"]):
    group_id: Str = ""
    member_id: Str = ""
    member_epoch: Int32 = 0
    rack_id: Str | None = field(nullable="0+", default=None)
    subscribed_topic_names: list[Str] | None = field(nullable="0+", default=None)


@struct
class TopicPartitions:
    topic_id: UuidField = ZERO_UUID
    partitions: list[Int32] = field()


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field()


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    member_id: Str | None = field(nullable="0+", default=None)
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = field(nullable="0+", default=None)
