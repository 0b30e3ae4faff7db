"""One classic group: its members, its state, and the invariants between them.

The rules that change a group are in `classic_protocol`; this file holds its state.
Rules: Kafka's ``ClassicGroup`` and ``ClassicGroupState`` (4.3).
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Literal

from kbroker.cores.coordinator.result import Token
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import NamedTuple, dataclass, field
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.records.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type whose member metadata names topics; Connect and others use their own."""

_VERSION_BYTES = 2
"""The metadata opens with its version as int16."""

UNKNOWN_MEMBER_ID = ""
"""The member id that a client sends before it has one."""


class ClassicGroupState(Enum):
    """The five states, with the names that DescribeGroups shows."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for members to join. All joined, or the rebalance timeout: COMPLETING_REBALANCE, or EMPTY."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignment: STABLE. A join with new metadata or a leave: PREPARING_REBALANCE."""
    STABLE = "Stable"
    """Members hold assignments. A join, a leave, an expiry: PREPARING_REBALANCE."""
    DEAD = "Dead"
    """Deleted or unloaded; answers COORDINATOR_NOT_AVAILABLE."""
    EMPTY = "Empty"
    """No members, maybe offsets. A join: PREPARING_REBALANCE. No offsets left: DEAD."""


_S = ClassicGroupState
VALID_PREVIOUS_STATES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    _S.PREPARING_REBALANCE: frozenset({_S.STABLE, _S.COMPLETING_REBALANCE, _S.EMPTY}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.DEAD: frozenset(_S),
}


class Timer(NamedTuple):
    """Key of a deadline: a member's session, a group's join phase, or its sync phase."""

    kind: Literal["session", "join", "sync"]
    group_id: str
    member_id: str = ""


@dataclass(slots=True)
class ClassicMember:
    """A member of a classic group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    """(assignor name, subscription metadata), most wanted first."""
    assignment: bytes = b""
    awaiting_join: Token | None = None
    awaiting_sync: Token | None = None
    is_new: bool = False
    """Joined in the rebalance under way: its long poll may be given up before it completes."""
    session_timer: Timer | None = None
    """The key of its session's deadline, made once: every heartbeat and commit moves that deadline."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str) -> bytes:
        """The subscription given for that assignor; empty if the member does not know it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The first of the member's assignors that every member knows."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(slots=True)
class ClassicGroup:
    """A classic group's state.

    ``members`` keeps join order. ``static_members`` maps an instance id to a key of ``members``.
    ``pending_join_members`` are ids handed out (KIP-394) whose join has not come; disjoint from ``members``.
    """

    group_id: str
    state: ClassicGroupState = ClassicGroupState.EMPTY
    previous_state: ClassicGroupState = ClassicGroupState.EMPTY
    state_timestamp_ms: int | None = None
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_join_members: set[str] = field(default_factory=set)
    pending_sync_members: set[str] = field(default_factory=set)
    new_member_added: bool = False
    """A member came while the initial rebalance delay was running, so the delay starts again."""
    must_rebalance: bool = False
    """It was a consumer group whose last consumer left, and its members' shares are not all of it (in the record: it
    has no leader). Kafka 4.3 forgets that when another coordinator takes over, and the rest is without an owner."""
    subscribed_topics: frozenset[str] | None = None
    """Topics of all members; None when unknown (another protocol type, unreadable metadata)."""

    # -- questions -----------------------------------------------------------------------------

    def is_in(self, *states: ClassicGroupState) -> bool:
        """Whether the group is in one of the states."""
        return self.state in states

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[ClassicGroupState.PREPARING_REBALANCE]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' timeouts: everybody gets the time that the slowest asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join_count(self) -> int:
        return sum(1 for member in self.members.values() if member.awaiting_join is not None)

    @property
    def has_all_members_joined(self) -> bool:
        return not self.pending_join_members and all(
            member.awaiting_join is not None for member in self.members.values()
        )

    def supports_protocols(self, protocol_type: str, names: set[str]) -> bool:
        """Whether a member with these assignors can be in the group with all the others."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if not self.members:
            # The member that began the rebalance has left before it ended: any other will do.
            return self.protocol_type == protocol_type and bool(names)
        return self.protocol_type == protocol_type and bool(names & self.candidate_protocols())

    def candidate_protocols(self) -> set[str]:
        """The assignors that every member knows."""
        common: set[str] | None = None
        for member in self.members.values():
            names = {name for name, _ in member.protocols}
            common = names if common is None else common & names
        return common or set()

    def select_protocol(self) -> str:
        """The candidate with most votes; a tie goes to the one voted for first."""
        candidates = self.candidate_protocols()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=lambda name: votes[name])

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """The member of that id; `ApiError` UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID (KIP-345)."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a live member reads the topic; a consumer group of unknown topics is taken to read all."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.uses_consumer_protocol

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # -- changes -------------------------------------------------------------------------------

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        """Change state; a transition that the table does not know is a bug in kbroker."""
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise AssertionError(f"group {self.group_id}: {self.state.name} -> {state.name}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: ClassicMember) -> None:
        """Add a member; the first one decides the protocol type and becomes the leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.pending_join_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id; the leader's place goes to the next member."""
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join_members.discard(member_id)
        self.pending_sync_members.discard(member_id)

    def maybe_elect_joined_leader(self) -> bool:
        """Keep the leader if it joined, else take the first member that did; False if none did."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def init_next_generation(self, now_ms: int) -> None:
        """Begin the generation of the members that joined."""
        # A generation stays in the positive range of its wire type.
        self.generation_id = self.generation_id + 1 if self.generation_id < 2**31 - 1 else 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.pending_sync_members.clear()
        state = ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY
        self.transition_to(state, now_ms)

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Read the topics out of the members' metadata, where it is the consumer protocol's."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                metadata = member.metadata(self.protocol_name)
                if len(metadata) < _VERSION_BYTES or metadata[0] & 0x80:
                    return None
                # Version 0's fields open every later version, so they are all that is read.
                subscription, _ = decode(ConsumerProtocolSubscription, 0, metadata, _VERSION_BYTES)
                topics.update(subscription.topics)
        except WireError:
            return None
        return frozenset(topics)
