"""Groups of all types: described (classic ones), listed and deleted.

DescribeGroups (key 15): state, members and assignments of classic groups.
Served: 0 to 6. 3: authorized operations; 4: static members; 5: flexible; 6: GROUP_ID_NOT_FOUND (KIP-1043).

ListGroups (key 16): the groups that this node coordinates.
Served: 0 to 5. 3: flexible; 4: filter by state (KIP-518); 5: filter by type (KIP-848).

DeleteGroups (key 42): delete empty groups with their offsets. Served: 0 to 3.

2: flexible; 3: a message beside the error, where the keeper of topologies' descriptions failed (KIP-1331).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import authorized_operations, may, may_on_cluster
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.duplicates_in_request import DuplicateAnswers, encoded_size
from kbroker.handlers.common.fair_share import FairShare, portions
from kbroker.handlers.registration import LargeAnswers, handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from kbroker.cores.groups.share.requests import StateDeletion


@handler(DescribeGroupsRequest)
async def handle_describe_groups(request: DescribeGroupsRequest, ctx: RequestContext) -> DescribeGroupsResponse:
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


def _lists_of(response: ListGroupsResponse) -> Iterator[list[ListedGroup]]:
    yield response.groups


@handler(ListGroupsRequest, large_answers=LargeAnswers(_lists_of))
async def handle_list_groups(request: ListGroupsRequest, ctx: RequestContext) -> ListGroupsResponse:
    """List groups; filters that nothing matches give an empty list.

    Who may not describe the cluster is told of the groups that they may describe, and not that there are others.
    """
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    sees_all = may_on_cluster(ctx, AclOperation.DESCRIBE, audits_denial=False)
    try:
        found = await ctx.services.groups.read_all(lambda core: core.admin.list_groups(states, types))
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    response = ListGroupsResponse()
    share = FairShare(ctx)
    for of_core in found:
        for portion in portions(ctx, of_core):
            await share.next(len(portion))
            response.groups += [
                group
                for group in portion
                if sees_all or may(ctx, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id, audits_denial=False)
            ]
    return response


_WITH_MESSAGE = 3


@handler(DeleteGroupsRequest)
async def handle_delete_groups(request: DeleteGroupsRequest, ctx: RequestContext) -> DeleteGroupsResponse:
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
