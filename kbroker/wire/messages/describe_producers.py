from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, field, message, struct


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
