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
class DescribedTransactionState:
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
    transaction_states: list[DescribedTransactionState] = field()


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    state_filters: list[Str] = field()
    producer_id_filters: list[Int64] = field()
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: Str | None = field("2+", nullable="2+", default=None)


@struct
class ListedTransactionState:
    transactional_id: Str = ""
    producer_id: Int64 = 0
    transaction_state: Str = ""


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[Str] = field()
    transaction_states: list[ListedTransactionState] = field()


@struct
class TopicRequest:
    name: Str = ""
    partition_indexes: list[Int32] = field()


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    topics: list[TopicRequest] = field()


@struct
class ProducerState:
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


@struct
class PartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    active_producers: list[ProducerState] = field()


@struct
class TopicResponse:
    name: Str = ""
    partitions: list[PartitionResponse] = field()


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = field()
