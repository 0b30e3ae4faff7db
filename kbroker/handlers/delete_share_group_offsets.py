"""DeleteShareGroupOffsets (key 92): forget the states of topics of a share group without members. Served: 0."""

from __future__ import annotations

from kbroker.cores.groups.share.admin import OffsetsDeletion
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.common.share_groups import check_share_groups_enabled, delete_states
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


@handler(DeleteShareGroupOffsetsRequest)
async def handle(request: DeleteShareGroupOffsetsRequest, ctx: RequestContext) -> DeleteShareGroupOffsetsResponse:
    """Delete the states of each topic, or say why not. Topics that the principal may not read come first."""
    try:
        check_share_groups_enabled(ctx)
        require_group(ctx, AclOperation.DELETE, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        denied, allowed = [], []
        share = FairShare(ctx)
        for name in dict.fromkeys(topic.topic_name for topic in request.topics):
            await share.next()
            if may(ctx, AclOperation.READ, ResourceType.TOPIC, name):
                allowed.append(name)
            else:
                denied.append(_outcome(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return DeleteShareGroupOffsetsResponse(responses=denied + await _delete(request.group_id, allowed, ctx))
    except ApiError as error:
        message = error.message or standard_message(error.code)
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=message)


async def _delete(group_id: str, names: list[str], ctx: RequestContext) -> list[DeleteShareGroupOffsetsResponseTopic]:
    groups = ctx.services.groups
    await groups.until_loaded(group_id)
    deletion: OffsetsDeletion = await groups.run(
        group_id, lambda core, now_ms: core.share_admin.begin_offsets_deletion(group_id, names)
    )
    outcomes = [_outcome(name, error, message) for name, (error, message) in deletion.errors.items()]
    if deletion.names:
        errors = await delete_states(deletion.request, ctx)
        outcomes += [_outcome(name, errors[topic_id], topic_id=topic_id) for topic_id, name in deletion.names.items()]
    return outcomes


def _outcome(
    name: str, error: ErrorCode, message: str | None = None, topic_id: Uuid = ZERO_UUID
) -> DeleteShareGroupOffsetsResponseTopic:
    if error and message is None:
        message = standard_message(error)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, error_code=error, error_message=message
    )
