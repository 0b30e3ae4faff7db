"""OffsetDelete (key 47): version 0, no flexible version."""

from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message, struct


@struct
class OffsetDeleteRequestPartition:
    """Part of OffsetDeleteRequest."""

    partition_index: Int32 = 0


@struct
class OffsetDeleteRequestTopic:
    """Part of OffsetDeleteRequest."""

    name: Str = ""
    partitions: list[OffsetDeleteRequestPartition] = field()


@message(api_key=47, versions="0")
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    """Request of OffsetDelete (key 47)."""

    group_id: Str = ""
    topics: list[OffsetDeleteRequestTopic] = field()


@struct
class OffsetDeleteResponsePartition:
    """Part of OffsetDeleteResponse."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class OffsetDeleteResponseTopic:
    """Part of OffsetDeleteResponse."""

    name: Str = ""
    partitions: list[OffsetDeleteResponsePartition] = field()


@message(api_key=47, versions="0")
class OffsetDeleteResponse:
    """Response to OffsetDelete (key 47)."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field()
