from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, field, message, struct


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    transactional_ids: list[Str] = field()


@struct
class TopicData:
    topic: Str = ""
    partitions: list[Int32] = field()


@struct
class TransactionState:
    error_code: Int16 = 0
    transactional_id: Str = ""
    transaction_state: Str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = field()


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = field()
