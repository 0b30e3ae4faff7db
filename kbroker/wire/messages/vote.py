from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Str, UInt16, UuidField, field, message, struct


@struct
class PartitionData:
    partition_index: Int32 = 0
    replica_epoch: Int32 = 0
    replica_id: Int32 = 0
    replica_directory_id: UuidField = field("1+", ignorable=True)
    voter_directory_id: UuidField = field("1+", ignorable=True)
    last_offset_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: Bool = field("2+")


@struct
class TopicData:
    topic_name: Str = ""
    partitions: list[PartitionData] = field()


@message(api_key=52, versions="0-2", flexible="0+")
class VoteRequest(Request["VoteResponse"]):
    cluster_id: Str | None = field(nullable="0+", default=None)
    voter_id: Int32 = field("1+", ignorable=True, default=-1)
    topics: list[TopicData] = field()


@struct
class ResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: Bool = False


@struct
class ResponseTopicData:
    topic_name: Str = ""
    partitions: list[ResponsePartitionData] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = field("1+")
    host: Str = field("1+")
    port: UInt16 = field("1+")


@message(api_key=52, versions="0-2", flexible="0+")
class VoteResponse:
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = field()
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)
