"""The shortcut of an OffsetCommit that differs from the connection's last one in nothing but its offsets.

A member that commits as it reads names the same partitions each time, and is answered the same. Decoding the request
and encoding the response costs as much as storing the offsets. So both are remembered, and only the offsets are taken
from the next request. The group still judges each time who may commit.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.groups.offset_requests import OffsetsToCommit
from kbroker.errors import ApiError
from kbroker.handlers.common.authorization import would_allow
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.offset_commit import CommitReply, all_failed
from kbroker.node.shortcuts.cache import Shortcut
from kbroker.node.shortcuts.template import PLACEHOLDER, RequestTemplate, request_template, response_template
from kbroker.runtime.later import Later
from kbroker.runtime.round import Round
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from kbroker.cores.groups.group_coordinator import GroupCoordinator

_MAX_PARTITIONS: Final = 100


class OffsetCommitShortcut(Shortcut):
    """One connection's commits to the same partitions by the same member."""

    __slots__ = ("_commit", "_ctx", "_group_id", "_reply", "_template", "_topics")

    grows: ClassVar[bool] = False

    def __init__(self, template: RequestTemplate, commit: OffsetsToCommit, ctx: RequestContext) -> None:
        self._template = template
        self._ctx = ctx
        self._commit = commit
        self._group_id = commit.request.group_id
        self._topics = ctx.services.metadata.image.topics
        self._reply = response_template(ctx.header.api_key, ctx.header.api_version, commit.response)

    def try_serve(self, frame: memoryview, round: Round | None = None) -> bytes | Later[Any] | None:
        """Have the offsets stored; the reply comes now or later.

        Let through is a request of another form, after a change of topics, and one that the group refuses at once.
        """
        found = self._template.match(frame)
        services = self._ctx.services
        if found is None or services.metadata.image.topics is not self._topics:
            return None
        correlation_id, *offsets = found
        commit, reply = self._commit, self._reply(correlation_id)

        def commit_again(core: GroupCoordinator, now_ms: int) -> CoordinatorResult[Any]:
            return CoordinatorResult(
                reply, core.commit_offsets_again(commit, offsets, now_ms, groups.commit_time_ms(now_ms))
            )

        group_id, groups, held = self._group_id, services.groups, self._ctx.connection.hold_replies()
        try:
            if held is not None and groups.run_in_round(group_id, commit_again, held, _QueuedReply(reply, self)):
                return reply
            outcome = CommitReply()
            outcome.asked = commit.request.topics
            groups.run(group_id, commit_again, gather=True, round=held, outcome=outcome)
        except ApiError:
            return None
        return reply if outcome.done and outcome.value is reply else outcome

    def replace(self, reply: bytes, error: ApiError) -> None:
        """Send the error instead of a reply that was queued in this round."""
        response = all_failed(self._commit.request.topics, error.code)
        self._ctx.connection.replace_unsent(reply, response, self._ctx.api_version)


class _QueuedReply:
    """The outcome of a commit whose reply is queued before it is stored, and waits for the end of the round."""

    __slots__ = ("_reply", "_shortcut")

    def __init__(self, reply: bytes, shortcut: OffsetCommitShortcut) -> None:
        self._reply = reply
        self._shortcut = shortcut

    def set(self, value: object) -> None:
        """Leave the reply as it is."""

    def fail(self, error: ApiError) -> None:
        """Replace the reply."""
        self._shortcut.replace(self._reply, error)


def remember(
    frame: memoryview, request: OffsetCommitRequest, response: object, ctx: RequestContext, known: object
) -> OffsetCommitShortcut | None:
    """The shortcut for commits like ``request``.

    ``None`` if it was refused, has metadata (whose limit may change), or names too many partitions.
    """
    version = ctx.api_version
    commit = OffsetsToCommit(request, version, metadata_limit=0)
    asked = sum(len(topic.partitions) for topic in request.topics)
    if not 0 < len(commit.places) == asked <= _MAX_PARTITIONS:
        return None
    if isinstance(response, OffsetCommitResponse) and response != commit.response:
        return None
    if ctx.services.authorizer is not None and not (
        would_allow(ctx, AclOperation.READ, ResourceType.GROUP, request.group_id)
        and all(would_allow(ctx, AclOperation.READ, ResourceType.TOPIC, topic.name) for topic in request.topics)
    ):
        return None
    varied = deepcopy(request)
    placeholders = range(PLACEHOLDER, PLACEHOLDER + asked)
    for partition, placeholder in zip(
        (each for topic in varied.topics for each in topic.partitions), placeholders, strict=True
    ):
        partition.committed_offset = placeholder
    # The handler has dropped partitions that do not exist: the frame then holds more than the request.
    template = request_template(frame, request, varied, version, placeholders)
    return None if template is None else OffsetCommitShortcut(template, commit, ctx)
