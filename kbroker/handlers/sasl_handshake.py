"""SaslHandshake on a connection that is served: a client that authenticates again names its mechanism (KIP-368).

Served: 0 to 1. 1: the tokens come in SaslAuthenticate. In version 0 they would be frames of their own, so it is refused
here. The first handshake of a connection does not come this way: `kbroker.node.security.sasl.admission` answers it.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.security.sasl.conversation import SaslConversation
from kbroker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handler(SaslHandshakeRequest)
async def handle(request: SaslHandshakeRequest, ctx: RequestContext) -> SaslHandshakeResponse:
    """Begin to authenticate again; ILLEGAL_SASL_STATE where there is nothing to be renewed."""
    session = ctx.connection.session
    if ctx.api_version == 0 or not isinstance(session, SaslConversation) or not session.may_authenticate_again():
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return session.handshake(request.mechanism)
