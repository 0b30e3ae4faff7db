"""Vote, BeginQuorumEpoch and EndQuorumEpoch on the wire (KIP-595, KIP-853, KIP-996)."""

from __future__ import annotations

from typing import Any

from kbroker.raft_metadata.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochResult,
    EndQuorumEpoch,
    EndQuorumEpochResult,
    Vote,
    VoteResult,
)
from kbroker.raft_metadata.raft.rpcs.rpc import (
    RequestT,
    ResultT,
    Rpc,
    UnsupportedRpcVersion,
    answered_partition,
    by_name,
    header,
    listed,
    node_endpoints,
    only_partition,
    voter_key,
)
from kbroker.raft_metadata.raft.voters import ReplicaKey
from kbroker.types import METADATA_TOPIC, OffsetAndEpoch, Uuid
from kbroker.wire.messages import begin_quorum_epoch as begin
from kbroker.wire.messages import end_quorum_epoch as end
from kbroker.wire.messages import vote


class _ElectionRpc(Rpc[RequestT, ResultT]):
    """The three have their topics and responses in common."""

    api: Any
    """The module of Kafka's messages."""

    def topics(self, partition: Any) -> list[Any]:
        """The topics of a request: one, with one partition."""
        return [self.api.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]

    def encode_response(self, result: Any, version: int, listener_name: str) -> Any:
        api = self.api
        partition = api.ResponsePartitionData(
            error_code=result.error, leader_id=result.leader_id, leader_epoch=result.epoch
        )
        return self.wire_response(
            topics=[api.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            node_endpoints=node_endpoints(api.NodeEndpoint, result, listener_name) if version >= 1 else [],
        )

    def decode_response(self, message: Any, listener_name: str) -> ResultT:
        partition = answered_partition(message, message.topics)
        result: ResultT = self.result(*header(partition, partition, message, listener_name))
        return result


class VoteRpc(_ElectionRpc[Vote, VoteResult]):
    """Vote (key 52). Version 1 has directory ids and the leader's address, version 2 pre-votes."""

    request, wire_request = Vote, vote.VoteRequest
    result, wire_response = VoteResult, vote.VoteResponse
    api = vote

    def encode_request(self, request: Vote, cluster_id: str, version: int) -> vote.VoteRequest:
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
        message = vote.VoteRequest(cluster_id=cluster_id, topics=self.topics(partition))
        if request.voter is not None:
            message.voter_id, partition.voter_directory_id = request.voter
        return message

    def read_request(self, message: vote.VoteRequest, version: int) -> Vote:
        partition = only_partition(message.topics, "topic_name", "partition_index")
        return Vote(
            partition.replica_epoch,
            ReplicaKey(partition.replica_id, Uuid(partition.replica_directory_id)),
            OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
            partition.pre_vote,
            voter_key(message.voter_id, partition.voter_directory_id),
        )

    def encode_response(self, result: VoteResult, version: int, listener_name: str) -> vote.VoteResponse:
        message: vote.VoteResponse = super().encode_response(result, version, listener_name)
        message.topics[0].partitions[0].vote_granted = result.granted
        return message

    def decode_response(self, message: vote.VoteResponse, listener_name: str) -> VoteResult:
        result = super().decode_response(message, listener_name)
        return result._replace(granted=message.topics[0].partitions[0].vote_granted)


class BeginQuorumEpochRpc(_ElectionRpc[BeginQuorumEpoch, BeginQuorumEpochResult]):
    """BeginQuorumEpoch (key 53). Version 1 has directory ids and addresses."""

    request, wire_request = BeginQuorumEpoch, begin.BeginQuorumEpochRequest
    result, wire_response = BeginQuorumEpochResult, begin.BeginQuorumEpochResponse
    api = begin

    def encode_request(self, request: BeginQuorumEpoch, cluster_id: str, version: int) -> begin.BeginQuorumEpochRequest:
        partition = begin.PartitionData(leader_id=request.leader_id, leader_epoch=request.epoch)
        message = begin.BeginQuorumEpochRequest(
            cluster_id=cluster_id,
            topics=self.topics(partition),
            leader_endpoints=listed(begin.LeaderEndpoint, request.leader_endpoints),
        )
        if request.voter is not None:
            message.voter_id, partition.voter_directory_id = request.voter
        return message

    def read_request(self, message: begin.BeginQuorumEpochRequest, version: int) -> BeginQuorumEpoch:
        partition = only_partition(message.topics, "topic_name", "partition_index")
        return BeginQuorumEpoch(
            partition.leader_epoch,
            partition.leader_id,
            by_name(message.leader_endpoints),
            voter_key(message.voter_id, partition.voter_directory_id),
        )


class EndQuorumEpochRpc(_ElectionRpc[EndQuorumEpoch, EndQuorumEpochResult]):
    """EndQuorumEpoch (key 54). Version 1 has directory ids and addresses."""

    request, wire_request = EndQuorumEpoch, end.EndQuorumEpochRequest
    result, wire_response = EndQuorumEpochResult, end.EndQuorumEpochResponse
    api = end

    def encode_request(self, request: EndQuorumEpoch, cluster_id: str, version: int) -> end.EndQuorumEpochRequest:
        partition = end.PartitionData(
            leader_id=request.leader_id,
            leader_epoch=request.epoch,
            preferred_successors=[key.id for key in request.successors],
            preferred_candidates=[
                end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                for key in request.successors
            ],
        )
        return end.EndQuorumEpochRequest(
            cluster_id=cluster_id,
            topics=self.topics(partition),
            leader_endpoints=listed(end.LeaderEndpoint, request.leader_endpoints),
        )

    def read_request(self, message: end.EndQuorumEpochRequest, version: int) -> EndQuorumEpoch:
        partition = only_partition(message.topics, "topic_name", "partition_index")
        if version == 0:
            successors = tuple(ReplicaKey(node_id) for node_id in partition.preferred_successors)
        else:
            successors = tuple(
                ReplicaKey(info.candidate_id, Uuid(info.candidate_directory_id))
                for info in partition.preferred_candidates
            )
        return EndQuorumEpoch(
            partition.leader_epoch, partition.leader_id, by_name(message.leader_endpoints), successors
        )
