"""The common part of requests to share groups (KIP-932): whether a node serves them; steps of the share coordinator."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.cores.groups.share.requests import StateDeletion, by_topic
from kbroker.cores.share_state import Persister, SharePartitionKey
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.context import RequestContext
from kbroker.raft_metadata.features import SHARE_VERSION
from kbroker.types import Uuid


def check_share_groups_enabled(ctx: RequestContext) -> None:
    """`ApiError` UNSUPPORTED_VERSION unless the cluster serves share groups (``share.version``)."""
    if ctx.services.metadata.image.features.levels.get(SHARE_VERSION, 0) < 1:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


def persister_of(ctx: RequestContext) -> Persister:
    """The way to the share coordinator."""
    assert ctx.services.share_groups is not None, "this is for APIs of brokers"
    return ctx.services.share_groups().persister


async def delete_states(request: StateDeletion, ctx: RequestContext) -> dict[Uuid, ErrorCode]:
    """Have states deleted, and the group hear of those that are gone; each topic's first error, or NONE. `ApiError`."""
    errors = first_errors(await persister_of(ctx).delete(request.group_id, request.partitions))
    found = {topic_id: errors.get(topic_id, ErrorCode.NONE) for topic_id in by_topic(request.partitions)}
    gone = [topic_id for topic_id, error in found.items() if not error]
    if gone:
        group_id = request.group_id
        await ctx.services.groups.run(group_id, lambda core, now_ms: core.share_admin.end_deletion(group_id, gone))
    return found


def first_errors(errors: Mapping[SharePartitionKey, ErrorCode]) -> dict[Uuid, ErrorCode]:
    """Topic -> the first error of a partition; a topic without an error is left out."""
    found: dict[Uuid, ErrorCode] = {}
    for key, error in errors.items():
        if error:
            found.setdefault(key.topic_id, error)
    return found
