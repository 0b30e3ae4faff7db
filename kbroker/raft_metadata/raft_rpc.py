"""The quorum's messages as Kafka's requests and responses (the RPCs of KIP-595, KIP-630 and KIP-853), and back.

Each of these RPCs could serve many partitions and is used for one. What the Raft core need not know of is judged here:
the cluster id and the partition, whose errors stand at the top of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft_messages import (
    AddVoterRequest,
    AddVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    KRaftVersionsRequest,
    KRaftVersionsResponse,
    QuorumResponse,
    RaftRequest,
    RaftResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
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

KRAFT_VERSION = "kraft.version"
FIRST_FETCH_VERSION = 12
"""Fetch says where logs diverge from this version on."""


class RpcError(Exception):
    """A request or response that cannot be taken in; ``code`` stands, or is to stand, at its top level."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or None


class UnsupportedRpcVersion(Exception):
    """The version that the peer serves cannot say what the request means."""


# Requests out


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
            api.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in request.successors
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


# Requests in


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
            ReplicaKey(info.candidate_id, Uuid(info.candidate_directory_id))
            for info in partition.preferred_candidates
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


# Responses out


def encode_response(response: RaftResponse, version: int, listener_name: str) -> Any:
    """The response to a request that came in by ``listener_name``."""
    return _ENCODE_RESPONSE[type(response)](response, version, listener_name)


def encode_refusal(message: Any, error: RpcError) -> Any:
    """The response to a request that is not for this node's quorum."""
    return _REFUSALS[type(message)](error)


def _answer_vote(response: VoteResponse, version: int, listener_name: str) -> Any:
    partition = vote.ResponsePartitionData(
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
        vote_granted=response.granted,
    )
    return vote.VoteResponse(
        topics=[vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(vote.NodeEndpoint, response, listener_name) if version >= 1 else [],
    )


def _answer_begin(response: BeginQuorumEpochResponse, version: int, listener_name: str) -> Any:
    api = begin_quorum_epoch
    partition = api.ResponsePartitionData(
        error_code=response.error, leader_id=response.leader_id, leader_epoch=response.epoch
    )
    return api.BeginQuorumEpochResponse(
        topics=[api.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(api.NodeEndpoint, response, listener_name) if version >= 1 else [],
    )


def _answer_end(response: EndQuorumEpochResponse, version: int, listener_name: str) -> Any:
    api = end_quorum_epoch
    partition = api.ResponsePartitionData(
        error_code=response.error, leader_id=response.leader_id, leader_epoch=response.epoch
    )
    return api.EndQuorumEpochResponse(
        topics=[api.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(api.NodeEndpoint, response, listener_name) if version >= 1 else [],
    )


def _answer_fetch(response: FetchResponse, version: int, listener_name: str) -> Any:
    partition = fetch.PartitionData(
        error_code=response.error,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        records=memoryview(response.records),
        current_leader=fetch.LeaderIdAndEpoch(leader_id=response.leader_id, leader_epoch=response.epoch),
    )
    if response.diverging is not None:
        offset, epoch = response.diverging
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=epoch, end_offset=offset)
    if response.snapshot_id is not None:
        offset, epoch = response.snapshot_id
        partition.snapshot_id = fetch.SnapshotId(end_offset=offset, epoch=epoch)
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
        ],
        node_endpoints=_leader_endpoint(fetch.NodeEndpoint, response, listener_name) if version >= 17 else [],
    )


