"""StreamsGroupDescribe (key 89): topology, members and tasks of streams groups (KIP-1071).

Served: 0 to 1. 1: descriptions of topologies (KIP-1331), if the node has a keeper of them; the assignor's name.
"""

from __future__ import annotations

from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.described_groups import answer_described
from kbroker.handlers.common.streams_groups import check_streams_groups_enabled
from kbroker.handlers.registration import handler
from kbroker.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

_NOT_STORED = 1
"""The status of a description that was asked for and is not kept."""


@handler(StreamsGroupDescribeRequest)
async def handle(request: StreamsGroupDescribeRequest, ctx: RequestContext) -> StreamsGroupDescribeResponse:
    """Describe each group; one that is not there, or not of this protocol, has GROUP_ID_NOT_FOUND."""
    groups_here = ctx.services.groups

    async def describe(group_id: str) -> DescribedGroup:
        assignor = groups_here.group_config(group_id).streams.assignor
        entry: DescribedGroup = await groups_here.read(
            group_id, lambda core: core.admin.describe_streams_group(group_id, assignor)
        )
        if request.include_topology_description:
            await _attach(entry, ctx)
        return entry

    return await answer_described(
        request,
        ctx,
        response=StreamsGroupDescribeResponse,
        entry=DescribedGroup,
        check=check_streams_groups_enabled,
        describe=describe,
        topics_of=_topics_of,
        hidden="The described group uses topics that the client is not authorized to describe.",
    )


async def _attach(entry: DescribedGroup, ctx: RequestContext) -> None:
    """Add the description of the topology, as far as it is kept."""
    groups = ctx.services.groups
    if groups.descriptions is None:
        entry.topology_description_status = _NOT_STORED
        return
    group_id = entry.group_id
    stored = await groups.read(group_id, lambda core: core.descriptions.stored_epoch(group_id))
    await groups.descriptions.attach(entry, stored)


def _topics_of(group: DescribedGroup) -> set[str]:
    """The topics of its topology."""
    names: set[str] = set()
    for subtopology in (None if group.topology is None else group.topology.subtopologies) or ():
        names.update(subtopology.source_topics, subtopology.repartition_sink_topics)
        names.update(topic.name for topic in subtopology.repartition_source_topics)
        names.update(topic.name for topic in subtopology.state_changelog_topics)
    return names
