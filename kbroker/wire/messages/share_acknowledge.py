from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Bool, Int8, Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class AcknowledgementBatch:
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = field()


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
class LeaderIdAndEpoch:
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class PartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field()


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = 0
    host: Str = ""
    port: Int32 = 0
    rack: Str | None = field(nullable="0+", default=None)


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()
