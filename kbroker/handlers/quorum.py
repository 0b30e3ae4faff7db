"""The RPCs of the metadata quorum, which the Raft core answers (KIP-595, KIP-630, KIP-853, KIP-996).

Vote (key 52): a candidate asks for a vote, or whether it would get one. Served: 0 to 2.
BeginQuorumEpoch (key 53): a new leader makes itself known. Served: 0 and 1.
EndQuorumEpoch (key 54): the leader resigns. Served: 0 and 1.
FetchSnapshot (key 59): a replica of the metadata log fetches a snapshot, piece by piece. Served: 0 and 1.
AddRaftVoter (key 80): an observer is to become a voter. Served: 0 and 1.
RemoveRaftVoter (key 81): a voter is to become an observer. Served: 0.
UpdateRaftVoter (key 82): a voter reports its endpoints and levels of ``kraft.version`` to its leader. Served: 0.

``kbroker.raft_metadata.raft.rpcs`` handles the differences between versions. Fetch of the metadata log comes from
``handlers.fetch``.
"""

from __future__ import annotations

from typing import Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.refusals import log_rejection
from kbroker.handlers.registration import handler
from kbroker.wire.messages.add_raft_voter import AddRaftVoterRequest
from kbroker.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kbroker.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kbroker.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kbroker.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from kbroker.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from kbroker.wire.messages.vote import VoteRequest


def _sender(request: object) -> str:
    """The node that a request of the core names as its sender."""
    candidate = getattr(request, "candidate", None)
    sender = candidate.id if candidate is not None else getattr(request, "leader_id", None)
    return "a node" if sender is None else f"node {sender}"


async def handle(request: object, ctx: RequestContext) -> Any:
    """Have the Raft core answer a request. One for another cluster or partition is refused without it."""
    refused = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    # Imported when the first of these requests comes: a node alone in its quorum has none.
    from kbroker.raft_metadata.raft.rpcs import rpc_of
    from kbroker.raft_metadata.raft.rpcs.rpc import RpcError

    services, rpc = ctx.services, rpc_of(request)
    try:
        asked = rpc.decode_request(request, services.cluster_id, ctx.api_version)
    except RpcError as error:
        log_rejection(ctx, "a node", error.code, error.message)
        return rpc.refusal(error)
    try:
        result = await services.metadata.ask_quorum(asked)
    except ApiError as error:
        return rpc.refusal(RpcError(error.code, error.message or ""))
    code = getattr(result, "error", ErrorCode.NONE)
    if code:
        log_rejection(ctx, _sender(asked), code)
    return rpc.encode_response(result, ctx.api_version, ctx.connection.listener_name)


for _request_class in (
    VoteRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
):
    handler(_request_class)(handle)
