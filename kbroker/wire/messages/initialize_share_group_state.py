from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class PartitionData:
    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


@struct
class InitializeStateData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest(Request["InitializeShareGroupStateResponse"]):
    group_id: Str = ""
    topics: list[InitializeStateData] = field()


@struct
class PartitionResult:
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@struct
class InitializeStateResult:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionResult] = field()


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult] = field()
