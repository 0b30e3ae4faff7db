"""ConsumerGroupDescribe (key 69): epochs, members and assignments of KIP-848 groups.

Served: 0 to 1. 1: tells classic members from those of the consumer protocol (KIP-1099).
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.authorization import authorized_operations, may, may_each
from kbroker.handlers.consumer_group_heartbeat import check_enabled
from kbroker.handlers.context import RequestContext
from kbroker.handlers.duplicates_in_request import DuplicateAnswers, encoded_size
from kbroker.handlers.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


@handler(ConsumerGroupDescribeRequest)
async def handle(request: ConsumerGroupDescribeRequest, ctx: RequestContext) -> ConsumerGroupDescribeResponse:
    """Describe each group, as often as it is named; one that is not there, or not of this protocol, has
    GROUP_ID_NOT_FOUND.

    As in Kafka, groups that the principal may not describe come first.
    """
    try:
        check_enabled(ctx)
    except ApiError as error:
        return ConsumerGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=error.code) for group_id in request.group_ids]
        )
    version = ctx.api_version
    answers = DuplicateAnswers[DescribedGroup](
        lambda entry: encoded_size(ConsumerGroupDescribeResponse(groups=[entry]), version)
    )
    described, denied = [], []
    may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC)
    share = FairShare()
    for group_id in request.group_ids:
        await share.next()
        if not may(ctx, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            denied.append(DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        try:
            entry = answers.again(group_id)
            if entry is None:
                entry = await _describe(group_id, ctx)
                if may_see is not None and not all(may_see(topic) for topic in _topics_of(entry)):
                    entry = DescribedGroup(
                        group_id=group_id,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        error_message="The group has described topic(s) that the client is not authorized to describe.",
                    )
                elif request.include_authorized_operations:
                    entry.authorized_operations = authorized_operations(ctx, ResourceType.GROUP, group_id)
                answers.add(group_id, entry)
        except ApiError as error:
            entry = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        described.append(entry)
    return ConsumerGroupDescribeResponse(groups=denied + described)


def _topics_of(group: DescribedGroup) -> set[str]:
    """The topics of its members' assignments, present and to come."""
    return {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }


async def _describe(group_id: str, ctx: RequestContext) -> DescribedGroup:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    entry: DescribedGroup = await ctx.services.groups.read(
        group_id, lambda core: core.admin.describe_consumer_group(group_id)
    )
    return entry
