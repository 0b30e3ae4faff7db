from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32 = 0


@struct
class OffsetDeleteRequestTopic:
    name: Str = ""
    partitions: list[OffsetDeleteRequestPartition] = field()


@message(api_key=47, versions="0")
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    group_id: Str = ""
    topics: list[OffsetDeleteRequestTopic] = field()


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class OffsetDeleteResponseTopic:
    name: Str = ""
    partitions: list[OffsetDeleteResponsePartition] = field()


@message(api_key=47, versions="0")
class OffsetDeleteResponse:
    error_code: Int16 = 0
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field()
