"""InitializeShareGroupState (key 83): version 0, flexible from 0."""

from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class PartitionData:
    """Part of InitializeShareGroupStateRequest."""

    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


@struct
class InitializeStateData:
    """Part of InitializeShareGroupStateRequest."""

    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest(Request["InitializeShareGroupStateResponse"]):
    """Request of InitializeShareGroupState (key 83)."""

    group_id: Str = ""
    topics: list[InitializeStateData] = field()


@struct
class PartitionResult:
    """Part of InitializeShareGroupStateResponse."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@struct
class InitializeStateResult:
    """Part of InitializeShareGroupStateResponse."""

    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionResult] = field()


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    """Response to InitializeShareGroupState (key 83)."""

    results: list[InitializeStateResult] = field()
