from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Request, Str, UuidField, field, message, struct


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: Str = ""


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest(Request["DeleteShareGroupOffsetsResponse"]):
    group_id: Str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field()


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: Str = ""
    topic_id: UuidField = ZERO_UUID
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field()
