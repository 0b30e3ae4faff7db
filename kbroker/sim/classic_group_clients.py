"""Members of a classic group in a simulated cluster: generation by generation, who is given what by the leader."""

from __future__ import annotations

import trio

from kbroker.errors import ErrorCode
from kbroker.sim.classic_member import (
    ASSIGNOR,
    assigned,
    heartbeat_request,
    join_request,
    shares,
    subscription,
    sync_request,
)
from kbroker.sim.clients import ClusterClient
from kbroker.sim.group_clients import GroupHistory, SimGroupMember
from kbroker.sim.transaction_clients import TRY_AGAIN
from kbroker.sim.world import Violation
from kbroker.wire.messages.join_group import JoinGroupResponse
from kbroker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

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
