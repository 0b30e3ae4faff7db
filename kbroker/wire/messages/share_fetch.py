from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    ResponseRecords,
    Str,
    UuidField,
    field,
    message,
    struct,
)


@struct
class AcknowledgementBatch:
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = field()


@struct
class FetchPartition:
    partition_index: Int32 = 0
    partition_max_bytes: Int32 = field("0")
    acknowledgement_batches: list[AcknowledgementBatch] = field()


@struct
class FetchTopic:
    topic_id: UuidField = ZERO_UUID
    partitions: list[FetchPartition] = field()


@struct
class ForgottenTopic:
    topic_id: UuidField = ZERO_UUID
    partitions: list[Int32] = field()


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchRequest(Request["ShareFetchResponse"]):
    group_id: Str | None = field(nullable="0+", default=None)
    member_id: Str | None = field(nullable="0+")
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    max_records: Int32 = field("1+")
    batch_size: Int32 = field("1+")
    share_acquire_mode: Int8 = field("2+", ignorable=True)
    is_renew_ack: Bool = field("2+")
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field()


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class AcquiredRecords:
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


@struct
class ShareFetchPartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: Str | None = field(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field()
    records: ResponseRecords | None = field(nullable="0", default=None)
    acquired_records: list[AcquiredRecords] = field()


@struct
class ShareFetchableTopicResponse:
    topic_id: UuidField = ZERO_UUID
    partitions: list[ShareFetchPartitionData] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = 0
    host: Str = ""
    port: Int32 = 0
    rack: Str | None = field(nullable="0+", default=None)


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("1+")
    responses: list[ShareFetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()


@struct
class AcknowledgePartition:
    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field()


@struct
class AcknowledgeTopic:
    topic_id: UuidField = ZERO_UUID
    partitions: list[AcknowledgePartition] = field()


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest(Request["ShareAcknowledgeResponse"]):
    group_id: Str | None = field(nullable="0+", default=None)
    member_id: Str | None = field(nullable="0+")
    share_session_epoch: Int32 = 0
    is_renew_ack: Bool = field("2+")
    topics: list[AcknowledgeTopic] = field()


@struct
class ShareAcknowledgePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field()


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: UuidField = ZERO_UUID
    partitions: list[ShareAcknowledgePartitionData] = field()


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()
