"""The messages of the metadata quorum as values (KIP-595, KIP-630, KIP-853, KIP-996).

A request has the name of its RPC (``Vote``), the response to it that name and ``Result`` (``VoteResult``). The Raft
core knows only these; ``rpcs`` turns them into Kafka's messages and back, and judges cluster ids, topic names and
versions. They are named tuples, because such classes are made quickly when a node starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft.voters import Endpoints, ReplicaKey, VoterEndpoint
from kbroker.types import OffsetAndEpoch
from kbroker.value_types import NamedTuple

NO_LEADER = -1
NO_ENDPOINTS: Mapping[str, VoterEndpoint] = {}


class Vote(NamedTuple):
    """``candidate`` asks for a vote in ``epoch``, or with ``pre_vote`` whether it would get one (KIP-996).

    ``last``: the end of the candidate's log. ``voter``: the receiver, None if the request does not name it.
    """

    epoch: int
    candidate: ReplicaKey
    last: OffsetAndEpoch
    pre_vote: bool
    voter: ReplicaKey | None = None


class VoteResult(NamedTuple):
    """``granted`` only if ``error`` is NONE."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    granted: bool = False


class BeginQuorumEpoch(NamedTuple):
    """The leader of ``epoch`` makes itself known to a voter that has not fetched for a while."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    voter: ReplicaKey | None = None


class BeginQuorumEpochResult(NamedTuple):
    """Acknowledges a leader."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints


class EndQuorumEpoch(NamedTuple):
    """The leader of ``epoch`` resigns; ``successors``: the other voters, those with the most of its log first."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    successors: tuple[ReplicaKey, ...] = ()


class EndQuorumEpochResult(NamedTuple):
    """Acknowledges a resignation."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints


class Fetch(NamedTuple):
    """A replica asks for the log from ``offset`` on, and thereby promises that all below is on its disk.

    ``last_epoch``: the epoch of its last record. ``high_watermark``: the one it knows; a leader with a higher one
    answers at once (KIP-1166).
    """

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    high_watermark: int
    max_bytes: int
    max_wait_ms: int


class FetchResult(NamedTuple):
    """``records``; or ``diverging``, where the follower's log leaves the leader's; or the snapshot to fetch first.

    ``diverging`` is the end, in the leader's log, of its last epoch that is not above the follower's.
    """

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    records: bytes = b""


class FetchSnapshot(NamedTuple):
    """A replica asks for the bytes of a snapshot from ``position`` on."""

    epoch: int
    replica: ReplicaKey
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


class FetchSnapshotResult(NamedTuple):
    """``size`` is that of the whole snapshot."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    snapshot_id: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


class AddVoter(NamedTuple):
    """Make an observer a voter. Unless ``ack_when_committed`` the leader answers once it has appended the change."""

    voter: ReplicaKey
    endpoints: Endpoints
    timeout_ms: int
    ack_when_committed: bool = True


class AddVoterResult(NamedTuple):
    """The outcome of :class:`AddVoter`."""

    error: ErrorCode
    message: str | None = None


class RemoveVoter(NamedTuple):
    """Make a voter an observer."""

    voter: ReplicaKey


class RemoveVoterResult(NamedTuple):
    """The outcome of :class:`RemoveVoter`."""

    error: ErrorCode
    message: str | None = None


class UpdateVoter(NamedTuple):
    """A voter gives its present endpoints, and the levels of ``kraft.version`` that it supports."""

    epoch: int
    voter: ReplicaKey
    endpoints: Endpoints
    min_kraft_version: int
    max_kraft_version: int


class UpdateVoterResult(NamedTuple):
    """The outcome of :class:`UpdateVoter`."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints


class UpgradeKRaftVersion(NamedTuple):
    """The controller that leads in ``epoch`` asks its own replica for a level of ``kraft.version`` (KIP-853)."""

    epoch: int
    level: int
    validate_only: bool = False


class UpgradeKRaftVersionResult(NamedTuple):
    """The outcome of :class:`UpgradeKRaftVersion`. The level is in the log then, and not yet committed."""

    error: ErrorCode
    message: str | None = None


class KRaftVersions(NamedTuple):
    """Asks for the levels of ``kraft.version`` that a node supports (an ApiVersions request)."""


class KRaftVersionsResult(NamedTuple):
    """The levels, if ``error`` is NONE."""

    error: ErrorCode
    min_version: int = 0
    max_version: int = 0


QuorumResult = (
    VoteResult | BeginQuorumEpochResult | EndQuorumEpochResult | FetchResult | FetchSnapshotResult | UpdateVoterResult
)
"""Responses that begin with an error, and with the epoch and leader that their sender knows."""

RaftRequest = (
    Vote
    | BeginQuorumEpoch
    | EndQuorumEpoch
    | Fetch
    | FetchSnapshot
    | AddVoter
    | RemoveVoter
    | UpdateVoter
    | UpgradeKRaftVersion
    | KRaftVersions
)

RaftResponse = (
    VoteResult
    | BeginQuorumEpochResult
    | EndQuorumEpochResult
    | FetchResult
    | FetchSnapshotResult
    | AddVoterResult
    | RemoveVoterResult
    | UpdateVoterResult
    | UpgradeKRaftVersionResult
    | KRaftVersionsResult
)


class Node(NamedTuple):
    """The destination of a request: a voter, or under a negative id one of ``controller.quorum.bootstrap.servers``."""

    id: int
    address: VoterEndpoint


class OutboundRequest(NamedTuple):
    """A request to send. The answer comes back as a :class:`Reply` with its ``correlation_id``."""

    correlation_id: int
    destination: Node
    request: RaftRequest


class InboundRequest(NamedTuple):
    """A request of another replica. Its response, now or later, comes with the same ``token``."""

    token: int
    request: RaftRequest


class Reply(NamedTuple):
    """The outcome of an :class:`OutboundRequest`; ``response`` is None if it failed.

    ``refused``: the address refused the connection, which is evidence that the node is down.
    """

    correlation_id: int
    source: Node
    response: RaftResponse | None
    refused: bool = False
    unsupported_version: bool = False
    """The peer serves no version that can express the request (Kafka before 4.0 and a pre-vote)."""


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
    """A Fetch that waits for records or the high watermark; it gets ``response`` if none come until the deadline."""

    token: int
    request: Fetch
    deadline_ms: int
    response: FetchResult
