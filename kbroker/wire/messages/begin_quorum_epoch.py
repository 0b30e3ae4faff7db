from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, UInt16, UuidField, field, message, struct


@struct
class PartitionData:
    partition_index: Int32 = 0
    voter_directory_id: UuidField = field("1+", ignorable=True)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class TopicData:
    topic_name: Str = ""
    partitions: list[PartitionData] = field()


@struct
class LeaderEndpoint:
    name: Str = field("1+")
    host: Str = field("1+")
    port: UInt16 = field("1+")


@message(api_key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest(Request["BeginQuorumEpochResponse"]):
    cluster_id: Str | None = field(nullable="0+", default=None)
    voter_id: Int32 = field("1+", ignorable=True, default=-1)
    topics: list[TopicData] = field()
    leader_endpoints: list[LeaderEndpoint] = field("1+", ignorable=True)


@struct
class ResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class ResponseTopicData:
    topic_name: Str = ""
    partitions: list[ResponsePartitionData] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = field("1+")
    host: Str = field("1+")
    port: UInt16 = field("1+")


@message(api_key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = field()
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)
