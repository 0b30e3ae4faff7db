"""ListGroups (key 16): the groups that this node coordinates.

Served: 0 to 5. 3: flexible; 4: filter by state (KIP-518); 5: filter by type (KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.errors import ApiError
from kbroker.handlers.common.authorization import may, may_on_cluster
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare, portions
from kbroker.handlers.registration import LargeAnswers, handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def _lists_of(response: ListGroupsResponse) -> Iterator[list[ListedGroup]]:
    yield response.groups


@handler(ListGroupsRequest, large_answers=LargeAnswers(_lists_of))
async def handle(request: ListGroupsRequest, ctx: RequestContext) -> ListGroupsResponse:
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
