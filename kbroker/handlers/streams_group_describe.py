"""StreamsGroupDescribe (key 89): topology, members and tasks of streams groups (KIP-1071).

Served: 0 to 1. 1: descriptions of topologies (KIP-1331), of which kbroker keeps none; the assignor's name.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.authorization import authorized_operations, may, may_each
from kbroker.handlers.context import RequestContext
from kbroker.handlers.duplicates_in_request import DuplicateAnswers, encoded_size
from kbroker.handlers.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.handlers.streams_groups import check_streams_groups_enabled
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

_NOT_STORED = 1
"""The status of a description that was asked for and is not kept."""


@handler(StreamsGroupDescribeRequest)
async def handle(request: StreamsGroupDescribeRequest, ctx: RequestContext) -> StreamsGroupDescribeResponse:
    """Describe each group, as often as it is named; one that is not there, or not of this protocol, has
    GROUP_ID_NOT_FOUND.

    As in Kafka, groups that the principal may not describe come first.
    """
    try:
        check_streams_groups_enabled(ctx)
    except ApiError as error:
        return StreamsGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=error.code) for group_id in request.group_ids]
        )
    version = ctx.api_version
    answers = DuplicateAnswers[DescribedGroup](
        lambda entry: encoded_size(StreamsGroupDescribeResponse(groups=[entry]), version)
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
                        error_message="The described group uses topics that the client is not authorized to describe.",
                    )
                elif request.include_authorized_operations:
                    entry.authorized_operations = authorized_operations(ctx, ResourceType.GROUP, group_id)
                if request.include_topology_description and not entry.error_code:
                    entry.topology_description_status = _NOT_STORED
                answers.add(group_id, entry)
        except ApiError as error:
            entry = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        described.append(entry)
    return StreamsGroupDescribeResponse(groups=denied + described)


def _topics_of(group: DescribedGroup) -> set[str]:
    """The topics of its topology."""
    names: set[str] = set()
    for subtopology in (None if group.topology is None else group.topology.subtopologies) or ():
        names.update(subtopology.source_topics, subtopology.repartition_sink_topics)
        names.update(topic.name for topic in subtopology.repartition_source_topics)
        names.update(topic.name for topic in subtopology.state_changelog_topics)
    return names


async def _describe(group_id: str, ctx: RequestContext) -> DescribedGroup:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    assignor = ctx.services.config.group_streams_assignors[0]
    entry: DescribedGroup = await ctx.services.groups.read(
        group_id, lambda core: core.admin.describe_streams_group(group_id, assignor)
    )
    return entry
