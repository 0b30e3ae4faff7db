from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Str, field, message


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnRequest(Request["EndTxnResponse"]):
    transactional_id: Str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = field("5+", ignorable=True, default=-1)
    producer_epoch: Int16 = field("5+", ignorable=True, default=-1)
