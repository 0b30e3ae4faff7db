from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, UuidField, field, message, struct


@struct
class DeleteTopicState:
    name: Str | None = field("6+", nullable="6+", default=None)
    topic_id: UuidField = field("6+")


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    topics: list[DeleteTopicState] = field("6+")
    topic_names: list[Str] = field("0-5", ignorable=True)
    timeout_ms: Int32 = 0


@struct
class DeletableTopicResult:
    name: Str | None = field(nullable="6+")
    topic_id: UuidField = field("6+", ignorable=True)
    error_code: Int16 = 0
    error_message: Str | None = field("5+", nullable="5+", ignorable=True, default=None)


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    responses: list[DeletableTopicResult] = field()
