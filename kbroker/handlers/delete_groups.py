"""DeleteGroups (key 42): delete empty groups with their offsets. Served: 0 to 3.

2: flexible; 3: a message beside the error (KIP-1331). Apache Kafka has one where a plugin of streams groups failed.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.groups.share.requests import StateDeletion
from kbroker.handlers.authorization import may
from kbroker.handlers.context import RequestContext
from kbroker.handlers.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.handlers.share_group_state import delete_states
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@handler(DeleteGroupsRequest)
async def handle(request: DeleteGroupsRequest, ctx: RequestContext) -> DeleteGroupsResponse:
    """Delete each group named, or say why not. As in Kafka, those that the principal may not delete come last."""
    results, denied = [], []
    share = FairShare()
    for group_id in dict.fromkeys(request.groups_names):
        await share.next()
        if not may(ctx, AclOperation.DELETE, ResourceType.GROUP, group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            denied.append(DeletableGroupResult(group_id=group_id, error_code=code))
            continue
        error = ErrorCode.NONE
        try:
            await _delete(group_id, ctx)
        except ApiError as failure:
            error = failure.code
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    return DeleteGroupsResponse(results=results + denied)


async def _delete(group_id: str, ctx: RequestContext) -> None:
    groups = ctx.services.groups
    await groups.until_loaded(group_id)
    states: StateDeletion | None = await groups.run(
        group_id, lambda core, now_ms: core.begin_deletion_of_states(group_id)
    )
    if states is not None:
        # The states first: once the group is gone, nobody knows of them.
        errors = await delete_states(states, ctx)
        failed = next((error for error in errors.values() if error), None)
        if failed is not None:
            raise ApiError(failed)
    await groups.run(group_id, lambda core, now_ms: core.admin.delete_group(group_id))
