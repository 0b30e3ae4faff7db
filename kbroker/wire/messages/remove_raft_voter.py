from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Request, Str, UuidField, field, message


@message(api_key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest(Request["RemoveRaftVoterResponse"]):
    cluster_id: Str | None = field(nullable="0+")
    voter_id: Int32 = 0
    voter_directory_id: UuidField = ZERO_UUID


@message(api_key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", ignorable=True)
