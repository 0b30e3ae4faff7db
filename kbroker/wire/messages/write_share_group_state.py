from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int8, Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class StateBatch:
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


@struct
class PartitionData:
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field("1+", ignorable=True, default=-1)
    state_batches: list[StateBatch] = field()


@struct
class WriteStateData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest(Request["WriteShareGroupStateResponse"]):
    group_id: Str = ""
    topics: list[WriteStateData] = field()


@struct
class PartitionResult:
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@struct
class WriteStateResult:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionResult] = field()


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: list[WriteStateResult] = field()
