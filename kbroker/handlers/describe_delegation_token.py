"""DescribeDelegationToken: the tokens that a client may see, with their secrets (KIP-48).

Served: 1 to 3. 2: flexible; 3: who has asked for each token.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.common.authorization import may
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.token_requests import WITH_REQUESTERS, may_ask_for_tokens
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.delegation_tokens import DelegationTokens, concerns, principal_of
from kbroker.security.principal import KafkaPrincipal
from kbroker.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kbroker.wire.records.metadata import DelegationTokenRecord


@handler(DescribeDelegationTokenRequest)
async def handle(request: DescribeDelegationTokenRequest, ctx: RequestContext) -> DescribeDelegationTokenResponse:
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
