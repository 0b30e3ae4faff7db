"""Members of streams groups: their heartbeats, descriptions and topologies (KIP-1071).

StreamsGroupHeartbeat (key 88): join, stay in and leave a group of Kafka Streams (KIP-1071), and get tasks.
Served: 0 to 1. 1: the acceptable recovery lag in 64 bits; members are told which client tags they lack, and asked for
the description of their topology (KIP-1331). The internal
topics that the topology lacks are created before the answer, with the rights of the client.

StreamsGroupDescribe (key 89): topology, members and tasks of streams groups (KIP-1071).
Served: 0 to 1. 1: descriptions of topologies (KIP-1331), if the node has a keeper of them; the assignor's name.

StreamsGroupTopologyDescriptionUpdate (key 93): a member sends the description of its topology (KIP-1331).
Served: 0. A broker without a keeper of descriptions asks no member for one, and refuses one that comes, as Apache Kafka
does.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kbroker.cores.groups.modern_group import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.classic_groups import client_of
from kbroker.handlers.common.authorization import allowed_names, may_on_cluster, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.described_groups import answer_described
from kbroker.handlers.consumer_groups import check_not_blank
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.topics import INTERNAL_TOPICS, NewTopic, topic_name_problem
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.streams_groups import (
    DescribedGroup,
    HeartbeatTopology,
    Status,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from kbroker.cores.groups.streams.configured_topology import InternalTopic


def check_streams_groups_enabled(ctx: RequestContext) -> None:
    """`ApiError` UNSUPPORTED_VERSION unless the cluster (``streams.version``) and this node serve streams groups."""
    levels, _ = ctx.services.metadata.finalized_features()
    config = ctx.services.config
    served = "streams" in config.group_coordinator_rebalance_protocols
    if not served or levels.get("streams.version", 0) < 1:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


_STALE_TOPOLOGY = 0
_MISSING_INTERNAL_TOPICS = 3
_MOST_ERRORS_SHOWN = 3


@handler(StreamsGroupHeartbeatRequest)
async def handle_streams_group_heartbeat(
    request: StreamsGroupHeartbeatRequest, ctx: RequestContext
) -> StreamsGroupHeartbeatResponse:
    """Answer with the member's epoch and, where they are new to the member, its tasks."""
    try:
        check_streams_groups_enabled(ctx)
        require_group(ctx, AclOperation.READ, request.group_id)
        if request.topology is not None:
            await _check_topics(request.topology, ctx)
        _validate(request)
        client = client_of(ctx)
        groups = ctx.services.groups
        await groups.until_loaded(request.group_id)
        result = await groups.run(
            request.group_id, lambda core, now_ms: core.streams_group_heartbeat(request, client, now_ms)
        )
    except ApiError as error:
        return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message, status=[])
    if result.missing_topics:
        problem = await _create(result.missing_topics, ctx)
        if problem:
            _add_detail(result.response, problem)
    if groups.descriptions is not None and ctx.api_version >= 1 and not _is_stale(result.response):
        result.response.topology_description_required = groups.descriptions.is_wanted(request.group_id, result)
    return result.response


def _is_stale(response: StreamsGroupHeartbeatResponse) -> bool:
    """Whether the member's own topology is an older one than the group's."""
    return any(status.status_code == _STALE_TOPOLOGY for status in response.status or ())


async def _check_topics(topology: HeartbeatTopology, ctx: RequestContext) -> None:
    """`ApiError` for topics that no topology may have, and those that the principal may not describe."""
    names = dict.fromkeys(
        name
        for subtopology in topology.subtopologies
        for name in (
            *subtopology.source_topics,
            *subtopology.repartition_sink_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
            *(topic.name for topic in subtopology.state_changelog_topics),
        )
    )
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.",
        )
    invalid = [name for name in names if topic_name_problem(name) is not None]
    if invalid:
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(invalid)} are not valid topic names."
        )
    if ctx.services.authorizer is not None:
        if len(await allowed_names(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, names)) < len(names):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _validate(request: StreamsGroupHeartbeatRequest) -> None:
    """`ApiError` INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY (Kafka's ``GroupCoordinatorService``)."""
    epoch, topology = request.member_epoch, request.topology
    for subtopology in () if topology is None else topology.subtopologies:
        if subtopology.source_topic_regex:
            raise _invalid("Regular expressions for source topics are not supported yet.")
    check_not_blank(request.member_id, "MemberId")
    check_not_blank(request.group_id, "GroupId")
    check_not_blank(request.instance_id, "InstanceId")
    check_not_blank(request.rack_id, "RackId")
    if epoch == 0:
        _validate_join(request)
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    given = [tasks is not None for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks)]
    if any(given) and not all(given):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != 0 and topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _validate_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise _invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise _invalid("Topology must be non-null when (re-)joining.")
    for subtopology in request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise ApiError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


# -- internal topics -------------------------------------------------------------------------------


async def _create(missing: Collection[InternalTopic], ctx: RequestContext) -> str:
    """Create the internal topics for the client; what is wrong, in words, if anything is."""
    names = [topic.name for topic in missing]
    if not may_on_cluster(ctx, AclOperation.CREATE, audits_denial=False):
        allowed = await allowed_names(ctx, AclOperation.CREATE, ResourceType.TOPIC, names)
        denied = [name for name in names if name not in allowed]
        if denied:
            return f"Unauthorized to CREATE on topics {', '.join(denied)}."
    topics = [
        NewTopic(topic.name, topic.partitions, topic.replication_factor, configs=topic.configs) for topic in missing
    ]
    try:
        outcomes = await ctx.services.metadata.create_topics(topics, ctx)
    except ApiError as error:
        return f"Creation failed: {error.message or error.code.name}."
    failed = {
        name: outcome
        for name, outcome in outcomes.items()
        if isinstance(outcome, ApiError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    }
    if not failed:
        return ""
    shown = [f"{name} ({error.message or error.code.name})" for name, error in failed.items()][:_MOST_ERRORS_SHOWN]
    more = len(failed) - len(shown)
    return f"Creation failed: {', '.join(shown)}" + (f" and {more} more." if more else ".")


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    """Add to what the member is told of its missing internal topics."""
    statuses = response.status or []
    for status in statuses:
        if status.status_code == _MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {detail}"
            return
    response.status = [*statuses, Status(status_code=_MISSING_INTERNAL_TOPICS, status_detail=detail)]


_NOT_STORED = 1
"""The status of a description that was asked for and is not kept."""


@handler(StreamsGroupDescribeRequest)
async def handle_streams_group_describe(
    request: StreamsGroupDescribeRequest, ctx: RequestContext
) -> StreamsGroupDescribeResponse:
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


@handler(StreamsGroupTopologyDescriptionUpdateRequest)
async def handle_streams_group_topology_description_update(
    request: StreamsGroupTopologyDescriptionUpdateRequest, ctx: RequestContext
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Have the description kept."""
    try:
        check_streams_groups_enabled(ctx)
        require_group(ctx, AclOperation.READ, request.group_id)
        descriptions = ctx.services.groups.descriptions
        if descriptions is None:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, "The broker has no streams group topology description plugin configured."
            )
        if not request.member_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
        await descriptions.push(request)
    except ApiError as error:
        return StreamsGroupTopologyDescriptionUpdateResponse(error_code=error.code, error_message=error.message)
    return StreamsGroupTopologyDescriptionUpdateResponse()
