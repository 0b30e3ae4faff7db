from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, field, message, struct


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    state_filters: list[Str] = field()
    producer_id_filters: list[Int64] = field()
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: Str | None = field("2+", nullable="2+", default=None)


@struct
class TransactionState:
    transactional_id: Str = ""
    producer_id: Int64 = 0
    transaction_state: Str = ""


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[Str] = field()
    transaction_states: list[TransactionState] = field()
