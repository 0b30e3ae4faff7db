"""StreamsGroupTopologyDescriptionUpdate (key 93): a member sends the description of its topology (KIP-1331).

Served: 0. A broker without a keeper of descriptions asks no member for one, and refuses one that comes, as Apache Kafka
does.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.streams_groups import check_streams_groups_enabled
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)


@handler(StreamsGroupTopologyDescriptionUpdateRequest)
async def handle(
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
