"""DescribeGroups (key 15): state, members and assignments of classic groups.

Served: 0 to 6. 3: authorized operations; 4: static members; 5: flexible; 6: GROUP_ID_NOT_FOUND (KIP-1043).
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import authorized_operations, may
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.duplicates_in_request import DuplicateAnswers, encoded_size
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse


@handler(DescribeGroupsRequest)
async def handle(request: DescribeGroupsRequest, ctx: RequestContext) -> DescribeGroupsResponse:
    """Describe each group, as often as it is named; one that is not there is Dead.

    As in Kafka, those that the principal may not describe come first.
    """
    version = ctx.api_version
    answers = DuplicateAnswers[DescribedGroup](
        ctx.budgets.repeated_bytes, lambda entry: encoded_size(DescribeGroupsResponse(groups=[entry]), version)
    )
    described, denied = [], []
    share = FairShare(ctx)
    for group_id in request.groups:
        await share.next()
        if not may(ctx, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            denied.append(DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        try:
            entry = answers.again(group_id)
            if entry is None:
                entry = await _describe(group_id, version, ctx)
                if request.include_authorized_operations and not entry.error_code:
                    entry.authorized_operations = authorized_operations(ctx, ResourceType.GROUP, group_id)
                answers.add(group_id, entry)
        except ApiError as error:
            entry = DescribedGroup(group_id=group_id, error_code=error.code)
        described.append(entry)
    return DescribeGroupsResponse(groups=denied + described)


async def _describe(group_id: str, version: int, ctx: RequestContext) -> DescribedGroup:
    return await ctx.services.groups.read(group_id, lambda core: core.admin.describe_group(group_id, version))
