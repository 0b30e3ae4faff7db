from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Str, field, message


@message(api_key=22, versions="0-6", flexible="2+", unstable_last=True)
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    transactional_id: Str | None = field(nullable="0+")
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: Bool = field("6+")
    keep_prepared_txn: Bool = field("6+")


@message(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: Int32 = field(ignorable=True)
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)
