"""AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, and the ApiVersions of a voter to be, on the wire (KIP-853)."""

from __future__ import annotations

from typing import Any

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.features import KRAFT_VERSION
from kbroker.raft_metadata.raft.messages import (
    AddVoter,
    AddVoterResult,
    KRaftVersions,
    KRaftVersionsResult,
    RemoveVoter,
    RemoveVoterResult,
    UpdateVoter,
    UpdateVoterResult,
)
from kbroker.raft_metadata.raft.rpcs.rpc import RequestT, ResultT, Rpc, RpcError, by_name, listed
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint
from kbroker.types import Uuid
from kbroker.wire.messages import add_raft_voter, api_versions, remove_raft_voter, update_raft_voter


class _MembershipRpc(Rpc[RequestT, ResultT]):
    """The responses of AddRaftVoter and RemoveRaftVoter: an error and its message."""

    def encode_response(self, result: Any, version: int, listener_name: str) -> Any:
        return self.wire_response(error_code=result.error, error_message=result.message)

    def decode_response(self, message: Any, listener_name: str) -> ResultT:
        result: ResultT = self.result(ErrorCode.of(message.error_code), message.error_message)
        return result

    def refusal(self, error: RpcError) -> Any:
        return self.wire_response(error_code=error.code, error_message=error.message)


class AddVoterRpc(_MembershipRpc[AddVoter, AddVoterResult]):
    """AddRaftVoter (key 80). Version 1 has ``ack_when_committed``."""

    request, wire_request = AddVoter, add_raft_voter.AddRaftVoterRequest
    result, wire_response = AddVoterResult, add_raft_voter.AddRaftVoterResponse

    def encode_request(self, request: AddVoter, cluster_id: str, version: int) -> add_raft_voter.AddRaftVoterRequest:
        return add_raft_voter.AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=request.timeout_ms,
            voter_id=request.voter.id,
            voter_directory_id=request.voter.directory_id,
            listeners=listed(add_raft_voter.Listener, request.endpoints),
            ack_when_committed=request.ack_when_committed or version < 1,
        )

    def read_request(self, message: add_raft_voter.AddRaftVoterRequest, version: int) -> AddVoter:
        return AddVoter(
            ReplicaKey(message.voter_id, Uuid(message.voter_directory_id)),
            by_name(message.listeners),
            message.timeout_ms,
            message.ack_when_committed,
        )


class RemoveVoterRpc(_MembershipRpc[RemoveVoter, RemoveVoterResult]):
    """RemoveRaftVoter (key 81)."""

    request, wire_request = RemoveVoter, remove_raft_voter.RemoveRaftVoterRequest
    result, wire_response = RemoveVoterResult, remove_raft_voter.RemoveRaftVoterResponse

    def encode_request(
        self, request: RemoveVoter, cluster_id: str, version: int
    ) -> remove_raft_voter.RemoveRaftVoterRequest:
        return remove_raft_voter.RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=request.voter.id, voter_directory_id=request.voter.directory_id
        )

    def read_request(self, message: remove_raft_voter.RemoveRaftVoterRequest, version: int) -> RemoveVoter:
        return RemoveVoter(ReplicaKey(message.voter_id, Uuid(message.voter_directory_id)))


class UpdateVoterRpc(Rpc[UpdateVoter, UpdateVoterResult]):
    """UpdateRaftVoter (key 82)."""

    request, wire_request = UpdateVoter, update_raft_voter.UpdateRaftVoterRequest
    result, wire_response = UpdateVoterResult, update_raft_voter.UpdateRaftVoterResponse

    def encode_request(
        self, request: UpdateVoter, cluster_id: str, version: int
    ) -> update_raft_voter.UpdateRaftVoterRequest:
        api = update_raft_voter
        return api.UpdateRaftVoterRequest(
            cluster_id=cluster_id,
            current_leader_epoch=request.epoch,
            voter_id=request.voter.id,
            voter_directory_id=request.voter.directory_id,
            listeners=listed(api.Listener, request.endpoints),
            kraft_version_feature=api.KRaftVersionFeature(
                min_supported_version=request.min_kraft_version, max_supported_version=request.max_kraft_version
            ),
        )

    def read_request(self, message: update_raft_voter.UpdateRaftVoterRequest, version: int) -> UpdateVoter:
        return UpdateVoter(
            message.current_leader_epoch,
            ReplicaKey(message.voter_id, Uuid(message.voter_directory_id)),
            by_name(message.listeners),
            message.kraft_version_feature.min_supported_version,
            message.kraft_version_feature.max_supported_version,
        )

    def encode_response(
        self, result: UpdateVoterResult, version: int, listener_name: str
    ) -> update_raft_voter.UpdateRaftVoterResponse:
        address = result.leader_endpoints.get(listener_name)
        leader = update_raft_voter.CurrentLeader(leader_id=result.leader_id, leader_epoch=result.epoch)
        if address is not None:
            leader.host, leader.port = address
        return update_raft_voter.UpdateRaftVoterResponse(error_code=result.error, current_leader=leader)

    def decode_response(
        self, message: update_raft_voter.UpdateRaftVoterResponse, listener_name: str
    ) -> UpdateVoterResult:
        leader = message.current_leader
        endpoints = {listener_name: VoterEndpoint(leader.host, leader.port)} if leader.host else {}
        return UpdateVoterResult(ErrorCode.of(message.error_code), leader.leader_epoch, leader.leader_id, endpoints)


class KRaftVersionsRpc(Rpc[KRaftVersions, KRaftVersionsResult]):
    """ApiVersions (key 18), as a leader sends it to a voter to be. The handler of ApiVersions serves it."""

    request, wire_request = KRaftVersions, api_versions.ApiVersionsRequest
    result, wire_response = KRaftVersionsResult, api_versions.ApiVersionsResponse

    def encode_request(self, request: KRaftVersions, cluster_id: str, version: int) -> api_versions.ApiVersionsRequest:
        return api_versions.ApiVersionsRequest(client_software_name="kbroker", client_software_version="1")

    def decode_response(self, message: api_versions.ApiVersionsResponse, listener_name: str) -> KRaftVersionsResult:
        error = ErrorCode.of(message.error_code)
        for feature in message.supported_features:
            if feature.name == KRAFT_VERSION:
                return KRaftVersionsResult(error, feature.min_version, feature.max_version)
        return KRaftVersionsResult(error)