def _answer_fetch_snapshot(response: FetchSnapshotResponse, version: int, listener_name: str) -> Any:
    api = fetch_snapshot
    offset, epoch = response.snapshot_id or OffsetAndEpoch(0, 0)
    partition = api.ResponsePartitionSnapshot(
        error_code=response.error,
        snapshot_id=api.ResponseSnapshotId(end_offset=offset, epoch=epoch),
        current_leader=api.LeaderIdAndEpoch(leader_id=response.leader_id, leader_epoch=response.epoch),
        size=response.size,
        position=response.position,
        unaligned_records=memoryview(response.data),
    )
    return api.FetchSnapshotResponse(
        topics=[api.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(api.NodeEndpoint, response, listener_name) if version >= 1 else [],
    )


def _answer_add_voter(response: AddVoterResponse, version: int, listener_name: str) -> Any:
    return add_raft_voter.AddRaftVoterResponse(error_code=response.error, error_message=response.message)


def _answer_remove_voter(response: RemoveVoterResponse, version: int, listener_name: str) -> Any:
    return remove_raft_voter.RemoveRaftVoterResponse(error_code=response.error, error_message=response.message)


def _answer_update_voter(response: UpdateVoterResponse, version: int, listener_name: str) -> Any:
    address = response.leader_endpoints.get(listener_name)
    leader = update_raft_voter.CurrentLeader(leader_id=response.leader_id, leader_epoch=response.epoch)
    if address is not None:
        leader.host, leader.port = address
    return update_raft_voter.UpdateRaftVoterResponse(error_code=response.error, current_leader=leader)


_ENCODE_RESPONSE: Mapping[type[Any], Callable[[Any, int, str], Any]] = {
    VoteResponse: _answer_vote,
    BeginQuorumEpochResponse: _answer_begin,
    EndQuorumEpochResponse: _answer_end,
    FetchResponse: _answer_fetch,
    FetchSnapshotResponse: _answer_fetch_snapshot,
    AddVoterResponse: _answer_add_voter,
    RemoveVoterResponse: _answer_remove_voter,
    UpdateVoterResponse: _answer_update_voter,
}

_REFUSALS: Mapping[type[Any], Callable[[RpcError], Any]] = {
    vote.VoteRequest: lambda error: vote.VoteResponse(error_code=error.code),
    begin_quorum_epoch.BeginQuorumEpochRequest: lambda error: begin_quorum_epoch.BeginQuorumEpochResponse(
        error_code=error.code
    ),
    end_quorum_epoch.EndQuorumEpochRequest: lambda error: end_quorum_epoch.EndQuorumEpochResponse(
        error_code=error.code
    ),
    fetch.FetchRequest: lambda error: fetch.FetchResponse(error_code=error.code),
    fetch_snapshot.FetchSnapshotRequest: lambda error: fetch_snapshot.FetchSnapshotResponse(error_code=error.code),
    add_raft_voter.AddRaftVoterRequest: lambda error: add_raft_voter.AddRaftVoterResponse(
        error_code=error.code, error_message=error.message
    ),
    remove_raft_voter.RemoveRaftVoterRequest: lambda error: remove_raft_voter.RemoveRaftVoterResponse(
        error_code=error.code, error_message=error.message
    ),
    update_raft_voter.UpdateRaftVoterRequest: lambda error: update_raft_voter.UpdateRaftVoterResponse(
        error_code=error.code
    ),
}


# Responses in


def decode_response(message: Any, listener_name: str) -> RaftResponse:
    """What a response says; its endpoints are those of this node's ``listener_name``. :class:`RpcError` for an error
    at the top level, or for a response about something else."""
    response: RaftResponse = _DECODE_RESPONSE[type(message)](message, listener_name)
    return response


def _header(partition: Any, leader: Any, message: Any, listener_name: str) -> tuple[ErrorCode, int, int, Endpoints]:
    endpoints: Endpoints = {}
    for node in message.node_endpoints:
        if node.node_id == leader.leader_id:
            endpoints = {listener_name: VoterEndpoint(node.host, node.port)}
    return ErrorCode(partition.error_code), leader.leader_epoch, leader.leader_id, endpoints


def _checked(message: Any, topics: list[Any]) -> Any:
    if message.error_code:
        raise RpcError(ErrorCode(message.error_code))
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise RpcError(ErrorCode.INVALID_REQUEST, "the response is not about one partition")
    return topics[0].partitions[0]


def _take_vote(message: vote.VoteResponse, listener_name: str) -> VoteResponse:
    partition = _checked(message, message.topics)
    return VoteResponse(*_header(partition, partition, message, listener_name), granted=partition.vote_granted)


def _take_begin(message: begin_quorum_epoch.BeginQuorumEpochResponse, listener_name: str) -> BeginQuorumEpochResponse:
    partition = _checked(message, message.topics)
    return BeginQuorumEpochResponse(*_header(partition, partition, message, listener_name))


def _take_end(message: end_quorum_epoch.EndQuorumEpochResponse, listener_name: str) -> EndQuorumEpochResponse:
    partition = _checked(message, message.topics)
    return EndQuorumEpochResponse(*_header(partition, partition, message, listener_name))


def _take_fetch(message: fetch.FetchResponse, listener_name: str) -> FetchResponse:
    partition = _checked(message, message.responses)
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    return FetchResponse(
        *_header(partition, partition.current_leader, message, listener_name),
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        diverging=OffsetAndEpoch(diverging.end_offset, diverging.epoch) if diverging.epoch >= 0 else None,
        snapshot_id=(
            OffsetAndEpoch(snapshot.end_offset, snapshot.epoch)
            if snapshot.epoch >= 0 or snapshot.end_offset >= 0
            else None
        ),
        records=bytes(partition.records or b""),
    )


def _take_fetch_snapshot(message: fetch_snapshot.FetchSnapshotResponse, listener_name: str) -> FetchSnapshotResponse:
    partition = _checked(message, message.topics)
    snapshot = partition.snapshot_id
    return FetchSnapshotResponse(
        *_header(partition, partition.current_leader, message, listener_name),
        snapshot_id=OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
        size=partition.size,
        position=partition.position,
        data=bytes(partition.unaligned_records or b""),
    )


def _take_add_voter(message: add_raft_voter.AddRaftVoterResponse, listener_name: str) -> AddVoterResponse:
    return AddVoterResponse(ErrorCode(message.error_code), message.error_message)


def _take_remove_voter(message: remove_raft_voter.RemoveRaftVoterResponse, listener_name: str) -> RemoveVoterResponse:
    return RemoveVoterResponse(ErrorCode(message.error_code), message.error_message)


def _take_update_voter(message: update_raft_voter.UpdateRaftVoterResponse, listener_name: str) -> UpdateVoterResponse:
    leader = message.current_leader
    endpoints = {listener_name: VoterEndpoint(leader.host, leader.port)} if leader.host else {}
    return UpdateVoterResponse(ErrorCode(message.error_code), leader.leader_epoch, leader.leader_id, endpoints)


def _take_kraft_versions(message: api_versions.ApiVersionsResponse, listener_name: str) -> KRaftVersionsResponse:
    for feature in message.supported_features:
        if feature.name == KRAFT_VERSION:
            return KRaftVersionsResponse(ErrorCode(message.error_code), feature.min_version, feature.max_version)
    return KRaftVersionsResponse(ErrorCode(message.error_code))


_DECODE_RESPONSE: Mapping[type[Any], Callable[[Any, str], Any]] = {
    vote.VoteResponse: _take_vote,
    begin_quorum_epoch.BeginQuorumEpochResponse: _take_begin,
    end_quorum_epoch.EndQuorumEpochResponse: _take_end,
    fetch.FetchResponse: _take_fetch,
    fetch_snapshot.FetchSnapshotResponse: _take_fetch_snapshot,
    add_raft_voter.AddRaftVoterResponse: _take_add_voter,
    remove_raft_voter.RemoveRaftVoterResponse: _take_remove_voter,
    update_raft_voter.UpdateRaftVoterResponse: _take_update_voter,
    api_versions.ApiVersionsResponse: _take_kraft_versions,
}


# Addresses


def _listed(cls: Callable[..., Any], endpoints: Endpoints) -> list[Any]:
    return [cls(name=name, host=address.host, port=address.port) for name, address in endpoints.items()]


def _by_name(listed: Iterable[Any]) -> Endpoints:
    return {entry.name: VoterEndpoint(entry.host, entry.port) for entry in listed}


def _leader_endpoint(cls: Callable[..., Any], response: QuorumResponse, listener_name: str) -> list[Any]:
    address = response.leader_endpoints.get(listener_name)
    if address is None or response.leader_id < 0:
        return []
    return [cls(node_id=response.leader_id, host=address.host, port=address.port)]
