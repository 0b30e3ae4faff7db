"""ConsumerGroupDescribe (key 69): epochs, members and assignments of KIP-848 groups.

Served: 0 to 1. 1: tells classic members from those of the consumer protocol (KIP-1099).
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.consumer_group_heartbeat import check_enabled
from kbroker.handlers.context import RequestContext
from kbroker.handlers.describe_groups import ALL_GROUP_OPERATIONS
from kbroker.handlers.registration import Versions, handler
from kbroker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

VERSIONS = Versions(0, 1)


@handler(ConsumerGroupDescribeRequest, versions=VERSIONS)
async def handle(request: ConsumerGroupDescribeRequest, ctx: RequestContext) -> ConsumerGroupDescribeResponse:
    """Describe each group; one that is not there, or not of this protocol, has GROUP_ID_NOT_FOUND."""
    described = []
    for group_id in request.group_ids:
        try:
            check_enabled(ctx)
            if not group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID)
            entry = await ctx.services.groups.read(
                group_id, lambda shard, group_id=group_id: shard.admin.describe_consumer_group(group_id)
            )
            if request.include_authorized_operations:
                entry.authorized_operations = ALL_GROUP_OPERATIONS
        except ApiError as error:
            entry = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        described.append(entry)
    return ConsumerGroupDescribeResponse(groups=described)
