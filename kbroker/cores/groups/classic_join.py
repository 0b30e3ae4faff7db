"""JoinGroup of a classic group, before the rebalance: admission, member ids, and replacing static members.

Rules: Kafka's ``GroupMetadataManager`` (its classic half, 4.3), KIP-345 (static members), KIP-394 (member id
required), KIP-814 (static leader rejoins).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kbroker.cores.coordinator.result import CoordinatorResult, Token, append_error_for_client
from kbroker.cores.groups.classic_group import UNKNOWN_MEMBER_ID, ClassicGroup, ClassicGroupState, ClassicMember, Timer
from kbroker.cores.groups.classic_rebalance import (
    ClassicRebalance,
    Effects,
    complete_join,
    complete_sync,
    join_error,
    join_reply,
)
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.records import group_metadata_record
from kbroker.cores.groups.settings import GroupSettings
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import NamedTuple
from kbroker.wire.messages.classic_groups import JoinGroupRequest, SyncGroupResponse

_S = ClassicGroupState


class Joining(NamedTuple):
    """A request to join a group, whose answer goes to ``token``."""

    group: ClassicGroup
    request: JoinGroupRequest
    client: ClientContext
    token: Token
    effects: Effects
    now_ms: int


class ClassicJoin:
    """Takes members in, and begins the rebalances that follow from it."""

    def __init__(self, rebalance: ClassicRebalance, settings: Callable[[], GroupSettings], rng: random.Random) -> None:
        self._rebalance = rebalance
        self._settings = settings
        self._rng = rng

    def accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether ``group.max.size`` has room for the joining member."""
        limit = self._settings().group_max_size
        if group.is_in(_S.EMPTY, _S.DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is _S.PREPARING_REBALANCE:
            # Members that have not joined again yet do not count: the first to arrive keep their places.
            return (member is not None and member.awaiting_join is not None) or (group.awaiting_join_count < limit)
        return member is not None or len(group.members) < limit

    def join_new(self, joining: Joining) -> None:
        """Somebody without a member id."""
        group, request, client, token, effects, now_ms = joining
        if group.state is _S.DEAD:
            error = join_error(UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            effects.completed.append((token, error))
            return
        if not group.supports_protocols(request.protocol_type, _protocol_names(request)):
            error = join_error(UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            effects.completed.append((token, error))
            return
        instance_id = request.group_instance_id
        prefix = client.client_id if instance_id is None else instance_id
        member_id = f"{prefix}-{_uuid_text(self._rng.getrandbits(128))}"
        if instance_id is not None:
            old_member_id = group.static_members.get(instance_id)
            if old_member_id is not None:
                self._replace_static(joining, old_member_id, member_id)
            else:
                self._add_and_rebalance(joining, member_id)
        elif client.api_version >= 4:
            # KIP-394: a member must come back with the id, so that lost replies leave no ghosts.
            group.pending_join_members.add(member_id)
            self._rebalance.timers.schedule(
                Timer("session", group.group_id, member_id), now_ms + request.session_timeout_ms
            )
            effects.completed.append((token, join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED)))
        else:
            self._add_and_rebalance(joining, member_id)

    def join_existing(self, joining: Joining) -> None:
        """Join a member that was given its id before."""
        group, request, _, token, effects, now_ms = joining
        member_id = request.member_id
        try:
            if group.state is _S.DEAD:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if not group.supports_protocols(request.protocol_type, _protocol_names(request)):
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if member_id in group.pending_join_members:
                if request.group_instance_id is not None:
                    # A pending id is never given to a static member.
                    raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
                self._add_and_rebalance(joining, member_id)
                return
            member = group.validate_member(member_id, request.group_instance_id)
            if group.state is _S.EMPTY:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        except ApiError as error:
            effects.completed.append((token, join_error(member_id, error.code)))
            return
        same_metadata = member.protocols == _protocols(request)
        if group.state is _S.COMPLETING_REBALANCE and same_metadata:
            # It did not get the reply of this generation's join.
            effects.completed.append((token, join_reply(group, member_id)))
        elif group.state is _S.STABLE and same_metadata and group.leader_id != member_id:
            effects.completed.append((token, join_reply(group, member_id)))
        else:
            # The leader joins again to have the assignment made anew; others, when their metadata changed.
            self._update_member(member, request, token, effects)
            self._rebalance.rebalance_or_complete_join(group, effects, now_ms)

    def _add_and_rebalance(self, joining: Joining, member_id: str) -> None:
        group, request, client, token, effects, now_ms = joining
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=_protocols(request),
            awaiting_join=token,
            is_new=True,
        )
        if group.state is _S.PREPARING_REBALANCE and group.previous_state is _S.EMPTY:
            group.new_member_added = True
        group.add(member)
        self._rebalance.timers.schedule(
            Timer("session", group.group_id, member_id), now_ms + self._settings().new_member_join_timeout_ms
        )
        self._rebalance.rebalance_or_complete_join(group, effects, now_ms)

    def _update_member(self, member: ClassicMember, request: JoinGroupRequest, token: Token, effects: Effects) -> None:
        if member.awaiting_join is not None:
            # A second join of the same member: nobody reads the first one's reply any more.
            error = join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
            effects.completed.append((member.awaiting_join, error))
        member.protocols = _protocols(request)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = token

    def _replace_static(self, joining: Joining, old_member_id: str, new_member_id: str) -> None:
        """A static member came back without its id (restarted): it takes its old place (KIP-345)."""
        group, request, client, token, effects, now_ms = joining
        old_leader_id = group.leader_id
        old = group.members[old_member_id]
        fenced = ErrorCode.FENCED_INSTANCE_ID
        complete_join(old, join_error(old_member_id, fenced), effects)
        complete_sync(old, SyncGroupResponse(error_code=fenced), effects)
        member = self._rename_static(group, old_member_id, new_member_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._update_member(member, request, token, effects)
        self._rebalance.renew_session(group, member, now_ms)
        if group.state is _S.STABLE:
            if group.protocol_name != group.select_protocol():
                self._rebalance.rebalance_or_complete_join(group, effects, now_ms)
                return
            # Same assignor: nobody else has to notice. The record makes the new id survive a restart.
            assignment = {each.member_id: each.assignment for each in group.members.values()}
            effects.records.append(group_metadata_record(group, assignment, now_ms))

            def stored(error: ErrorCode | None, later_ms: int) -> CoordinatorResult[None]:
                after = Effects()
                if member.awaiting_join is not token:
                    # It has left meanwhile, or was replaced in its turn, or a rebalance has answered with the new id.
                    # That id then stays, stored or not. Kafka 4.3 takes it back, and fences the member that has it.
                    return after.result()
                reply = join_reply(group, new_member_id)
                if error is not None:
                    member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
                    restored = self._rename_static(group, new_member_id, old_member_id)
                    self._rebalance.renew_session(group, restored, later_ms)
                    reply = join_error(UNKNOWN_MEMBER_ID, append_error_for_client(error))
                elif client.api_version >= 9:
                    reply.skip_assignment = group.leader_id == new_member_id
                else:
                    # Before KIP-814 a member that sees itself as the leader assigns anew: it gets the old leader's id.
                    reply.leader = old_leader_id or ""
                    reply.members = []
                complete_join(member, reply, after)
                return after.result()

            effects.on_stored = stored
        elif group.state is _S.COMPLETING_REBALANCE:
            self._rebalance.prepare_rebalance(group, effects, now_ms)
        else:
            self._rebalance.maybe_complete_join(group, effects, now_ms)

    def _rename_static(self, group: ClassicGroup, old_member_id: str, new_member_id: str) -> ClassicMember:
        member = group.members.pop(old_member_id)
        member.member_id = new_member_id
        group.members[new_member_id] = member
        assert member.group_instance_id is not None
        group.static_members[member.group_instance_id] = new_member_id
        if group.leader_id == old_member_id:
            group.leader_id = new_member_id
        group.pending_sync_members.discard(old_member_id)
        self._rebalance.timers.cancel(Timer("session", group.group_id, old_member_id))
        member.session_timer = None
        return member


def _protocols(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def _protocol_names(request: JoinGroupRequest) -> set[str]:
    return {protocol.name for protocol in request.protocols}


def _uuid_text(bits: int) -> str:
    """The text of a random UUID (RFC 9562, version 4) of 128 bits.

    The module ``uuid`` would be imported for this alone: with the first member, when there may be no file to open.
    """
    bits = bits & ~(0xF000 << 64 | 0xC000 << 48) | 0x4000 << 64 | 0x8000 << 48
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
