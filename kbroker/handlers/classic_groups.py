"""Members of classic groups: they join, synchronize, stay alive and leave.

JoinGroup (key 11): enter a classic group, or come back for a rebalance.
Served: 0 to 9. 1: rebalance timeout; 4: member id required (KIP-394); 5: static members (KIP-345); 6: flexible;
7: protocol type in the answer; 8: reason (KIP-800), which is logged; 9: skip_assignment (KIP-814).

SyncGroup (key 14): the leader brings the assignment, every member takes its own.
Served: 0 to 5. 3: static members (KIP-345); 4: flexible; 5: protocol type and name (KIP-559).

Heartbeat (key 12): a classic member is alive, and learns of rebalances.
Served: 0 to 4. 3: static members (KIP-345); 4: flexible.

LeaveGroup (key 13): members go, one by one or in a batch.
Served: 0 to 5. 3: several members, by instance id too (KIP-345); 4: flexible; 5: reason (KIP-800), which is logged.
"""

from __future__ import annotations

import ipaddress
import logging
from math import inf

from kbroker.cores.groups.client import ClientContext
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_each, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.shown import shown
from kbroker.wire.messages.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

logger = logging.getLogger(__name__)


_OUTSIDE_THE_GROUP = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
}
"""Errors of a broker that has not looked into the group: its answer names no member."""


def client_host(peer: str) -> str:
    """The address alone, as Java prints it: a member's host is shown by tools and kept in the group's record."""
    host, _, _port = peer.rpartition(":")
    if ":" in host:
        packed = ipaddress.IPv6Address(host.partition("%")[0]).packed
        host = ":".join(f"{high << 8 | low:x}" for high, low in zip(packed[::2], packed[1::2], strict=True))
    return f"/{host}"


def client_of(ctx: RequestContext) -> ClientContext:
    """The sender of a request, for a group."""
    may_see = None
    if ctx.services.authorizer is not None:
        may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, audits_denial=False)
    return ClientContext(ctx.header.client_id or "", client_host(ctx.connection.peer), ctx.api_version, may_see)


@handler(JoinGroupRequest)
async def handle_join_group(request: JoinGroupRequest, ctx: RequestContext) -> JoinGroupResponse:
    """Answer when the group's join phase ends, or at once where it is an error."""
    if ctx.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    groups = ctx.services.groups
    client = client_of(ctx)
    try:
        require_group(ctx, AclOperation.READ, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if not groups.settings().allows_session_timeout(request.session_timeout_ms):
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        await groups.until_loaded(request.group_id)
        if groups.descriptions is not None:
            await groups.descriptions.before_join(request.group_id)
        joined = groups.run(request.group_id, lambda core, now_ms: core.join_group(request, client, now_ms))
        await ctx.connection.wait_for(joined, inf)
        response = joined.result()
        if not response.error_code:
            log_reason(request.group_id, response.member_id, "joins", request.reason)
    except ApiError as error:
        member_id = "" if error.code in _OUTSIDE_THE_GROUP else request.member_id
        response = JoinGroupResponse(error_code=error.code, member_id=member_id, protocol_name=None)
    if ctx.api_version < 7 and response.protocol_name is None:
        response.protocol_name = ""  # The field became nullable in version 7.
    return response


def log_reason(group_id: str, member_id: str, step: str, reason: str | None) -> None:
    """Tell why a member took a ``step`` (joins, leaves); nothing if it gave no reason."""
    if reason:
        logger.info("group %s: member %s %s: %s", shown(group_id), shown(member_id), step, shown(reason))


@handler(SyncGroupRequest)
async def handle_sync_group(request: SyncGroupRequest, ctx: RequestContext) -> SyncGroupResponse:
    """Answer when the leader's assignment is stored, or at once where it is an error."""
    try:
        if ctx.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        require_group(ctx, AclOperation.READ, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        groups = ctx.services.groups
        await groups.until_loaded(request.group_id)
        synced = groups.run(request.group_id, lambda core, now_ms: core.sync_group(request, now_ms))
        await ctx.connection.wait_for(synced, inf)
        return synced.result()
    except ApiError as error:
        return SyncGroupResponse(error_code=error.code)


@handler(HeartbeatRequest)
def handle_heartbeat(request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
    """Keep the session; the error code tells whether to join again. Never waits: there are many of these."""
    groups = ctx.services.groups
    try:
        if ctx.services.authorizer is not None:
            require_group(ctx, AclOperation.READ, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        core = groups.loaded_core(request.group_id)
        return HeartbeatResponse(error_code=core.heartbeat(request, groups.now_ms()))
    except ApiError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()  # The member did its part; its session starts anew after the load.
        return HeartbeatResponse(error_code=error.code)


@handler(LeaveGroupRequest)
async def handle_leave_group(request: LeaveGroupRequest, ctx: RequestContext) -> LeaveGroupResponse:
    """Remove the members; each has its own error from version 3 on."""
    batched = ctx.api_version >= 3
    identities = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    try:
        require_group(ctx, AclOperation.READ, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        groups = ctx.services.groups
        await groups.until_loaded(request.group_id)
        members = await groups.run(
            request.group_id, lambda core, now_ms: core.leave_group(request.group_id, identities, now_ms)
        )
    except ApiError as error:
        if batched and error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            # For a group that does not exist each member has the error.
            return LeaveGroupResponse(
                members=[
                    MemberResponse(
                        member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error.code
                    )
                    for each in identities
                ]
            )
        return LeaveGroupResponse(error_code=error.code)
    for identity, left in zip(identities, members, strict=False):
        if not left.error_code:
            log_reason(request.group_id, left.member_id or left.group_instance_id or "", "leaves", identity.reason)
    if batched:
        return LeaveGroupResponse(members=members)
    return LeaveGroupResponse(error_code=members[0].error_code)
