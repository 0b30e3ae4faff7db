"""ListGroups (key 16): the groups that this node coordinates.

Served: 0 to 5. 3: flexible; 4: filter by state (KIP-518); 5: filter by type (KIP-848).
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@handler(ListGroupsRequest)
async def handle(request: ListGroupsRequest, ctx: RequestContext) -> ListGroupsResponse:
    """List groups; filters that nothing matches give an empty list."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    try:
        found = await ctx.services.groups.read_all(lambda core: core.admin.list_groups(states, types))
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    return ListGroupsResponse(groups=[group for groups in found for group in groups])
