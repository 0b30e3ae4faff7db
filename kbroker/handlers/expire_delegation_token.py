"""ExpireDelegationToken: a token's owner or renewer has it expire at another time, or at once (KIP-48).

Served: 1 to 2. 2: flexible.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.handlers.token_requests import NO_TIME, decided, may_ask_for_tokens
from kbroker.raft_metadata.controller.delegation_tokens import expire_token
from kbroker.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


@handler(ExpireDelegationTokenRequest)
async def handle(request: ExpireDelegationTokenRequest, ctx: RequestContext) -> ExpireDelegationTokenResponse:
    """Have the active controller change the token's time, or remove it. The token is named by its secret."""
    if not may_ask_for_tokens(ctx):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)
    return await decided(request, ctx, lambda: _expire(request, ctx))


async def _expire(request: ExpireDelegationTokenRequest, ctx: RequestContext) -> ExpireDelegationTokenResponse:
    services = ctx.services
    try:
        timestamp = await services.metadata.submit(
            lambda view: expire_token(
                view,
                services.tokens,
                services.env.wall_clock_ms(),
                requester=ctx.principal,
                secret=bytes(request.hmac),
                period_ms=request.expiry_time_period_ms,
            )
        )
    except ApiError as error:
        return ExpireDelegationTokenResponse(error_code=error.code)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=timestamp)
