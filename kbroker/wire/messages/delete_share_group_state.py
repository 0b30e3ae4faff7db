from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Request, Str, UuidField, field, message, struct


@struct
class PartitionData:
    partition: Int32 = 0


@struct
class DeleteStateData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest(Request["DeleteShareGroupStateResponse"]):
    group_id: Str = ""
    topics: list[DeleteStateData] = field()


@struct
class PartitionResult:
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@struct
class DeleteStateResult:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionResult] = field()


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult] = field()
