"""The groups of a describing API of KIP-848, KIP-932 or KIP-1071, one after the other, each with its own error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import authorized_operations, may, may_each
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.duplicates_in_request import DuplicateAnswers, encoded_size
from kbroker.handlers.common.fair_share import FairShare
from kbroker.security.authorizer.types import AclOperation, ResourceType


class DescribedGroup(Protocol):
    """A group's entry, in any of the APIs."""

    error_code: int
    authorized_operations: int


class DescribeRequest(Protocol):
    """A request of any of the APIs."""

    @property
    def group_ids(self) -> Sequence[str]: ...

    @property
    def include_authorized_operations(self) -> bool: ...


G = TypeVar("G", bound=DescribedGroup)
R = TypeVar("R")


async def answer_described(
    request: DescribeRequest,
    ctx: RequestContext,
    *,
    response: Callable[..., R],
    entry: Callable[..., G],
    check: Callable[[RequestContext], None],
    describe: Callable[[str], Awaitable[G]],
    topics_of: Callable[[G], Iterable[str]],
    hidden: str,
) -> R:
    """Describe each group, as often as it is named; as in Kafka, those that the principal may not describe come first.

    ``response`` and ``entry`` are the API's classes. ``check`` raises `ApiError` if groups of this type are not served,
    ``describe`` for a group that cannot be described. A group with topics (``topics_of``) that the principal may not
    describe has TOPIC_AUTHORIZATION_FAILED with the text ``hidden``.
    """
    try:
        check(ctx)
    except ApiError as error:
        return response(groups=[entry(group_id=group_id, error_code=error.code) for group_id in request.group_ids])
    version = ctx.api_version
    answers = DuplicateAnswers[G](
        ctx.budgets.repeated_bytes, lambda told: encoded_size(response(groups=[told]), version)
    )
    described, denied = [], []
    may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC)
    share = FairShare(ctx)

    def failed(group_id: str, code: ErrorCode, message: str | None) -> G:
        return entry(group_id=group_id, error_code=code, error_message=message)

    for group_id in request.group_ids:
        await share.next()
        if not may(ctx, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            denied.append(failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, None))
            continue
        try:
            told = answers.again(group_id)
            if told is None:
                if not group_id:
                    raise ApiError(ErrorCode.INVALID_GROUP_ID)
                told = await describe(group_id)
                if may_see is not None and not all(may_see(topic) for topic in topics_of(told)):
                    told = failed(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, hidden)
                elif request.include_authorized_operations:
                    told.authorized_operations = authorized_operations(ctx, ResourceType.GROUP, group_id)
                answers.add(group_id, told)
        except ApiError as error:
            told = failed(group_id, error.code, error.message)
        described.append(told)
    return response(groups=denied + described)
