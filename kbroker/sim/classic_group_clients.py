"""Members of a classic group in a simulated cluster: generation by generation, who is given what by the leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from kbroker.errors import ErrorCode
from kbroker.sim.clients import ClusterClient
from kbroker.sim.group_clients import GroupHistory, SimGroupMember
from kbroker.sim.transaction_clients import TRY_AGAIN
from kbroker.sim.world import Violation
from kbroker.wire.compiler import decode, encode
from kbroker.wire.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kbroker.wire.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

PROTOCOL_TYPE = "consumer"
ASSIGNOR = "range"

_VERSION_0 = b"\0\0"
"""Precedes subscriptions and assignments (``ConsumerProtocol`` of Kafka's clients)."""


def subscription(*topics: str) -> bytes:
    """Member metadata of the consumer protocol, version 0."""
    return _VERSION_0 + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """A member's assignment in the consumer protocol, version 0."""
    one = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))
    return _VERSION_0 + encode(ConsumerProtocolAssignment(assigned_partitions=[one]), 0)


def assigned(data: bytes | memoryview) -> list[int]:
    """The partitions in an assignment, of whichever topics."""
    decoded, _ = decode(ConsumerProtocolAssignment, 0, bytes(data), len(_VERSION_0))
    return [index for topic in decoded.assigned_partitions for index in topic.partitions]


def shares(topic: str, partitions: int, joined: JoinGroupResponse) -> dict[str, bytes]:
    """The assignments that a leader gives, by member id; nothing if the member that has joined does not lead."""
    if joined.leader != joined.member_id:
        return {}
    ids = sorted(member.member_id for member in joined.members)
    return {member_id: assignment(topic, range(at, partitions, len(ids))) for at, member_id in enumerate(ids)}


def join_request(
    group: str,
    member_id: str,
    protocols: Sequence[tuple[str, bytes]],
    *,
    instance_id: str | None = None,
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
    protocol_type: str = PROTOCOL_TYPE,
) -> JoinGroupRequest:
    """JoinGroup; ``protocols`` are the member's assignors, each with what :func:`subscription` gives."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
    )


def sync_request(
    group: str,
    generation_id: int,
    member_id: str,
    assignments: Mapping[str, bytes],
    *,
    instance_id: str | None = None,
    protocol_name: str = ASSIGNOR,
) -> SyncGroupRequest:
    """SyncGroup; ``assignments`` by member id, of the leader alone."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=of_member, assignment=data) for of_member, data in assignments.items()
        ],
    )


def heartbeat_request(
    group: str, generation_id: int, member_id: str, instance_id: str | None = None
) -> HeartbeatRequest:
    """Heartbeat."""
    return HeartbeatRequest(
        group_id=group, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
    )


_SESSION_MS = 10_000
_REBALANCE_MS = 8_000

_REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})


class ClassicGroupMember(SimGroupMember):
    """Eager, as range and round robin are: it gives up everything before it joins again. Static, if it has an
    ``instance_id``: then another may take its place under a new member id.

    Checked beside the offsets: in a generation each partition is given to one member, whatever became of the
    coordinators that led to it, and a generation that was told of never comes again.
    """

    session_seconds = _SESSION_MS / 1000

    def __init__(self, client: ClusterClient, group: str, history: GroupHistory, instance_id: str | None) -> None:
        super().__init__(client, group, history, instance_id)
        self.id = ""

    async def leave(self) -> None:
        """It goes, and says so as far as anybody hears it."""
        self.crash()
        if self.id:
            members = [MemberIdentity(member_id=self.id, group_instance_id=self.instance_id)]
            await self._coordinator.ask(LeaveGroupRequest(group_id=self._group, members=members))

    async def _heartbeat(self) -> None:
        if self._epoch <= 0:
            await self._join()
            return
        request = heartbeat_request(self._group, self._epoch, self.id, self.instance_id)
        response, real = await self._ask(request)
        if response is not None and not self.gone:
            if await self._is_well(response.error_code, "Heartbeat", real):
                self.heard_at = trio.current_time()

    def _start_again(self) -> None:
        super()._start_again()
        self.id = ""

    async def _is_well(self, error_code: int, api: str, real: bool, *, joining: bool = False) -> bool:
        """Whether it may go on; else it joins again, or looks for the coordinator."""
        code = ErrorCode(error_code)
        if code == ErrorCode.NONE:
            return True
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced(api, real, joining=joining)
        elif code in _REJOIN:
            self._epoch = 0
            self.owned.clear()
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.id = ""
                self._is_stored = False
        elif code in TRY_AGAIN:
            await self._coordinator.lost()
        else:
            raise Violation(f"{self._group}: {api} is answered {code.name}")
        return False

    async def _join(self) -> None:
        request = join_request(
            self._group,
            self.id,
            [(ASSIGNOR, subscription(self._history.topic))],
            instance_id=self.instance_id,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
        )
        joining = not self.id
        joined, real = await self._ask(request, joining=joining)
        if joined is None or self.gone:
            return
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = joined.member_id
        elif await self._is_well(joined.error_code, "JoinGroup", real, joining=joining):
            self.id = joined.member_id
            await self._sync(joined)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        given = shares(self._history.topic, self._history.partitions, joined)
        request = sync_request(self._group, joined.generation_id, self.id, given, instance_id=self.instance_id)
        synced, real = await self._ask(request)
        if synced is None or self.gone or not await self._is_well(synced.error_code, "SyncGroup", real):
            return
        self._is_stored = True
        self._epoch = joined.generation_id
        self.heard_at = trio.current_time()
        self._given(assigned(synced.assignment))

    def _given(self, mine: list[int]) -> None:
        history = self._history
        history.assignments += 1
        given = history.generations.setdefault(self._epoch, {})
        for index in mine:
            me = self.instance_id or self.id
            other = given.setdefault(index, me)
            if other != me:
                raise Violation(f"{self._group}: {index} is given to {other} and {me} in generation {self._epoch}")
            self.owned[index] = -1
