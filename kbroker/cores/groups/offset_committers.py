"""Members that commit and fetch offsets, judged by their epochs: those of consumer groups and of streams groups.

Rules: the groups' ``validateOffsetCommit`` and ``validateOffsetFetch`` in Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from kbroker.cores.groups.consumer_group import ConsumerGroup, ConsumerGroupMember
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.cores.groups.streams.group import StreamsGroup, StreamsGroupMember

CONSUMER_MEMBER_VERSION = 9
"""A member of the consumer protocol commits with this version of OffsetCommit or a later one (KIP-848)."""
TRANSACTIONAL_ERRORS_VERSION = 6
"""TxnOffsetCommit tells a missing group and a stale member apart from this version on (KIP-1319)."""


class Committer(NamedTuple):
    """A member that commits in an older epoch, for partitions that it has had since then."""

    member: ConsumerGroupMember | StreamsGroupMember
    epoch: int
    partition_epoch: Callable[[Uuid, int], int | None]
    """Since which epoch the member has a partition; None if it has not."""


class _NamedTopic(Protocol):
    """A topic of a commit, with its name and its id."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...


def streams_committer(
    group: StreamsGroup,
    member_id: str,
    epoch: int,
    topics: Iterable[_NamedTopic],
    wrong: Callable[[StreamsGroupMember], ApiError],
) -> Committer | None:
    """A member of a streams group that commits; None if it is in the member's epoch. `ApiError` of ``wrong``."""
    member = group.member(member_id)
    if epoch == member.member_epoch:
        return None
    if epoch > member.member_epoch or group.topology is None:
        raise wrong(member)
    sources = group.topology.source_topics
    readers = {Uuid(topic.topic_id): sources.get(topic.name) for topic in topics}

    def partition_epoch(topic_id: Uuid, partition: int) -> int | None:
        subtopology_id = readers.get(topic_id)
        return None if subtopology_id is None else member.active_task_epoch((subtopology_id, partition))

    return Committer(member, epoch, partition_epoch)


def validate_member_commit(group: ConsumerGroup, member_id: str, epoch: int, api_version: int) -> Committer | None:
    """A member of a consumer group that commits; None if it is in the member's epoch. `ApiError`."""
    if epoch < 0 and not group.members:
        return None
    member = group.member(member_id)
    if member.classic is None and api_version < CONSUMER_MEMBER_VERSION:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch == member.member_epoch:
        return None
    if epoch > member.member_epoch:
        raise wrong_epoch(member)
    return Committer(member, epoch, member.partition_epoch)


def validate_partition(by: Committer, topic_id: Uuid, partition: int) -> None:
    """Let an older epoch commit for partitions that the member has had since then (KIP-1251). `ApiError`."""
    assigned_in = by.partition_epoch(topic_id, partition)
    if assigned_in is None or by.epoch < assigned_in:
        raise wrong_epoch(by.member)


def validate_by_assignment(by: Committer, topic_id: Uuid, partition: int, api_version: int) -> None:
    """`validate_partition` of an offset in a transaction."""
    assigned_in = by.partition_epoch(topic_id, partition)
    if assigned_in is None or by.epoch < assigned_in:
        raise wrong_transactional_epoch(by.member, api_version)


def validate_fetch(group: ConsumerGroup | StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Let a member fetch in its epoch, and who names no member at any time. `ApiError`."""
    if member_id is None and epoch < 0:
        return  # an administrator, or a client that names no member
    member = group.member(member_id or "")
    if epoch != member.member_epoch:
        raise wrong_epoch(member)


def wrong_epoch(member: ConsumerGroupMember | StreamsGroupMember) -> ApiError:
    """The error for an epoch that is not the member's."""
    is_classic = isinstance(member, ConsumerGroupMember) and member.classic is not None
    return ApiError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH)


def wrong_transactional_epoch(member: ConsumerGroupMember | StreamsGroupMember, api_version: int) -> ApiError:
    """`wrong_epoch` in an answer to TxnOffsetCommit."""
    if api_version >= TRANSACTIONAL_ERRORS_VERSION:
        return wrong_epoch(member)
    return ApiError(ErrorCode.ILLEGAL_GENERATION)
