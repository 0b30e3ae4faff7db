from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int8, Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class PartitionData:
    partition: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class ReadStateData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest(Request["ReadShareGroupStateResponse"]):
    group_id: Str = ""
    topics: list[ReadStateData] = field()


@struct
class StateBatch:
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


@struct
class PartitionResult:
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = field()


@struct
class ReadStateResult:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionResult] = field()


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: list[ReadStateResult] = field()
