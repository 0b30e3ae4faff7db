"""Records of ``__transaction_state``."""

from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Int64, Str, field, message, struct


@message(api_key=0, versions="0")
class TransactionLogKey:
    transactional_id: Str = field("0")


@struct
class PartitionsSchema:
    topic: Str = ""
    partition_ids: list[Int32] = field()


@message(api_key=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: Int64 = 0
    previous_producer_id: Int64 = field("1+", tag=0, default=-1)
    next_producer_id: Int64 = field("1+", tag=1, default=-1)
    producer_epoch: Int16 = 0
    next_producer_epoch: Int16 = field("1+", tag=3, default=-1)
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = field(nullable="0+")
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Int16 = field("1+", tag=2)
