"""AlterUserScramCredentials: users' SCRAM credentials are set and removed (KIP-554).

Served: 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.errors import ApiError
from kbroker.handlers.common.authorization import require_cluster
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.scram import ScramDeletion, ScramUpsertion, alter_scram_credentials
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


@handler(AlterUserScramCredentialsRequest)
async def handle(request: AlterUserScramCredentialsRequest, ctx: RequestContext) -> AlterUserScramCredentialsResponse:
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
