"""What the replicas of the metadata log say to one another (KIP-595, KIP-630, KIP-853, KIP-996), as values.

The Raft core deals in these alone; ``raft_requests`` and ``raft_responses`` turn them into Kafka's and back, and judge
what the core need not know of: cluster ids, topic names, versions. Named tuples, since the
classes are made quickly when a node starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.voters import Endpoints, ReplicaKey, VoterEndpoint
from kbroker.types import OffsetAndEpoch

NO_LEADER = -1
NO_ENDPOINTS: Mapping[str, VoterEndpoint] = {}


class VoteRequest(NamedTuple):
    """``candidate`` asks for a vote in ``epoch``; ``pre_vote``: whether it would be given (KIP-996).

    ``last``: the end of the candidate's log. ``voter``: whom it is meant for, None if the request does not say.
    """

    epoch: int
    candidate: ReplicaKey
    last: OffsetAndEpoch
    pre_vote: bool
    voter: ReplicaKey | None = None


class VoteResponse(NamedTuple):
    """``granted`` only if ``error`` is NONE."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    granted: bool = False


class BeginQuorumEpochRequest(NamedTuple):
    """The leader of ``epoch`` makes itself known to a voter that has not fetched for a while."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    voter: ReplicaKey | None = None


class BeginQuorumEpochResponse(NamedTuple):
    """Acknowledges a leader."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints


class EndQuorumEpochRequest(NamedTuple):
    """The leader of ``epoch`` resigns; ``successors``: the voters it thinks best, the best first."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    successors: tuple[ReplicaKey, ...] = ()


class EndQuorumEpochResponse(NamedTuple):
    """Acknowledges a resignation."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints


class FetchRequest(NamedTuple):
    """A replica asks for what follows ``offset``, and thereby promises that all below is on its disk.

    ``last_epoch``: the epoch of its last record. ``high_watermark``: what it knows of; a leader that knows better
    answers at once (KIP-1166).
    """

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    high_watermark: int
    max_bytes: int
    max_wait_ms: int


class FetchResponse(NamedTuple):
    """``records``, or where the follower's log ends the leader's (``diverging``), or the snapshot to fetch first."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    records: bytes = b""


class FetchSnapshotRequest(NamedTuple):
    """A replica asks for the bytes of a snapshot from ``position`` on."""

    epoch: int
    replica: ReplicaKey
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


class FetchSnapshotResponse(NamedTuple):
    """``size`` is that of the whole snapshot."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    snapshot_id: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


class AddVoterRequest(NamedTuple):
    """Make an observer a voter. ``ack_when_committed`` false: answer once it is in the leader's log."""

    voter: ReplicaKey
    endpoints: Endpoints
    timeout_ms: int
    ack_when_committed: bool = True


class AddVoterResponse(NamedTuple):
    """How it went."""

    error: ErrorCode
    message: str | None = None


class RemoveVoterRequest(NamedTuple):
    """Make a voter an observer."""

    voter: ReplicaKey


class RemoveVoterResponse(NamedTuple):
    """How it went."""

    error: ErrorCode
    message: str | None = None


class UpdateVoterRequest(NamedTuple):
    """A voter tells where it is now, and which levels of ``kraft.version`` it can do."""

    epoch: int
    voter: ReplicaKey
    endpoints: Endpoints
    min_kraft_version: int
    max_kraft_version: int


class UpdateVoterResponse(NamedTuple):
    """How it went."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints


class KRaftVersionsRequest(NamedTuple):
    """Which levels of ``kraft.version`` a node can do (an ApiVersions request)."""


class KRaftVersionsResponse(NamedTuple):
    """``error`` other than NONE: it did not say."""

    error: ErrorCode
    min_version: int = 0
    max_version: int = 0


QuorumResponse = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | UpdateVoterResponse
)
"""Responses that say, before anything else, how the request fared (``error``) and how the sender sees the epoch."""

RaftRequest = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | KRaftVersionsRequest
)

RaftResponse = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | AddVoterResponse
    | RemoveVoterResponse
    | UpdateVoterResponse
    | KRaftVersionsResponse
)


class Node(NamedTuple):
    """Whom a request goes to: a voter, or under a negative id one of ``controller.quorum.bootstrap.servers``."""

    id: int
    address: VoterEndpoint


class OutboundRequest(NamedTuple):
    """A request to send. The answer comes back as a :class:`Reply` with its ``correlation_id``."""

    correlation_id: int
    destination: Node
    request: RaftRequest


class InboundRequest(NamedTuple):
    """A request that came in. ``token`` names it when its response is given, now or later."""

    token: int
    request: RaftRequest


class Reply(NamedTuple):
    """The answer to an :class:`OutboundRequest`; ``response`` None: it failed.

    ``refused``: nobody listens at the address, which is evidence that the node is down.
    """

    correlation_id: int
    source: Node
    response: RaftResponse | None
    refused: bool = False
    unsupported_version: bool = False
    """The peer does not know the version of the request (an older Kafka asked for a pre-vote)."""


class OutboundResponse(NamedTuple):
    """The response to the :class:`InboundRequest` of that token."""

    token: int
    response: RaftResponse


RaftMessage = InboundRequest | Reply


class SnapshotChunk(NamedTuple):
    """The bytes of a snapshot at ``position``; with the last of them the snapshot takes the log's place."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes
    is_last: bool


class PendingFetch(NamedTuple):
    """A Fetch that waits for records or for the high watermark; ``response`` is what it gets if none come."""

    token: int
    request: FetchRequest
    deadline_ms: int
    response: FetchResponse
