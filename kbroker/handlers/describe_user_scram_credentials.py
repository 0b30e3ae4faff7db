"""DescribeUserScramCredentials: which SCRAM credentials users have, without anything secret (KIP-554).

Served: 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import require_cluster
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handler(DescribeUserScramCredentialsRequest)
async def handle(
    request: DescribeUserScramCredentialsRequest, ctx: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """List the mechanisms and iterations of the users asked for; of all users, if none is."""
    asked = Counter(user.name for user in request.users or ())
    try:
        require_cluster(ctx, AclOperation.DESCRIBE)
    except ApiError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=error.code,
            error_message=error.message,
            # Without their names, as in Apache Kafka.
            results=[_refused("", error.code, error.message) for _ in request.users or ()],
        )
    infos: defaultdict[str, list[CredentialInfo]] = defaultdict(list)
    for (user, mechanism), credential in sorted(ctx.services.metadata.image.principals.scram.items()):
        infos[user].append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    return DescribeUserScramCredentialsResponse(
        results=[_result(user, asked[user], infos) for user in asked or sorted(infos)]
    )


def _result(
    user: str, times_asked: int, infos: defaultdict[str, list[CredentialInfo]]
) -> DescribeUserScramCredentialsResult:
    if times_asked > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return _refused(user, ErrorCode.DUPLICATE_RESOURCE, message)
    if user not in infos:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return _refused(user, ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos[user])


def _refused(user: str, code: ErrorCode, message: str | None) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)
