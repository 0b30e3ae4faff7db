"""ConsumerGroupDescribe (key 69): epochs, members and assignments of KIP-848 groups.

Served: 0 to 1. 1: tells classic members from those of the consumer protocol (KIP-1099).
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.consumer_group_heartbeat import check_enabled
from kbroker.handlers.context import RequestContext
from kbroker.handlers.describe_groups import ALL_GROUP_OPERATIONS
from kbroker.handlers.duplicates_in_request import DuplicateAnswers, encoded_size
from kbroker.handlers.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


@handler(ConsumerGroupDescribeRequest)
async def handle(request: ConsumerGroupDescribeRequest, ctx: RequestContext) -> ConsumerGroupDescribeResponse:
    """Describe each group, as often as it is named; one that is not there, or not of this protocol, has
    GROUP_ID_NOT_FOUND."""
    version = ctx.api_version
    answers = DuplicateAnswers[DescribedGroup](
        lambda entry: encoded_size(ConsumerGroupDescribeResponse(groups=[entry]), version)
    )
    described = []
    share = FairShare()
    for group_id in request.group_ids:
        await share.next()
        try:
            entry = answers.again(group_id)
            if entry is None:
                entry = await _describe(group_id, ctx)
                if request.include_authorized_operations:
                    entry.authorized_operations = ALL_GROUP_OPERATIONS
                answers.add(group_id, entry)
        except ApiError as error:
            entry = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        described.append(entry)
    return ConsumerGroupDescribeResponse(groups=described)


async def _describe(group_id: str, ctx: RequestContext) -> DescribedGroup:
    check_enabled(ctx)
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    entry: DescribedGroup = await ctx.services.groups.read(
        group_id, lambda core: core.admin.describe_consumer_group(group_id)
    )
    return entry
