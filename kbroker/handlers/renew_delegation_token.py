"""RenewDelegationToken: a token's owner or renewer has it expire later (KIP-48).

Served: 1 to 2. 2: flexible.
"""

from __future__ import annotations

from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.token_requests import change_time
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.delegation_tokens import renew_token
from kbroker.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


@handler(RenewDelegationTokenRequest)
async def handle(request: RenewDelegationTokenRequest, ctx: RequestContext) -> RenewDelegationTokenResponse:
    """Have the active controller make the token's time longer. The token is named by its secret."""
    return await change_time(request, ctx, renew_token, request.renew_period_ms, RenewDelegationTokenResponse)
