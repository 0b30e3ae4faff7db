"""JoinGroup (key 11): enter a classic group, or come back for a rebalance.

Served: 0 to 9. 1: rebalance timeout; 4: member id required (KIP-394); 5: static members (KIP-345); 6: flexible;
7: protocol type in the answer; 8: reason; 9: skip_assignment (KIP-814).
"""

from __future__ import annotations

import ipaddress

from kbroker.errors import ApiError, ErrorCode
from kbroker.groups.client import ClientContext
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


def client_host(peer: str) -> str:
    """The address alone, as Java prints it: a member's host is shown by tools and kept in the group's record."""
    host, _, _port = peer.rpartition(":")
    if ":" in host:
        packed = ipaddress.IPv6Address(host.partition("%")[0]).packed
        host = ":".join(f"{high << 8 | low:x}" for high, low in zip(packed[::2], packed[1::2], strict=True))
    return f"/{host}"


@handler(JoinGroupRequest)
async def handle(request: JoinGroupRequest, ctx: RequestContext) -> JoinGroupResponse:
    """Answer when the group's join phase ends, or at once where it is an error."""
    if ctx.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    client = ClientContext(ctx.header.client_id or "", client_host(ctx.connection.peer), ctx.api_version)
    try:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        groups = ctx.services.groups
        reply = await groups.submit(request.group_id, lambda shard, now_ms: shard.join_group(request, client, now_ms))
        response: JoinGroupResponse = await groups.resolve(reply, ctx.connection)
    except ApiError as error:
        response = JoinGroupResponse(error_code=error.code, member_id=request.member_id, protocol_name=None)
    if ctx.api_version < 7 and response.protocol_name is None:
        response.protocol_name = ""  # The field became nullable in version 7.
    return response
