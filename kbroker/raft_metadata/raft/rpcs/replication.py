"""Fetch and FetchSnapshot of the metadata log on the wire (KIP-595, KIP-630, KIP-853, KIP-1166)."""

from __future__ import annotations

from kbroker.raft_metadata.raft.messages import Fetch, FetchResult, FetchSnapshot, FetchSnapshotResult
from kbroker.raft_metadata.raft.rpcs.rpc import (
    Rpc,
    UnsupportedRpcVersion,
    answered_partition,
    header,
    node_endpoints,
    only_partition,
)
from kbroker.raft_metadata.raft.voters import ReplicaKey
from kbroker.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch, Uuid
from kbroker.wire.messages import fetch
from kbroker.wire.messages import fetch_snapshot as snapshot

FIRST_FETCH_VERSION = 12
"""The first version of Fetch whose response tells where two logs diverge."""


class FetchRpc(Rpc[Fetch, FetchResult]):
    """Fetch (key 1). Version 13 names the topic by its id, 15 has the replica in a struct, 17 the leader's address."""

    request, wire_request = Fetch, fetch.FetchRequest
    result, wire_response = FetchResult, fetch.FetchResponse

    def encode_request(self, request: Fetch, cluster_id: str, version: int) -> fetch.FetchRequest:
        if version < FIRST_FETCH_VERSION:
            raise UnsupportedRpcVersion(f"the metadata log is fetched with Fetch v{FIRST_FETCH_VERSION} or later")
        partition = fetch.FetchPartition(
            current_leader_epoch=request.epoch,
            fetch_offset=request.offset,
            last_fetched_epoch=request.last_epoch,
            replica_directory_id=request.replica.directory_id,
            high_watermark=request.high_watermark,
        )
        message = fetch.FetchRequest(
            cluster_id=cluster_id,
            max_wait_ms=request.max_wait_ms,
            max_bytes=request.max_bytes,
            topics=[fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )
        if version >= 15:
            message.replica_state = fetch.ReplicaState(replica_id=request.replica.id)
        else:
            message.replica_id = request.replica.id
        return message

    def read_request(self, message: fetch.FetchRequest, version: int) -> Fetch:
        if version >= 13:
            partition = only_partition(message.topics, "topic_id", "partition", METADATA_TOPIC_ID)
        else:
            partition = only_partition(message.topics, "topic", "partition")
        replica_id = message.replica_state.replica_id if version >= 15 else message.replica_id
        return Fetch(
            partition.current_leader_epoch,
            ReplicaKey(replica_id, Uuid(partition.replica_directory_id)),
            partition.fetch_offset,
            partition.last_fetched_epoch,
            partition.high_watermark,
            message.max_bytes,
            message.max_wait_ms,
        )

    def encode_response(self, result: FetchResult, version: int, listener_name: str) -> fetch.FetchResponse:
        partition = fetch.PartitionData(
            error_code=result.error,
            high_watermark=result.high_watermark,
            log_start_offset=result.log_start_offset,
            records=memoryview(result.records),
        )
        if version >= 12:  # replicas of the metadata log speak no earlier one, but other readers of it may
            partition.current_leader = fetch.LeaderIdAndEpoch(leader_id=result.leader_id, leader_epoch=result.epoch)
            if result.diverging is not None:
                offset, epoch = result.diverging
                partition.diverging_epoch = fetch.EpochEndOffset(epoch=epoch, end_offset=offset)
            if result.snapshot_id is not None:
                offset, epoch = result.snapshot_id
                partition.snapshot_id = fetch.SnapshotId(end_offset=offset, epoch=epoch)
        return fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
            ],
            node_endpoints=node_endpoints(fetch.NodeEndpoint, result, listener_name) if version >= 17 else [],
        )

    def decode_response(self, message: fetch.FetchResponse, listener_name: str) -> FetchResult:
        partition = answered_partition(message, message.responses)
        diverging, snapshot_id = partition.diverging_epoch, partition.snapshot_id
        return FetchResult(
            *header(partition, partition.current_leader, message, listener_name),
            high_watermark=partition.high_watermark,
            log_start_offset=partition.log_start_offset,
            diverging=OffsetAndEpoch(diverging.end_offset, diverging.epoch) if diverging.epoch >= 0 else None,
            snapshot_id=(
                OffsetAndEpoch(snapshot_id.end_offset, snapshot_id.epoch)
                if snapshot_id.epoch >= 0 or snapshot_id.end_offset >= 0
                else None
            ),
            records=bytes(partition.records or b""),
        )


class FetchSnapshotRpc(Rpc[FetchSnapshot, FetchSnapshotResult]):
    """FetchSnapshot (key 59). Version 1 has the replica's directory id and the leader's address."""

    request, wire_request = FetchSnapshot, snapshot.FetchSnapshotRequest
    result, wire_response = FetchSnapshotResult, snapshot.FetchSnapshotResponse

    def encode_request(self, request: FetchSnapshot, cluster_id: str, version: int) -> snapshot.FetchSnapshotRequest:
        partition = snapshot.PartitionSnapshot(
            current_leader_epoch=request.epoch,
            snapshot_id=snapshot.SnapshotId(end_offset=request.snapshot_id.offset, epoch=request.snapshot_id.epoch),
            position=request.position,
            replica_directory_id=request.replica.directory_id,
        )
        return snapshot.FetchSnapshotRequest(
            cluster_id=cluster_id,
            replica_id=request.replica.id,
            max_bytes=request.max_bytes,
            topics=[snapshot.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        )

    def read_request(self, message: snapshot.FetchSnapshotRequest, version: int) -> FetchSnapshot:
        partition = only_partition(message.topics, "name", "partition")
        return FetchSnapshot(
            partition.current_leader_epoch,
            ReplicaKey(message.replica_id, Uuid(partition.replica_directory_id)),
            OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
            partition.position,
            message.max_bytes,
        )

    def encode_response(
        self, result: FetchSnapshotResult, version: int, listener_name: str
    ) -> snapshot.FetchSnapshotResponse:
        offset, epoch = result.snapshot_id or OffsetAndEpoch(0, 0)
        partition = snapshot.ResponsePartitionSnapshot(
            error_code=result.error,
            snapshot_id=snapshot.ResponseSnapshotId(end_offset=offset, epoch=epoch),
            current_leader=snapshot.LeaderIdAndEpoch(leader_id=result.leader_id, leader_epoch=result.epoch),
            size=result.size,
            position=result.position,
            unaligned_records=memoryview(result.data),
        )
        return snapshot.FetchSnapshotResponse(
            topics=[snapshot.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
            node_endpoints=node_endpoints(snapshot.NodeEndpoint, result, listener_name) if version >= 1 else [],
        )

    def decode_response(self, message: snapshot.FetchSnapshotResponse, listener_name: str) -> FetchSnapshotResult:
        partition = answered_partition(message, message.topics)
        return FetchSnapshotResult(
            *header(partition, partition.current_leader, message, listener_name),
            snapshot_id=OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
            size=partition.size,
            position=partition.position,
            data=bytes(partition.unaligned_records or b""),
        )
