"""The two steps of a SASL login.

SaslHandshake on a connection that is served: a client that authenticates again names its mechanism (KIP-368).
Served: 0 to 1. 1: the tokens come in SaslAuthenticate. In version 0 they would be frames of their own, so it is refused
here. The first handshake of a connection does not come this way: `kbroker.node.security.sasl.admission` answers it.

SaslAuthenticate on a connection that is served: the tokens of a client that authenticates again (KIP-368).
Served: 0 to 2. 1: the session's lifetime; 2: flexible. Those of a connection's first authentication do not come this
way: `kbroker.node.security.sasl.admission` answers them.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.security.sasl.conversation import SaslConversation
from kbroker.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@handler(SaslHandshakeRequest)
async def handle_sasl_handshake(request: SaslHandshakeRequest, ctx: RequestContext) -> SaslHandshakeResponse:
    """Begin to authenticate again; ILLEGAL_SASL_STATE where there is nothing to be renewed."""
    session = ctx.connection.session
    if ctx.api_version == 0 or not isinstance(session, SaslConversation) or not session.may_authenticate_again():
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return session.handshake(request.mechanism)


@handler(SaslAuthenticateRequest)
async def handle_sasl_authenticate(request: SaslAuthenticateRequest, ctx: RequestContext) -> SaslAuthenticateResponse:
    """Go on with it. After one that fails, the connection serves nothing more and is closed."""
    session = ctx.connection.session
    if not isinstance(session, SaslConversation) or not session.is_in_exchange:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    response = await session.authenticate(bytes(request.auth_bytes))
    if not session.is_in_exchange and session.failure is None:
        ctx.connection.reauthenticated(by_token=session.principal.token_authenticated)
    return response
