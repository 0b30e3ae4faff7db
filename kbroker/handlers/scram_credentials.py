"""Users' SCRAM credentials: described and altered.

DescribeUserScramCredentials: which SCRAM credentials users have, without anything secret (KIP-554).
Served: 0.

AlterUserScramCredentials: users' SCRAM credentials are set and removed (KIP-554).
Served: 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import require_cluster
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.scram import ScramDeletion, ScramUpsertion, alter_scram_credentials
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handler(DescribeUserScramCredentialsRequest)
async def handle_describe_user_scram_credentials(
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


@handler(AlterUserScramCredentialsRequest)
async def handle_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, ctx: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Change each user's credential or say why not."""
    deletions = [ScramDeletion(entry.name, entry.mechanism) for entry in request.deletions]
    upsertions = [
        ScramUpsertion(entry.name, entry.mechanism, entry.iterations, bytes(entry.salt), bytes(entry.salted_password))
        for entry in request.upsertions
    ]
    outcomes: Mapping[str, ApiError | None]
    try:
        require_cluster(ctx, AclOperation.ALTER)
        outcomes = await ctx.services.metadata.submit(lambda view: alter_scram_credentials(view, deletions, upsertions))
    except ApiError as error:
        users = [entry.user for entry in deletions] + [entry.user for entry in upsertions]
        outcomes = dict.fromkeys(users, error)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_message=None)
            if error is None
            else AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
            for user, error in outcomes.items()
        ]
    )
