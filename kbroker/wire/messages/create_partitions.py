"""CreatePartitions (key 37): versions 0-3, flexible from 2."""

from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Request, Str, field, message, struct


@struct
class CreatePartitionsAssignment:
    """Part of CreatePartitionsRequest."""

    broker_ids: list[Int32] = field()


@struct
class CreatePartitionsTopic:
    """Part of CreatePartitionsRequest."""

    name: Str = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = field(nullable="0+")


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    """Request of CreatePartitions (key 37)."""

    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


@struct
class CreatePartitionsTopicResult:
    """Part of CreatePartitionsResponse."""

    name: Str = ""
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """Response to CreatePartitions (key 37)."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = field()
