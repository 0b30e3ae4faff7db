"""DeleteShareGroupState (key 86): version 0, flexible from 0."""

from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Request, Str, UuidField, field, message, struct


@struct
class PartitionData:
    """Part of DeleteShareGroupStateRequest."""

    partition: Int32 = 0


@struct
class DeleteStateData:
    """Part of DeleteShareGroupStateRequest."""

    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest(Request["DeleteShareGroupStateResponse"]):
    """Request of DeleteShareGroupState (key 86)."""

    group_id: Str = ""
    topics: list[DeleteStateData] = field()


@struct
class PartitionResult:
    """Part of DeleteShareGroupStateResponse."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@struct
class DeleteStateResult:
    """Part of DeleteShareGroupStateResponse."""

    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionResult] = field()


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    """Response to DeleteShareGroupState (key 86)."""

    results: list[DeleteStateResult] = field()
