"""Delegation tokens: created, renewed, expired and described (KIP-48).

CreateDelegationToken: a client gets a token to log in with, its own or another user's (KIP-373).
Served: 1 to 3. 2: flexible; 3: owners.

RenewDelegationToken: a token's owner or renewer has it expire later.
Served: 1 to 2. 2: flexible.

ExpireDelegationToken: a token's owner or renewer has it expire at another time, or at once.
Served: 1 to 2. 2: flexible.

DescribeDelegationToken: the tokens that a client may see, with their secrets.
Served: 1 to 3. 2: flexible; 3: who has asked for each token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may
from kbroker.handlers.common.context import ForwardedContext, RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.forwarding import by_controller, error_codes
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.delegation_tokens import create_token, expire_token, renew_token
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.delegation_tokens import DelegationTokens, concerns, principal_of
from kbroker.security.principal import ANONYMOUS, USER_TYPE, KafkaPrincipal
from kbroker.security.protocol import SecurityProtocol
from kbroker.wire.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kbroker.wire.records.metadata import DelegationTokenRecord

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


@handler(CreateDelegationTokenRequest)
async def handle_create_delegation_token(
    request: CreateDelegationTokenRequest, ctx: RequestContext
) -> CreateDelegationTokenResponse:
    """Have the active controller make the token. Everybody may have one of their own."""
    requester = ctx.principal
    owner = requester
    if request.owner_principal_name:
        if request.owner_principal_type is None:
            # A principal has a type: Kafka fails to make this one.
            return _refused(ctx, ErrorCode.UNKNOWN_SERVER_ERROR, ANONYMOUS, ANONYMOUS)
        owner = KafkaPrincipal(request.owner_principal_type, request.owner_principal_name)
    if not may_ask_for_tokens(ctx):
        return _refused(ctx, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, requester)
    if owner != requester and not may(ctx, AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return _refused(ctx, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)
    if is_for_broker(ctx) and any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
        return _refused(ctx, ErrorCode.INVALID_PRINCIPAL_TYPE, owner, requester)
    return await decided(request, ctx, lambda: _create(request, ctx, owner))


async def _create(
    request: CreateDelegationTokenRequest, ctx: RequestContext, owner: KafkaPrincipal
) -> CreateDelegationTokenResponse:
    services, requester = ctx.services, ctx.principal
    settings = services.tokens
    try:
        token = await services.metadata.submit(
            lambda view: create_token(
                view,
                settings,
                services.env.wall_clock_ms(),
                owner=owner,
                requester=requester,
                renewers=[KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers],
                max_lifetime_ms=request.max_lifetime_ms,
            )
        )
    except ApiError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            return _refused(ctx, error.code, ANONYMOUS, ANONYMOUS)
        return _refused(ctx, error.code, owner, requester, 0)
    assert settings is not None
    return CreateDelegationTokenResponse(
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiration_timestamp,
        max_timestamp_ms=token.max_timestamp,
        token_id=token.token_id,
        hmac=settings.hmac(token.token_id),
        **_people(ctx, owner, requester),
    )


def _people(ctx: RequestContext, owner: KafkaPrincipal, requester: KafkaPrincipal) -> dict[str, Any]:
    fields = {"principal_type": owner.principal_type, "principal_name": owner.name}
    if ctx.api_version >= WITH_REQUESTERS:
        fields["token_requester_principal_type"] = requester.principal_type
        fields["token_requester_principal_name"] = requester.name
    return fields


def _refused(
    ctx: RequestContext, code: ErrorCode, owner: KafkaPrincipal, requester: KafkaPrincipal, timestamp: int = NO_TIME
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        issue_timestamp_ms=timestamp,
        expiry_timestamp_ms=timestamp,
        max_timestamp_ms=timestamp,
        **_people(ctx, owner, requester),
    )


@handler(RenewDelegationTokenRequest)
async def handle_renew_delegation_token(
    request: RenewDelegationTokenRequest, ctx: RequestContext
) -> RenewDelegationTokenResponse:
    """Have the active controller make the token's time longer. The token is named by its secret."""
    return await change_time(request, ctx, renew_token, request.renew_period_ms, RenewDelegationTokenResponse)


@handler(ExpireDelegationTokenRequest)
async def handle_expire_delegation_token(
    request: ExpireDelegationTokenRequest, ctx: RequestContext
) -> ExpireDelegationTokenResponse:
    """Have the active controller change the token's time, or remove it. The token is named by its secret."""
    return await change_time(request, ctx, expire_token, request.expiry_time_period_ms, ExpireDelegationTokenResponse)


@handler(DescribeDelegationTokenRequest)
async def handle_describe_delegation_token(
    request: DescribeDelegationTokenRequest, ctx: RequestContext
) -> DescribeDelegationTokenResponse:
    """List the tokens of this node's metadata: the client's own, those of others that it may describe.

    Nothing tells of the rest.
    """
    if not may_ask_for_tokens(ctx):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    settings = ctx.services.tokens
    if settings is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {str(KafkaPrincipal(owner.principal_type, owner.principal_name)) for owner in request.owners}
    response = DescribeDelegationTokenResponse()
    if owners is not None and not owners:
        return response
    share = FairShare(ctx)
    for token in ctx.services.metadata.image.principals.delegation_tokens.values():
        await share.next()
        if (owners is None or concerns(token, owners)) and _may_see(token, ctx):
            response.tokens.append(_described(token, settings, ctx.api_version))
    return response


def _may_see(token: DelegationTokenRecord, ctx: RequestContext) -> bool:
    if concerns(token, {str(ctx.principal)}):
        return True
    describe, describe_tokens = AclOperation.DESCRIBE, AclOperation.DESCRIBE_TOKENS
    return may(ctx, describe, ResourceType.DELEGATION_TOKEN, token.token_id, audits_denial=False) or may(
        ctx, describe_tokens, ResourceType.USER, token.owner, audits_denial=False
    )


def _described(token: DelegationTokenRecord, settings: DelegationTokens, version: int) -> DescribedDelegationToken:
    owner, requester = principal_of(token.owner), principal_of(token.requester)
    renewers = map(principal_of, token.renewers)
    described = DescribedDelegationToken(
        principal_type=owner.principal_type,
        principal_name=owner.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=settings.hmac(token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.principal_type, principal_name=each.name)
            for each in renewers
        ],
    )
    if version >= WITH_REQUESTERS:
        described.token_requester_principal_type = requester.principal_type
        described.token_requester_principal_name = requester.name
    return described
