from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Str, field, message, struct


@struct
class AddPartitionsToTxnTopic:
    name: Str = ""
    partitions: list[Int32] = field()


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: Str = field("4+")
    producer_id: Int64 = field("4+")
    producer_epoch: Int16 = field("4+")
    verify_only: Bool = field("4+")
    topics: list[AddPartitionsToTxnTopic] = field("4+")


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    transactions: list[AddPartitionsToTxnTransaction] = field("4+")
    v3_and_below_transactional_id: Str = field("0-3")
    v3_and_below_producer_id: Int64 = field("0-3")
    v3_and_below_producer_epoch: Int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3")


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


@struct
class AddPartitionsToTxnTopicResult:
    name: Str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field()


@struct
class AddPartitionsToTxnResult:
    transactional_id: Str = field("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+")


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3")
