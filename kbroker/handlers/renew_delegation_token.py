"""RenewDelegationToken: a token's owner or renewer has it expire later (KIP-48).

Served: 1 to 2. 2: flexible.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.handlers.token_requests import NO_TIME, decided, may_ask_for_tokens
from kbroker.raft_metadata.controller.delegation_tokens import renew_token
from kbroker.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


@handler(RenewDelegationTokenRequest)
async def handle(request: RenewDelegationTokenRequest, ctx: RequestContext) -> RenewDelegationTokenResponse:
    """Have the active controller make the token's time longer. The token is named by its secret."""
    if not may_ask_for_tokens(ctx):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)
    return await decided(request, ctx, lambda: _renew(request, ctx))


async def _renew(request: RenewDelegationTokenRequest, ctx: RequestContext) -> RenewDelegationTokenResponse:
    services = ctx.services
    try:
        timestamp = await services.metadata.submit(
            lambda view: renew_token(
                view,
                services.tokens,
                services.env.wall_clock_ms(),
                requester=ctx.principal,
                secret=bytes(request.hmac),
                period_ms=request.renew_period_ms,
            )
        )
    except ApiError as error:
        return RenewDelegationTokenResponse(error_code=error.code)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=timestamp)
