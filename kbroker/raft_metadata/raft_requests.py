"""The quorum's requests as Kafka's (the RPCs of KIP-595, KIP-630 and KIP-853), and back.

Each of these RPCs could serve many partitions and is used for one. What the Raft core need not know of is judged here:
the cluster id and the partition, whose errors stand at the top of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft_messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    KRaftVersionsRequest,
    RaftRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from kbroker.raft_metadata.raft_responses import RpcError
from kbroker.raft_metadata.voters import Endpoints, ReplicaKey, VoterEndpoint
from kbroker.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch, Uuid
from kbroker.wire.messages import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)

FIRST_FETCH_VERSION = 12
"""Fetch says where logs diverge from this version on."""


class UnsupportedRpcVersion(Exception):
    """The version that the peer serves cannot say what the request means."""


# Out


def encode_request(request: RaftRequest, cluster_id: str, version: int) -> Any:
    """The request for a peer that serves ``version``."""
    return _ENCODE_REQUEST[type(request)](request, cluster_id, version)


def _vote(request: VoteRequest, cluster_id: str, version: int) -> Any:
    if request.pre_vote and version < 2:
        raise UnsupportedRpcVersion("Vote knows pre-votes from version 2 on")
    partition = vote.PartitionData(
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        last_offset_epoch=request.last.epoch,
        last_offset=request.last.offset,
        pre_vote=request.pre_vote,
        replica_directory_id=request.candidate.directory_id,
    )
    message = vote.VoteRequest(
        cluster_id=cluster_id, topics=[vote.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )
    if request.voter is not None:
        message.voter_id, partition.voter_directory_id = request.voter
    return message


def _begin(request: BeginQuorumEpochRequest, cluster_id: str, version: int) -> Any:
    api = begin_quorum_epoch
    partition = api.PartitionData(leader_id=request.leader_id, leader_epoch=request.epoch)
    message = api.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[api.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=_listed(api.LeaderEndpoint, request.leader_endpoints),
    )
    if request.voter is not None:
        message.voter_id, partition.voter_directory_id = request.voter
    return message


def _end(request: EndQuorumEpochRequest, cluster_id: str, version: int) -> Any:
    api = end_quorum_epoch
    partition = api.PartitionData(
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.id for key in request.successors],
        preferred_candidates=[
            api.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id) for key in request.successors
        ],
    )
    return api.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[api.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=_listed(api.LeaderEndpoint, request.leader_endpoints),
    )


def _fetch(request: FetchRequest, cluster_id: str, version: int) -> Any:
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


def _fetch_snapshot(request: FetchSnapshotRequest, cluster_id: str, version: int) -> Any:
    api = fetch_snapshot
    partition = api.PartitionSnapshot(
        current_leader_epoch=request.epoch,
        snapshot_id=api.SnapshotId(end_offset=request.snapshot_id.offset, epoch=request.snapshot_id.epoch),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return api.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.max_bytes,
        topics=[api.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def _add_voter(request: AddVoterRequest, cluster_id: str, version: int) -> Any:
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=request.timeout_ms,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id,
        listeners=_listed(add_raft_voter.Listener, request.endpoints),
        ack_when_committed=request.ack_when_committed or version < 1,
    )


def _remove_voter(request: RemoveVoterRequest, cluster_id: str, version: int) -> Any:
    return remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=request.voter.id, voter_directory_id=request.voter.directory_id
    )


def _update_voter(request: UpdateVoterRequest, cluster_id: str, version: int) -> Any:
    api = update_raft_voter
    return api.UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id,
        listeners=_listed(api.Listener, request.endpoints),
        kraft_version_feature=api.KRaftVersionFeature(
            min_supported_version=request.min_kraft_version, max_supported_version=request.max_kraft_version
        ),
    )


def _kraft_versions(request: KRaftVersionsRequest, cluster_id: str, version: int) -> Any:
    return api_versions.ApiVersionsRequest(client_software_name="kbroker", client_software_version="1")


_ENCODE_REQUEST: Mapping[type[Any], Callable[[Any, str, int], Any]] = {
    VoteRequest: _vote,
    BeginQuorumEpochRequest: _begin,
    EndQuorumEpochRequest: _end,
    FetchRequest: _fetch,
    FetchSnapshotRequest: _fetch_snapshot,
    AddVoterRequest: _add_voter,
    RemoveVoterRequest: _remove_voter,
    UpdateVoterRequest: _update_voter,
    KRaftVersionsRequest: _kraft_versions,
}

MESSAGES: Mapping[type[Any], type[Any]] = {
    VoteRequest: vote.VoteRequest,
    BeginQuorumEpochRequest: begin_quorum_epoch.BeginQuorumEpochRequest,
    EndQuorumEpochRequest: end_quorum_epoch.EndQuorumEpochRequest,
    FetchRequest: fetch.FetchRequest,
    FetchSnapshotRequest: fetch_snapshot.FetchSnapshotRequest,
    AddVoterRequest: add_raft_voter.AddRaftVoterRequest,
    RemoveVoterRequest: remove_raft_voter.RemoveRaftVoterRequest,
    UpdateVoterRequest: update_raft_voter.UpdateRaftVoterRequest,
    KRaftVersionsRequest: api_versions.ApiVersionsRequest,
}
"""Which of Kafka's requests carries which of the quorum's."""


# In


def decode_request(message: Any, cluster_id: str, version: int) -> RaftRequest:
    """What a request asks; :class:`RpcError` if it is for another cluster or partition."""
    if message.cluster_id is not None and message.cluster_id != cluster_id:
        raise RpcError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "{message.cluster_id}" doesn\'t match the cluster id "{cluster_id}"',
        )
    request: RaftRequest = _DECODE_REQUEST[type(message)](message, version)
    return request


def _read_vote(message: vote.VoteRequest, version: int) -> VoteRequest:
    partition = _only_partition(message.topics, version)
    return VoteRequest(
        partition.replica_epoch,
        ReplicaKey(partition.replica_id, Uuid(partition.replica_directory_id)),
        OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
        partition.pre_vote,
        _voter_key(message.voter_id, partition.voter_directory_id),
    )


def _read_begin(message: begin_quorum_epoch.BeginQuorumEpochRequest, version: int) -> BeginQuorumEpochRequest:
    partition = _only_partition(message.topics, version)
    return BeginQuorumEpochRequest(
        partition.leader_epoch,
        partition.leader_id,
        _by_name(message.leader_endpoints),
        _voter_key(message.voter_id, partition.voter_directory_id),
    )


def _read_end(message: end_quorum_epoch.EndQuorumEpochRequest, version: int) -> EndQuorumEpochRequest:
    partition = _only_partition(message.topics, version)
    if version == 0:
        successors = tuple(ReplicaKey(node_id) for node_id in partition.preferred_successors)
    else:
        successors = tuple(
            ReplicaKey(info.candidate_id, Uuid(info.candidate_directory_id)) for info in partition.preferred_candidates
        )
    return EndQuorumEpochRequest(
        partition.leader_epoch, partition.leader_id, _by_name(message.leader_endpoints), successors
    )


def _read_fetch(message: fetch.FetchRequest, version: int) -> FetchRequest:
    partition = _only_partition(message.topics, version)
    replica_id = message.replica_state.replica_id if version >= 15 else message.replica_id
    return FetchRequest(
        partition.current_leader_epoch,
        ReplicaKey(replica_id, Uuid(partition.replica_directory_id)),
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.high_watermark,
        message.max_bytes,
        message.max_wait_ms,
    )


def _read_fetch_snapshot(message: fetch_snapshot.FetchSnapshotRequest, version: int) -> FetchSnapshotRequest:
    partition = _only_partition(message.topics, version)
    return FetchSnapshotRequest(
        partition.current_leader_epoch,
        ReplicaKey(message.replica_id, Uuid(partition.replica_directory_id)),
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        message.max_bytes,
    )


def _read_add_voter(message: add_raft_voter.AddRaftVoterRequest, version: int) -> AddVoterRequest:
    return AddVoterRequest(
        ReplicaKey(message.voter_id, Uuid(message.voter_directory_id)),
        _by_name(message.listeners),
        message.timeout_ms,
        message.ack_when_committed,
    )


def _read_remove_voter(message: remove_raft_voter.RemoveRaftVoterRequest, version: int) -> RemoveVoterRequest:
    return RemoveVoterRequest(ReplicaKey(message.voter_id, Uuid(message.voter_directory_id)))


def _read_update_voter(message: update_raft_voter.UpdateRaftVoterRequest, version: int) -> UpdateVoterRequest:
    return UpdateVoterRequest(
        message.current_leader_epoch,
        ReplicaKey(message.voter_id, Uuid(message.voter_directory_id)),
        _by_name(message.listeners),
        message.kraft_version_feature.min_supported_version,
        message.kraft_version_feature.max_supported_version,
    )


_DECODE_REQUEST: Mapping[type[Any], Callable[[Any, int], Any]] = {
    vote.VoteRequest: _read_vote,
    begin_quorum_epoch.BeginQuorumEpochRequest: _read_begin,
    end_quorum_epoch.EndQuorumEpochRequest: _read_end,
    fetch.FetchRequest: _read_fetch,
    fetch_snapshot.FetchSnapshotRequest: _read_fetch_snapshot,
    add_raft_voter.AddRaftVoterRequest: _read_add_voter,
    remove_raft_voter.RemoveRaftVoterRequest: _read_remove_voter,
    update_raft_voter.UpdateRaftVoterRequest: _read_update_voter,
}


def _only_partition(topics: list[Any], version: int) -> Any:
    """Partition 0 of the metadata topic, by name or (Fetch v13+) by id; anything else is INVALID_REQUEST."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        topic, partition = topics[0], topics[0].partitions[0]
        if isinstance(topic, fetch.FetchTopic):
            named = topic.topic_id == METADATA_TOPIC_ID if version >= 13 else topic.topic == METADATA_TOPIC
            index = partition.partition
        elif isinstance(topic, fetch_snapshot.TopicSnapshot):
            named, index = topic.name == METADATA_TOPIC, partition.partition
        else:
            named, index = topic.topic_name == METADATA_TOPIC, partition.partition_index
        if named and index == 0:
            return partition
    raise RpcError(ErrorCode.INVALID_REQUEST)


def _voter_key(voter_id: int, directory_id: bytes) -> ReplicaKey | None:
    return None if voter_id < 0 else ReplicaKey(voter_id, Uuid(directory_id))


# Addresses


def _listed(cls: Callable[..., Any], endpoints: Endpoints) -> list[Any]:
    return [cls(name=name, host=address.host, port=address.port) for name, address in endpoints.items()]


def _by_name(listed: Iterable[Any]) -> Endpoints:
    return {entry.name: VoterEndpoint(entry.host, entry.port) for entry in listed}
