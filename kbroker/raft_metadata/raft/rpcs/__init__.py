"""The RPCs of the metadata quorum on the wire: a class for each, and the table of them.

``elections``, ``replication`` and ``voter_changes`` have the RPCs whose messages the modules of these names in ``raft``
send and receive; those decide, and nothing is decided here. Begin with ``rpc``, the base class, which says what an RPC
can do.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.raft_metadata.raft.rpcs.elections import BeginQuorumEpochRpc, EndQuorumEpochRpc, VoteRpc
from kbroker.raft_metadata.raft.rpcs.replication import FetchRpc, FetchSnapshotRpc
from kbroker.raft_metadata.raft.rpcs.rpc import Rpc
from kbroker.raft_metadata.raft.rpcs.voter_changes import AddVoterRpc, KRaftVersionsRpc, RemoveVoterRpc, UpdateVoterRpc

RPCS: Final[tuple[Rpc[Any, Any], ...]] = (
    VoteRpc(),
    BeginQuorumEpochRpc(),
    EndQuorumEpochRpc(),
    FetchRpc(),
    FetchSnapshotRpc(),
    AddVoterRpc(),
    RemoveVoterRpc(),
    UpdateVoterRpc(),
    KRaftVersionsRpc(),
)

_BY_REQUEST: Final = {cls: rpc for rpc in RPCS for cls in (rpc.request, rpc.wire_request)}


def rpc_of(request: Any) -> Rpc[Any, Any]:
    """The RPC of a request, be it the core's or Kafka's."""
    return _BY_REQUEST[type(request)]
