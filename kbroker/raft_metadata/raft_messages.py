"""What the replicas of the metadata log say to one another (KIP-595, KIP-630, KIP-853, KIP-996), as values.

The Raft core deals in these alone; ``raft_rpc`` turns them into Kafka's requests and responses and back, and judges
there what the core need not know of: cluster ids, topic names, versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.voters import Endpoints, ReplicaKey, VoterEndpoint
from kbroker.types import OffsetAndEpoch

NO_LEADER = -1
NO_ENDPOINTS: Mapping[str, VoterEndpoint] = {}


@dataclass(frozen=True, slots=True)
class QuorumResponse:
    """What every response of the quorum says: how the request fared, and the sender's view of the epoch."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """``candidate`` asks for a vote in ``epoch``; ``pre_vote``: whether it would be given (KIP-996).

    ``last``: the end of the candidate's log. ``voter``: whom it is meant for, None if the request does not say.
    """

    epoch: int
    candidate: ReplicaKey
    last: OffsetAndEpoch
    pre_vote: bool
    voter: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class VoteResponse(QuorumResponse):
    """``granted`` only if ``error`` is NONE."""

    granted: bool = False


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """The leader of ``epoch`` makes itself known to a voter that has not fetched for a while."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    voter: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse(QuorumResponse):
    """Acknowledges a leader."""


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """The leader of ``epoch`` resigns; ``successors``: the voters it thinks best, the best first."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    successors: tuple[ReplicaKey, ...] = ()


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse(QuorumResponse):
    """Acknowledges a resignation."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
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


@dataclass(frozen=True, slots=True)
class FetchResponse(QuorumResponse):
    """``records``, or where the follower's log ends the leader's (``diverging``), or the snapshot to fetch first."""

    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    records: bytes = b""


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """A replica asks for the bytes of a snapshot from ``position`` on."""

    epoch: int
    replica: ReplicaKey
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse(QuorumResponse):
    """``size`` is that of the whole snapshot."""

    snapshot_id: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """Make an observer a voter. ``ack_when_committed`` false: answer once it is in the leader's log."""

    voter: ReplicaKey
    endpoints: Endpoints
    timeout_ms: int
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class AddVoterResponse:
    """How it went."""

    error: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """Make a voter an observer."""

    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class RemoveVoterResponse:
    """How it went."""

    error: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """A voter tells where it is now, and which levels of ``kraft.version`` it can do."""

    epoch: int
    voter: ReplicaKey
    endpoints: Endpoints
    min_kraft_version: int
    max_kraft_version: int


@dataclass(frozen=True, slots=True)
class UpdateVoterResponse(QuorumResponse):
    """How it went."""


@dataclass(frozen=True, slots=True)
class KRaftVersionsRequest:
    """Which levels of ``kraft.version`` a node can do (an ApiVersions request)."""


@dataclass(frozen=True, slots=True)
class KRaftVersionsResponse:
    """``error`` other than NONE: it did not say."""

    error: ErrorCode
    min_version: int = 0
    max_version: int = 0


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


@dataclass(frozen=True, slots=True)
class Node:
    """Whom a request goes to: a voter, or under a negative id one of ``controller.quorum.bootstrap.servers``."""

    id: int
    address: VoterEndpoint


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """A request to send. The answer comes back as a :class:`Reply` with its ``correlation_id``."""

    correlation_id: int
    destination: Node
    request: RaftRequest


@dataclass(frozen=True, slots=True)
class InboundRequest:
    """A request that came in. ``token`` names it when its response is given, now or later."""

    token: int
    request: RaftRequest


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to an :class:`OutboundRequest`; ``response`` None: it failed.

    ``refused``: nobody listens at the address, which is evidence that the node is down.
    """

    correlation_id: int
    source: Node
    response: RaftResponse | None
    refused: bool = False
    unsupported_version: bool = False
    """The peer does not know the version of the request (an older Kafka asked for a pre-vote)."""


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """The response to the :class:`InboundRequest` of that token."""

    token: int
    response: RaftResponse


RaftMessage = InboundRequest | Reply


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """The bytes of a snapshot at ``position``; with the last of them the snapshot takes the log's place."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes
    is_last: bool


@dataclass(slots=True)
class PendingFetch:
    """A Fetch that waits for records or for the high watermark."""

    token: int
    request: FetchRequest
    deadline_ms: int
    response: FetchResponse = field(repr=False)
