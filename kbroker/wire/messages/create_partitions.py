from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Request, Str, field, message, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[Int32] = field()


@struct
class CreatePartitionsTopic:
    name: Str = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = field(nullable="0+")


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


@struct
class CreatePartitionsTopicResult:
    name: Str = ""
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = field()
