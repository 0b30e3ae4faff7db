"""The groups of a describing API of KIP-848 or KIP-1071, one after the other, each with its own error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.authorization import authorized_operations, may, may_each
from kbroker.handlers.context import RequestContext
from kbroker.handlers.duplicates_in_request import DuplicateAnswers
from kbroker.handlers.fair_share import FairShare
from kbroker.security.authorizer.types import AclOperation, ResourceType


class DescribedGroup(Protocol):
    """A group's entry, in any of the APIs."""

    error_code: int
    authorized_operations: int


G = TypeVar("G", bound=DescribedGroup)


async def described_groups(
    ctx: RequestContext,
    group_ids: Sequence[str],
    *,
    describe: Callable[[str], Awaitable[G]],
    failed: Callable[[str, ErrorCode, str | None], G],
    size: Callable[[G], int],
    topics_of: Callable[[G], Iterable[str]],
    hidden: str,
    with_operations: bool,
) -> list[G]:
    """Describe each group, as often as it is named; as in Kafka, those that the principal may not describe come first.

    ``describe`` raises `ApiError` for a group that cannot be described; ``failed`` makes the entry of an error, and
    ``size`` tells the bytes of one. A group with topics (``topics_of``) that the principal may not describe has
    TOPIC_AUTHORIZATION_FAILED with the text ``hidden``.
    """
    answers = DuplicateAnswers[G](size)
    described, denied = [], []
    may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC)
    share = FairShare()
    for group_id in group_ids:
        await share.next()
        if not may(ctx, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            denied.append(failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, None))
            continue
        try:
            entry = answers.again(group_id)
            if entry is None:
                if not group_id:
                    raise ApiError(ErrorCode.INVALID_GROUP_ID)
                entry = await describe(group_id)
                if may_see is not None and not all(may_see(topic) for topic in topics_of(entry)):
                    entry = failed(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, hidden)
                elif with_operations:
                    entry.authorized_operations = authorized_operations(ctx, ResourceType.GROUP, group_id)
                answers.add(group_id, entry)
        except ApiError as error:
            entry = failed(group_id, error.code, error.message)
        described.append(entry)
    return denied + described
