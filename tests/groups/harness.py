"""A shard with a clock and clients that remember their replies: what the driver does, without a node."""

from __future__ import annotations

import random
from typing import Any

from kbroker.config import GroupConfig
from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult, Token
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.group_coordinator import GroupCoordinator
from kbroker.cores.groups.own_assignors import NO_OWN_ASSIGNORS, OwnAssignors
from kbroker.cores.groups.settings import GroupSettings
from kbroker.errors import ErrorCode
from kbroker.sim.classic_group_clients import heartbeat_request, join_request, subscription, sync_request
from kbroker.wire.messages.classic_groups import JoinGroupResponse, MemberIdentity, SyncGroupResponse

GROUP = "g"


class Shard:
    """Runs steps at once, as a node without followers does; ``fail_appends`` makes the log refuse.

    With ``hold_appends`` records are in the log but not committed until `let_appends`.
    """

    def __init__(self, *, seed: int = 1, own_assignors: OwnAssignors = NO_OWN_ASSIGNORS, **settings: Any) -> None:
        self.seed = seed
        self.settings = GroupSettings(**settings)
        self.group_config_value = GroupConfig(45_000, 5_000, 1_000)
        self.core = GroupCoordinator(
            lambda: self.settings, random.Random(seed), lambda group_id: self.group_config_value, own_assignors
        )
        self.now_ms = 1_000_000
        self.log: list[CoordinatorRecord] = []
        self.replies: dict[Token, Any] = {}
        self.fail_appends: ErrorCode | None = None
        self.hold_appends = False
        self._held: list[CoordinatorResult[Any]] = []
        self.core.on_loaded(self.now_ms)

    def run(self, result: CoordinatorResult[Any]) -> Any:
        """Store a result's records; its response, or the token of a later one."""
        error = self.fail_appends if result.records else None
        if error is None:
            self.log += result.records
            if result.replay:
                for record in result.records:
                    self.core.replay(record, self.now_ms)
        if self.hold_appends and result.records:
            self._held.append(result)
        else:
            self._stored(result, error)
        return result.response

    def let_appends(self, error: ErrorCode | None) -> None:
        """Complete the held appends: they are committed, or with an error perhaps not."""
        self.hold_appends = False
        held, self._held = self._held, []
        for result in held:
            self._stored(result, error)

    def _stored(self, result: CoordinatorResult[Any], error: ErrorCode | None) -> None:
        self.replies.update(result.completed)
        if result.on_stored is not None:
            self.run(result.on_stored(error, self.now_ms))

    def advance(self, milliseconds: int) -> None:
        """Let time pass, deadline by deadline."""
        end = self.now_ms + milliseconds
        while (deadline := self.core.next_deadline()) is not None and deadline <= end:
            self.now_ms = max(self.now_ms, deadline)
            result = self.core.on_deadline(self.now_ms)
            if result is not None:
                self.run(result)
        self.now_ms = end

    def reloaded(self) -> Shard:
        """A new coordinator from the log alone, as after a restart."""
        fresh = Shard()
        fresh.settings = self.settings
        fresh.now_ms = self.now_ms
        for record in self.log:
            fresh.core.replay(record, fresh.now_ms)
        fresh.core.on_loaded(fresh.now_ms)
        fresh.log = list(self.log)
        fresh.replies = self.replies  # the clients remember
        return fresh


class Member:
    """A classic client by hand: each method sends one request."""

    def __init__(
        self,
        shard: Shard,
        *,
        topics: tuple[str, ...] = ("t",),
        instance_id: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        api_version: int = 9,
    ) -> None:
        self.shard = shard
        self.protocols = [(name, subscription(*topics)) for name in protocols]
        self.instance_id = instance_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.api_version = api_version
        self.member_id = ""
        self.generation_id = -1
        self.protocol_type = "consumer"
        self._join: Any = None
        self._sync: Any = None

    def join(self) -> None:
        """Send JoinGroup, twice where the coordinator first hands out an id."""
        self._send_join()
        reply = self.joined
        if reply is not None and reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self._send_join()

    def _send_join(self) -> None:
        request = join_request(
            GROUP,
            self.member_id,
            self.protocols,
            instance_id=self.instance_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocol_type=self.protocol_type,
        )
        client = ClientContext("client", "/127.0.0.1", self.api_version)
        self._join = self.shard.run(self.shard.core.join_group(request, client, self.shard.now_ms))
        reply = self.joined
        if reply is not None and not reply.error_code:
            self.member_id, self.generation_id = reply.member_id, reply.generation_id

    @property
    def joined(self) -> JoinGroupResponse | None:
        """The reply to the last join; None while it is awaited."""
        reply = self.shard.replies.get(self._join) if isinstance(self._join, Token) else self._join
        if reply is not None and not reply.error_code:
            self.member_id, self.generation_id = reply.member_id, reply.generation_id
        return reply

    @property
    def is_leader(self) -> bool:
        reply = self.joined
        return reply is not None and bool(reply.member_id) and reply.leader == reply.member_id

    def sync(self, assignment: dict[str, bytes] | None = None) -> None:
        """Send SyncGroup; the leader gives the assignment."""
        assert self.joined is not None
        request = sync_request(
            GROUP,
            self.generation_id,
            self.member_id,
            assignment or {},
            instance_id=self.instance_id,
            protocol_name=self.protocols[0][0],
        )
        self._sync = self.shard.run(self.shard.core.sync_group(request, self.shard.now_ms))

    @property
    def synced(self) -> SyncGroupResponse | None:
        """The reply to the last sync; None while it is awaited."""
        return self.shard.replies.get(self._sync) if isinstance(self._sync, Token) else self._sync

    def heartbeat(self) -> ErrorCode:
        """Send Heartbeat."""
        request = heartbeat_request(GROUP, self.generation_id, self.member_id, self.instance_id)
        return ErrorCode(self.shard.core.heartbeat(request, self.shard.now_ms))

    def leave(self) -> int:
        """Send LeaveGroup."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        (response,) = self.shard.run(self.shard.core.leave_group(GROUP, [identity], self.shard.now_ms))
        return int(response.error_code)


def settle(shard: Shard, members: list[Member]) -> None:
    """Bring a group whose members have all sent a join to Stable: first join phase's delay, then syncs."""
    # Twice: a member that came during the delay makes it run once more.
    shard.advance(2 * shard.settings.group_initial_rebalance_delay_ms)
    leader = next(member for member in members if member.is_leader)
    for member in members:
        if member is not leader:
            member.sync()
    leader.sync({member.member_id: member.member_id.encode() for member in members})
