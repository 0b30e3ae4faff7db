"""The quorum's responses as Kafka's, and back. The requests are in ``raft_requests``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.controller.features import KRAFT_VERSION
from kbroker.raft_metadata.raft_messages import (
    AddVoterResponse,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    KRaftVersionsResponse,
    QuorumResponse,
    RaftResponse,
    RemoveVoterResponse,
    UpdateVoterResponse,
    VoteResponse,
)
from kbroker.raft_metadata.voters import Endpoints, VoterEndpoint
from kbroker.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch
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


class RpcError(Exception):
    """A request or response that cannot be taken in; ``code`` stands, or is to stand, at its top level."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or None


# Out


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


def _leader_endpoint(cls: Callable[..., Any], response: QuorumResponse, listener_name: str) -> list[Any]:
    address = response.leader_endpoints.get(listener_name)
    if address is None or response.leader_id < 0:
        return []
    return [cls(node_id=response.leader_id, host=address.host, port=address.port)]


# In


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
