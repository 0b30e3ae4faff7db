from __future__ import annotations

from kbroker.wire.schema import (
    Int16,
    Int32,
    Int64,
    Request,
    ResponseRecords,
    Str,
    UInt16,
    UuidField,
    field,
    message,
    struct,
)


@struct
class SnapshotId:
    end_offset: Int64 = 0
    epoch: Int32 = 0


@struct
class PartitionSnapshot:
    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: SnapshotId = field()
    position: Int64 = 0
    replica_directory_id: UuidField = field("1+", tag=0, ignorable=True)


@struct
class TopicSnapshot:
    name: Str = ""
    partitions: list[PartitionSnapshot] = field()


@message(api_key=59, versions="0-1", flexible="0+")
class FetchSnapshotRequest(Request["FetchSnapshotResponse"]):
    cluster_id: Str | None = field(nullable="0+", tag=0, default=None)
    replica_id: Int32 = -1
    max_bytes: Int32 = 2147483647
    topics: list[TopicSnapshot] = field()


@struct
class ResponseSnapshotId:
    end_offset: Int64 = 0
    epoch: Int32 = 0


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class ResponsePartitionSnapshot:
    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: ResponseSnapshotId = field()
    current_leader: LeaderIdAndEpoch = field(tag=0)
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: ResponseRecords | None = None


@struct
class ResponseTopicSnapshot:
    name: Str = ""
    partitions: list[ResponsePartitionSnapshot] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = field("1+")
    host: Str = field("1+")
    port: UInt16 = field("1+")


@message(api_key=59, versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    throttle_time_ms: Int32 = field(ignorable=True)
    error_code: Int16 = 0
    topics: list[ResponseTopicSnapshot] = field()
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)
