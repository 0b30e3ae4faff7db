from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Bool, Int16, Int32, Request, Str, UInt16, UuidField, field, message, struct


@struct
class Listener:
    name: Str = ""
    host: Str = ""
    port: UInt16 = 0


@message(api_key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest(Request["AddRaftVoterResponse"]):
    cluster_id: Str | None = field(nullable="0+")
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: UuidField = ZERO_UUID
    listeners: list[Listener] = field()
    ack_when_committed: Bool = field("1+", default=True)


@message(api_key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", ignorable=True)
