"""DeleteGroups (key 42): delete empty groups with their offsets. Served: 0 to 2; 2: flexible."""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.handlers.turns import Turns
from kbroker.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@handler(DeleteGroupsRequest)
async def handle(request: DeleteGroupsRequest, ctx: RequestContext) -> DeleteGroupsResponse:
    """Delete each group named, or say why not."""
    results = []
    turns = Turns()
    for group_id in dict.fromkeys(request.groups_names):
        await turns.next()
        error = ErrorCode.NONE
        try:
            await ctx.services.groups.submit(
                group_id, lambda shard, now_ms, group_id=group_id: shard.admin.delete_group(group_id)
            )
        except ApiError as failure:
            error = failure.code
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    return DeleteGroupsResponse(results=results)
