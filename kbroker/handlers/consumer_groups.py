"""Members of consumer groups: their heartbeats and descriptions (KIP-848).

ConsumerGroupHeartbeat (key 68): join, stay in and leave a KIP-848 group, and get the assignment.
Served: 0 to 1. 1: regular expressions matched by the broker; the client makes its member id (KIP-1082).

ConsumerGroupDescribe (key 69): epochs, members and assignments of KIP-848 groups.
Served: 0 to 1. 1: tells classic members from those of the consumer protocol (KIP-1099).
"""

from __future__ import annotations

from kbroker.cores.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.classic_groups import client_of
from kbroker.handlers.common.authorization import allowed_names, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.described_groups import answer_described
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)

_CLIENT_MAKES_MEMBER_ID_VERSION = 1


@handler(ConsumerGroupHeartbeatRequest)
async def handle_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, ctx: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Answer with the member's epoch and, where it is new to the member, its assignment."""
    try:
        check_enabled(ctx)
        if ctx.services.authorizer is not None:
            await _authorize(request, ctx)
        _validate(request, ctx.api_version, ctx.services.groups.settings().consumer_assignors)
        client = client_of(ctx)
        groups = ctx.services.groups
        await groups.until_loaded(request.group_id)
        return await groups.run(
            request.group_id, lambda core, now_ms: core.consumer_group_heartbeat(request, client, now_ms)
        )
    except ApiError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


async def _authorize(request: ConsumerGroupHeartbeatRequest, ctx: RequestContext) -> None:
    """`ApiError` if the principal may not be in the group, or not see one of the topics that it subscribes to."""
    require_group(ctx, AclOperation.READ, request.group_id)
    subscribed = dict.fromkeys(request.subscribed_topic_names or ())
    if len(await allowed_names(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, subscribed)) < len(subscribed):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def check_enabled(ctx: RequestContext) -> None:
    """`ApiError` UNSUPPORTED_VERSION unless the cluster and this node serve KIP-848 groups."""
    levels, _ = ctx.services.metadata.finalized_features()
    served = "consumer" in ctx.services.config.group_coordinator_rebalance_protocols
    if not served or levels.get("group.version", 0) < 1:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


def _validate(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: tuple[str, ...]) -> None:
    """`ApiError` INVALID_REQUEST or UNSUPPORTED_ASSIGNOR (Kafka's ``GroupCoordinatorService``)."""
    epoch = request.member_epoch
    if api_version >= _CLIENT_MAKES_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH:
        check_not_blank(request.member_id, "MemberId")
    check_not_blank(request.group_id, "GroupId")
    check_not_blank(request.instance_id, "InstanceId")
    check_not_blank(request.rack_id, "RackId")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(sorted(assignors))}.",
        )


def check_not_blank(value: str | None, name: str) -> None:
    """`ApiError` INVALID_REQUEST for a field of this name that is there and blank."""
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


@handler(ConsumerGroupDescribeRequest)
async def handle_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, ctx: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describe each group; one that is not there, or not of this protocol, has GROUP_ID_NOT_FOUND."""
    groups = ctx.services.groups
    return await answer_described(
        request,
        ctx,
        response=ConsumerGroupDescribeResponse,
        entry=DescribedGroup,
        check=check_enabled,
        describe=lambda group_id: groups.read(group_id, lambda core: core.admin.describe_consumer_group(group_id)),
        topics_of=_topics_of,
        hidden="The group has described topic(s) that the client is not authorized to describe.",
    )


def _topics_of(group: DescribedGroup) -> set[str]:
    """The topics of its members' assignments, present and to come."""
    return {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }
