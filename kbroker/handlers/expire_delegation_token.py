"""ExpireDelegationToken: a token's owner or renewer has it expire at another time, or at once (KIP-48).

Served: 1 to 2. 2: flexible.
"""

from __future__ import annotations

from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.token_requests import change_time
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.delegation_tokens import expire_token
from kbroker.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


@handler(ExpireDelegationTokenRequest)
async def handle(request: ExpireDelegationTokenRequest, ctx: RequestContext) -> ExpireDelegationTokenResponse:
    """Have the active controller change the token's time, or remove it. The token is named by its secret."""
    return await change_time(request, ctx, expire_token, request.expiry_time_period_ms, ExpireDelegationTokenResponse)
