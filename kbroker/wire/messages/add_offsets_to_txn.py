from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, message


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    transactional_id: Str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: Str = ""


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
