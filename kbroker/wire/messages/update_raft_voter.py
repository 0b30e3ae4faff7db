from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Request, Str, UInt16, UuidField, field, message, struct


@struct
class Listener:
    name: Str = ""
    host: Str = ""
    port: UInt16 = 0


@struct
class KRaftVersionFeature:
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(api_key=82, versions="0", flexible="0+")
class UpdateRaftVoterRequest(Request["UpdateRaftVoterResponse"]):
    cluster_id: Str | None = field(nullable="0+")
    current_leader_epoch: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: UuidField = ZERO_UUID
    listeners: list[Listener] = field()
    kraft_version_feature: KRaftVersionFeature = field()


@struct
class CurrentLeader:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: Str = ""
    port: Int32 = 0


@message(api_key=82, versions="0", flexible="0+")
class UpdateRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: CurrentLeader = field(tag=0)
