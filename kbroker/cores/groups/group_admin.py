"""Requests of administrators about groups: list, describe, delete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import TYPE_CHECKING

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicGroupState
from kbroker.cores.groups.consumer_group import ConsumerGroup, ConsumerGroupMember
from kbroker.cores.groups.groups import Groups
from kbroker.cores.groups.offset_requests import OffsetRequests, removal_of
from kbroker.cores.groups.records import group_metadata_tombstone
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.topics import CoordinatorMetadataImage, MetadataHasher
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages import consumer_groups as describe
from kbroker.wire.messages.groups import DescribedGroup, DescribedGroupMember, ListedGroup

if TYPE_CHECKING:
    from kbroker.wire.messages import streams_groups

_S = ClassicGroupState
CLASSIC_GROUP_TYPE = "classic"
CONSUMER_GROUP_TYPE = "consumer"
STREAMS_GROUP_TYPE = "streams"
"""The type of a streams group, and its protocol type."""
SHARE_GROUP_TYPE = "share"
"""The type of a share group, and its protocol type."""
_LONGEST_STRING = 2**15 - 1


class GroupAdmin:
    """Questions about the groups of a shard, and their deletion."""

    def __init__(
        self, groups: Groups, offsets: OffsetRequests, settings: Callable[[], GroupSettings], hasher: MetadataHasher
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._settings = settings
        self._hasher = hasher

    def list_groups(self, states: Collection[str], types: Collection[str]) -> Iterator[ListedGroup]:
        """ListGroups; filters are lower case and match any where empty. The groups are those of now, and are put into
        the form of the answer as they are taken.
        """
        listed = []
        if not types or CLASSIC_GROUP_TYPE in types:
            for group in self._groups.classic.values():
                protocol_type = group.protocol_type or ""
                listed.append((group.group_id, group.state.value, protocol_type, CLASSIC_GROUP_TYPE))
        if not types or CONSUMER_GROUP_TYPE in types:
            for consumer in self._groups.consumer.values():
                state = consumer.state.value
                listed.append((consumer.group_id, state, CONSUMER_PROTOCOL_TYPE, CONSUMER_GROUP_TYPE))
        if not types or STREAMS_GROUP_TYPE in types:
            listed += [
                (streams.group_id, streams.state.value, STREAMS_GROUP_TYPE, STREAMS_GROUP_TYPE)
                for streams in self._groups.streams.values()
            ]
        if not types or SHARE_GROUP_TYPE in types:
            listed += [
                (share.group_id, share.state.value, SHARE_GROUP_TYPE, SHARE_GROUP_TYPE)
                for share in self._groups.share.values()
            ]
        return (
            ListedGroup(group_id=group_id, group_state=state, protocol_type=protocol_type, group_type=group_type)
            for group_id, state, protocol_type, group_type in listed
            if not states or state.lower() in states
        )

    def group_count(self) -> int:
        """The number of groups."""
        return len(self._groups)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Id and number of members of each group of now."""
        return ((group.group_id, len(group.members)) for group in self._groups.all())

    def states(self) -> Iterator[tuple[str, str]]:
        """Type and state of each group. They may change meanwhile."""
        groups = self._groups
        yield from ((CLASSIC_GROUP_TYPE, group.state.value) for group in list(groups.classic.values()))
        yield from ((CONSUMER_GROUP_TYPE, group.state.value) for group in list(groups.consumer.values()))
        yield from ((STREAMS_GROUP_TYPE, group.state.value) for group in list(groups.streams.values()))
        yield from ((SHARE_GROUP_TYPE, group.state.value) for group in list(groups.share.values()))

    def offset_counts(self) -> Iterator[int]:
        """The numbers of offsets that groups have committed. They may change meanwhile."""
        committed = self._offsets.committed
        return (committed.count(group_id) for group_id in committed.groups())

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of all that is committed. It may change meanwhile."""
        for group_id in self._offsets.committed.groups():
            for partition, committed in list(self._offsets.committed.of_group(group_id)):
                yield group_id, partition.topic, partition.partition, committed.offset

    def describe_group(self, group_id: str, api_version: int) -> DescribedGroup:
        """DescribeGroups of one classic group; one that does not exist is shown as Dead."""
        group = self._groups.classic.get(group_id)
        if group is None:
            missing = api_version >= 6
            message = f"Group {group_id} not found."
            if group_id in self._groups:
                message = f"Group {group_id} is not a classic group."
            if missing and len(message.encode()) > _LONGEST_STRING:
                return DescribedGroup(group_id=group_id, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            return DescribedGroup(
                group_id=group_id,
                group_state=_S.DEAD.value,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE,
                error_message=message if missing else None,
            )
        stable = group.state is _S.STABLE
        protocol = (group.protocol_name or "") if stable else ""
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol,
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(protocol) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def describe_consumer_group(self, group_id: str) -> describe.DescribedGroup:
        """ConsumerGroupDescribe of one group. `ApiError` GROUP_ID_NOT_FOUND."""
        group = self._groups.consumer_group(group_id)
        return describe.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor() or self._settings().consumer_assignors[0],
            members=[_described(group, member, self._hasher.image) for member in group.members.values()],
        )

    def describe_streams_group(self, group_id: str, assignor: str) -> streams_groups.DescribedGroup:
        """StreamsGroupDescribe of one group, whose assignor has the name. `ApiError` GROUP_ID_NOT_FOUND."""
        group = self._groups.streams_group(group_id)
        from kbroker.cores.groups.streams.describe import describe_group  # not without such a group

        return describe_group(group, assignor)

    def delete_group(self, group_id: str) -> CoordinatorResult[None]:
        """DeleteGroups of one group, with its offsets. `ApiError` GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
        group = self._groups.find(group_id)
        records = self._offsets.removal(group_id)
        if isinstance(group, ClassicGroup):
            if group.state is not _S.EMPTY:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            records.append(group_metadata_tombstone(group_id))
        else:
            if group.members:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            records += removal_of(group)
        return CoordinatorResult(None, records)


def _described(group: ConsumerGroup, member: ConsumerGroupMember, topics: CoordinatorMetadataImage) -> describe.Member:
    # A partition that a member has still to give up is its own until then.
    held: dict[Uuid, set[int]] = {}
    for partitions_by_topic in (member.assigned, member.pending_revocation):
        for topic_id, epochs in partitions_by_topic.items():
            held.setdefault(topic_id, set()).update(epochs)
    return describe.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(held, topics),
        target_assignment=_assignment(group.target.get(member.member_id, {}), topics),
        member_type=1 if member.classic is None else 0,
    )


def _assignment(
    partitions_by_topic: Mapping[Uuid, Set[int]], topics: CoordinatorMetadataImage
) -> describe.DescribeAssignment:
    """With names; a topic that is gone has none and is left out."""
    return describe.DescribeAssignment(
        topic_partitions=[
            describe.DescribeTopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions))
            for topic_id, partitions in partitions_by_topic.items()
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
