"""DeleteGroups (key 42): delete empty groups with their offsets. Served: 0 to 3.

2: flexible; 3: a message beside the error, where the keeper of topologies' descriptions failed (KIP-1331).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from kbroker.cores.groups.share.requests import StateDeletion

_WITH_MESSAGE = 3


@handler(DeleteGroupsRequest)
async def handle(request: DeleteGroupsRequest, ctx: RequestContext) -> DeleteGroupsResponse:
    """Delete each group named, or say why not. As in Kafka, those that the principal may not delete come last."""
    results, denied = [], []
    share = FairShare(ctx)
    for group_id in dict.fromkeys(request.groups_names):
        await share.next()
        if not may(ctx, AclOperation.DELETE, ResourceType.GROUP, group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            denied.append(DeletableGroupResult(group_id=group_id, error_code=code))
            continue
        result = DeletableGroupResult(group_id=group_id)
        try:
            await _delete(group_id, ctx)
        except ApiError as failure:
            result.error_code = failure.code
            if failure.code is ErrorCode.GROUP_DELETION_FAILED and ctx.api_version >= _WITH_MESSAGE:
                result.error_message = failure.message
        results.append(result)
    return DeleteGroupsResponse(results=results + denied)


async def _delete(group_id: str, ctx: RequestContext) -> None:
    groups = ctx.services.groups
    await groups.until_loaded(group_id)
    states: StateDeletion | None = await groups.run(
        group_id, lambda core, now_ms: core.begin_deletion_of_states(group_id)
    )
    if states is not None:
        from kbroker.handlers.common.share_groups import delete_states  # with the first share group

        # The states first: once the group is gone, nobody knows of them.
        errors = await delete_states(states, ctx)
        failed = next((error for error in errors.values() if error), None)
        if failed is not None:
            raise ApiError(failed)
    if groups.descriptions is not None:
        await groups.descriptions.delete(group_id)
    await groups.run(group_id, lambda core, now_ms: core.admin.delete_group(group_id))
