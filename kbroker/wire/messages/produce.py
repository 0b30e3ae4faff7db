from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Records, Request, Str, UuidField, field, message, struct


@struct
class PartitionProduceData:
    index: Int32 = 0
    records: Records | None = field(nullable="0+", default=None)


@struct
class TopicProduceData:
    name: Str = field("0-12", ignorable=True)
    topic_id: UuidField = field("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field()


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceRequest(Request["ProduceResponse"]):
    transactional_id: Str | None = field("3+", nullable="3+", default=None)
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = field()


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32 = field("8+")
    batch_index_error_message: Str | None = field("8+", nullable="8+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


@struct
class PartitionProduceResponse:
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = field("2+", ignorable=True, default=-1)
    log_start_offset: Int64 = field("5+", ignorable=True, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", ignorable=True)
    error_message: Str | None = field("8+", nullable="8+", ignorable=True, default=None)
    current_leader: LeaderIdAndEpoch = field("10+", tag=0)


@struct
class TopicProduceResponse:
    name: Str = field("0-12", ignorable=True)
    topic_id: UuidField = field("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = field("10+")
    host: Str = field("10+")
    port: Int32 = field("10+")
    rack: Str | None = field("10+", nullable="10+", default=None)


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = field()
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0)
