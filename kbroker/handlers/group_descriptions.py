"""Descriptions of groups whose members send heartbeats: the same rules for consumer groups and share groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.authorization import authorized_operations, may, may_each
from kbroker.handlers.context import RequestContext
from kbroker.handlers.duplicates_in_request import DuplicateAnswers, encoded_size
from kbroker.handlers.fair_share import FairShare
from kbroker.security.authorizer.types import AclOperation, ResourceType


class Description(Protocol):
    """A group as the answer has it."""

    authorized_operations: int


D = TypeVar("D", bound=Description)


async def describe_groups(
    group_ids: Iterable[str],
    ctx: RequestContext,
    *,
    describe: Callable[[str, RequestContext], Awaitable[D]],
    topics_of: Callable[[D], set[str]],
    refused: Callable[[str, ApiError], D],
    response_of: Callable[[D], Any],
    wants_operations: bool,
) -> list[D]:
    """Describe each group, as often as it is named.

    As in Kafka, groups that the principal may not describe come first. A group with a topic that the principal may not
    describe is refused. ``refused`` is the entry of an error, ``response_of`` a response with one entry.
    """
    answers = DuplicateAnswers[D](lambda entry: encoded_size(response_of(entry), ctx.api_version))
    described, denied = [], []
    may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC)
    share = FairShare()
    for group_id in group_ids:
        await share.next()
        if not may(ctx, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            denied.append(refused(group_id, ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
            continue
        try:
            entry = answers.again(group_id)
            if entry is None:
                entry = await describe(group_id, ctx)
                if may_see is not None and not all(may_see(topic) for topic in topics_of(entry)):
                    entry = refused(group_id, _HIDDEN_TOPIC)
                elif wants_operations:
                    entry.authorized_operations = authorized_operations(ctx, ResourceType.GROUP, group_id)
                answers.add(group_id, entry)
        except ApiError as error:
            entry = refused(group_id, error)
        described.append(entry)
    return denied + described


_HIDDEN_TOPIC = ApiError(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "The group has described topic(s) that the client is not authorized to describe.",
)
