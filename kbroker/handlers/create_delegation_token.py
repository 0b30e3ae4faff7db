"""CreateDelegationToken: a client gets a token to log in with (KIP-48), its own or another user's (KIP-373).

Served: 1 to 3. 2: flexible; 3: owners.
"""

from __future__ import annotations

from typing import Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.token_requests import NO_TIME, WITH_REQUESTERS, decided, is_for_broker, may_ask_for_tokens
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.delegation_tokens import create_token
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.principal import ANONYMOUS, USER_TYPE, KafkaPrincipal
from kbroker.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse


@handler(CreateDelegationTokenRequest)
async def handle(request: CreateDelegationTokenRequest, ctx: RequestContext) -> CreateDelegationTokenResponse:
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
