from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32 = 0
    start_offset: Int64 = 0


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: Str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field()


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest(Request["AlterShareGroupOffsetsResponse"]):
    group_id: Str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = field()


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: Str = ""
    topic_id: UuidField = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field()


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field()
