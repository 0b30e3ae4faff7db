"""The common part of the requests about delegation tokens (KIP-48). Not an API itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.context import ForwardedContext, RequestContext
from kbroker.handlers.common.forwarding import by_controller, error_codes
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.security.delegation_tokens import DelegationTokens
from kbroker.security.principal import ANONYMOUS, KafkaPrincipal
from kbroker.security.protocol import SecurityProtocol

R = TypeVar("R")

NO_TIME = -1
"""The time of what a broker has refused by itself; where the controller refuses, it is 0."""

WITH_REQUESTERS = 3
"""The version of CreateDelegationToken and DescribeDelegationToken that tells who has asked for a token (KIP-373)."""


def may_ask_for_tokens(ctx: RequestContext) -> bool:
    """Whether the client has proven who it is, and not by a token (``KafkaApis.allowTokenRequests``).

    The protocol of a request that a broker passes on was judged by that broker.
    """
    if ctx.principal.token_authenticated:
        return False
    if isinstance(ctx, ForwardedContext):
        return True
    protocol = _protocol(ctx)
    return protocol.has_sasl or (protocol.has_tls and ctx.principal != ANONYMOUS)


def _protocol(ctx: RequestContext) -> SecurityProtocol:
    protocols = ctx.services.config.listener_security_protocol_map
    return SecurityProtocol[protocols.get(ctx.connection.listener_name, "PLAINTEXT")]


def is_for_broker(ctx: RequestContext) -> bool:
    """Whether the client asks this node as a broker, which passes the request on to the active controller."""
    return not isinstance(ctx, ForwardedContext) and not ctx.connection.is_controller


async def decided(request: Any, ctx: RequestContext, decide: Callable[[], Awaitable[R]]) -> R:
    """The active controller's answer: by ``decide`` if this node is asked as the controller, or is it."""
    if not is_for_broker(ctx):
        return await decide()
    metadata = ctx.services.metadata
    return await by_controller(metadata, lambda: metadata.forward(request, ctx), decide, error_codes)


class TokenChange(Protocol):
    """An operation of the controller that has a token expire at another time; the time in ms. ``ApiError``."""

    def __call__(
        self,
        view: ControllerView,
        settings: DelegationTokens | None,
        now_ms: int,
        *,
        requester: KafkaPrincipal,
        secret: bytes,
        period_ms: int,
    ) -> ControllerResult[int]: ...


async def change_time(
    request: Any, ctx: RequestContext, change: TokenChange, period_ms: int, answer: Callable[..., R]
) -> R:
    """The active controller's answer to a request that changes the time of the token whose secret it has.

    ``answer`` makes it of ``error_code`` and ``expiry_timestamp_ms``.
    """
    if not may_ask_for_tokens(ctx):
        return answer(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME)
    services = ctx.services
    secret = bytes(request.hmac)

    async def decide() -> R:
        try:
            timestamp = await services.metadata.submit(
                lambda view: change(
                    view,
                    services.tokens,
                    services.env.wall_clock_ms(),
                    requester=ctx.principal,
                    secret=secret,
                    period_ms=period_ms,
                )
            )
        except ApiError as error:
            return answer(error_code=error.code)
        return answer(expiry_timestamp_ms=timestamp)

    return await decided(request, ctx, decide)
