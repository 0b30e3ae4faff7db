"""The common part of ShareFetch and ShareAcknowledge: permissions, and the members' word for records that they hold.

The rules are those of ``KafkaApis.handleAcknowledgements`` and ``validateAcknowledgementBatches``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kbroker.cores.share_partitions.acknowledging import AcknowledgementBatch, AcknowledgeType
from kbroker.cores.share_partitions.requests import TopicIdPartition
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import May, may_each_now, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.leaders import current_leader
from kbroker.handlers.common.share_groups import check_share_groups_enabled
from kbroker.handlers.services.share_groups import SharePartitions
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import Uuid

_LONGEST_MEMBER_ID = 36
_RENEW = AcknowledgeType.RENEW.value


class ToldBatch(Protocol):
    """``AcknowledgementBatch`` of either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class LeaderField(Protocol):
    """``LeaderIdAndEpoch`` of either response."""

    leader_id: int
    leader_epoch: int


Told = dict[TopicIdPartition, list[ToldBatch]]


def check_member(group_id: str | None, member_id: str | None, ctx: RequestContext) -> tuple[str, str]:
    """The group and the member of a request. ``ApiError`` if they cannot be, or the principal may not read as them."""
    check_share_groups_enabled(ctx)
    if group_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    require_group(ctx, AclOperation.READ, group_id)
    if not member_id or len(member_id) > _LONGEST_MEMBER_ID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return group_id, member_id


def share_partitions(ctx: RequestContext) -> SharePartitions:
    """The share partitions of this node."""
    assert ctx.services.share_groups is not None, "this is for APIs of brokers"
    return ctx.services.share_groups().partitions


class TopicAccess:
    """Says why a partition cannot be served: for the topic's id, the index, or the permission, by the rules of now."""

    def __init__(self, ctx: RequestContext) -> None:
        self._manager = ctx.services.replica_manager
        self._may: May | None = may_each_now(ctx, AclOperation.READ, ResourceType.TOPIC)

    def refusal(self, wanted: TopicIdPartition) -> ErrorCode | None:
        """The error of a partition; None if it is there and may be read."""
        name = self._manager.topic_name(wanted.topic_id)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._may is not None and not self._may(name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return None if self._manager.exists(name, wanted.partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def acknowledge(
    group_id: str, member_id: str, told: Told, *, is_renewal: bool, access: TopicAccess, ctx: RequestContext
) -> dict[TopicIdPartition, ApiError | None]:
    """Take the acknowledgements of a request; each partition's error, or None.

    ``is_renewal``: the request says that it renews. Partitions without batches are answered if any other has some.
    """
    allows_renewal = ctx.api_version >= 2
    answers: dict[TopicIdPartition, ApiError | None] = {}
    empty: list[TopicIdPartition] = []
    accepted: dict[TopicIdPartition, list[AcknowledgementBatch]] = {}
    for wanted, batches in told.items():
        code = access.refusal(wanted)
        if code is not ErrorCode.UNKNOWN_TOPIC_ID and not _are_sound(batches, allows_renewal, is_renewal):
            code = ErrorCode.INVALID_REQUEST
        if code is not None:
            answers[wanted] = ApiError(code)
        elif not batches:
            empty.append(wanted)
        else:
            accepted[wanted] = [
                AcknowledgementBatch(each.first_offset, each.last_offset, tuple(each.acknowledge_types))
                for each in batches
            ]
    if accepted:
        answers.update(dict.fromkeys(empty))
        answers.update(await share_partitions(ctx).acknowledge(group_id, member_id, accepted))
    return answers


def _are_sound(batches: Sequence[ToldBatch], allows_renewal: bool, is_renewal: bool) -> bool:
    """Whether batches of one partition make sense, without regard to who holds the records."""
    highest = _RENEW if allows_renewal else _RENEW - 1
    previous = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < previous or not types:
            return False
        if len(types) > 1 and last - first != len(types) - 1:
            return False
        if any(not 0 <= kind <= highest for kind in types) or (_RENEW in types and not is_renewal):
            return False
        previous = last
    return True


class Leaders:
    """Tells clients that asked the wrong broker who leads (KIP-951)."""

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._name_of: Callable[[Uuid], str | None] = ctx.services.replica_manager.topic_name
        self.endpoints: dict[int, tuple[str, int, str | None]] = {}
        """Host, port and rack, by broker."""

    def tell(self, field: LeaderField, wanted: TopicIdPartition, code: int) -> None:
        """Fill in the leader if the error is that this broker is not the one."""
        name = self._name_of(wanted.topic_id)
        if name is None or code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            return
        leader = current_leader(self._ctx, name, wanted.partition)
        field.leader_id, field.leader_epoch = leader.leader_id, leader.leader_epoch
        if leader.host is not None:
            self.endpoints[leader.leader_id] = leader.host, leader.port, leader.rack
