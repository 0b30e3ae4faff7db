from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, message


@message(api_key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"]):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


@message(api_key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
