"""BeginQuorumEpoch (key 53): versions 0-1, flexible from 1."""

from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, UInt16, UuidField, field, message, struct


@struct
class PartitionData:
    """Part of BeginQuorumEpochRequest."""

    partition_index: Int32 = 0
    voter_directory_id: UuidField = field("1+", ignorable=True)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class TopicData:
    """Part of BeginQuorumEpochRequest."""

    topic_name: Str = ""
    partitions: list[PartitionData] = field()


@struct
class LeaderEndpoint:
    """Part of BeginQuorumEpochRequest."""

    name: Str = field("1+")
    host: Str = field("1+")
    port: UInt16 = field("1+")


@message(api_key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest(Request["BeginQuorumEpochResponse"]):
    """Request of BeginQuorumEpoch (key 53)."""

    cluster_id: Str | None = field(nullable="0+", default=None)
    voter_id: Int32 = field("1+", ignorable=True, default=-1)
    topics: list[TopicData] = field()
    leader_endpoints: list[LeaderEndpoint] = field("1+", ignorable=True)


@struct
class ResponsePartitionData:
    """Part of BeginQuorumEpochResponse."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class ResponseTopicData:
    """Part of BeginQuorumEpochResponse."""

    topic_name: Str = ""
    partitions: list[ResponsePartitionData] = field()


@struct
class NodeEndpoint:
    """Part of BeginQuorumEpochResponse."""

    node_id: Int32 = field("1+")
    host: Str = field("1+")
    port: UInt16 = field("1+")


@message(api_key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    """Response to BeginQuorumEpoch (key 53)."""

    error_code: Int16 = 0
    topics: list[ResponseTopicData] = field()
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)
