from __future__ import annotations

from kbroker.wire.schema import (
    FIRST_OWN_TAG,
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
class ReplicaState:
    replica_id: Int32 = field("15+", default=-1)
    replica_epoch: Int64 = field("15+", default=-1)


@struct
class FetchPartition:
    partition: Int32 = 0
    current_leader_epoch: Int32 = field("9+", ignorable=True, default=-1)
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", ignorable=True, default=-1)
    partition_max_bytes: Int32 = 0
    replica_directory_id: UuidField = field("17+", tag=0, ignorable=True)
    high_watermark: Int64 = field("18+", tag=1, ignorable=True, default=9223372036854775807)
    is_doubted: Bool = field("12+", tag=FIRST_OWN_TAG, ignorable=True, default=False)


@struct
class FetchTopic:
    topic: Str = field("0-12", ignorable=True)
    topic_id: UuidField = field("13+", ignorable=True)
    partitions: list[FetchPartition] = field()


@struct
class ForgottenTopic:
    topic: Str = field("7-12", ignorable=True)
    topic_id: UuidField = field("13+", ignorable=True)
    partitions: list[Int32] = field("7+")


@message(api_key=1, versions="4-18", flexible="12+")
class FetchRequest(Request["FetchResponse"]):
    cluster_id: Str | None = field("12+", nullable="12+", tag=0, ignorable=True, default=None)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", tag=1)
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = field("3+", ignorable=True, default=2147483647)
    isolation_level: Int8 = field("4+", ignorable=True)
    session_id: Int32 = field("7+", ignorable=True)
    session_epoch: Int32 = field("7+", ignorable=True, default=-1)
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field("7+")
    rack_id: Str = field("11+", ignorable=True)


@struct
class EpochEndOffset:
    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


@struct
class SnapshotId:
    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class AbortedTransaction:
    producer_id: Int64 = field("4+")
    first_offset: Int64 = field("4+")


@struct
class PartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = field("4+", ignorable=True, default=-1)
    log_start_offset: Int64 = field("5+", ignorable=True, default=-1)
    diverging_epoch: EpochEndOffset = field("12+", tag=0)
    current_leader: LeaderIdAndEpoch = field("12+", tag=1)
    snapshot_id: SnapshotId = field("12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field("4+", nullable="4+", ignorable=True)
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: ResponseRecords | None = field(nullable="0+", default=None)


@struct
class FetchableTopicResponse:
    topic: Str = field("0-12", ignorable=True)
    topic_id: UuidField = field("13+", ignorable=True)
    partitions: list[PartitionData] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = field("16+")
    host: Str = field("16+")
    port: Int32 = field("16+")
    rack: Str | None = field("16+", nullable="16+", default=None)


@message(api_key=1, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("7+", ignorable=True)
    session_id: Int32 = field("7+")
    responses: list[FetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0)
