"""The groups of a shard, whatever their protocol."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbroker.cores.groups.classic_group import ClassicGroup, ClassicGroupState
from kbroker.cores.groups.consumer_group import ConsumerGroup
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import dataclass, field

if TYPE_CHECKING:
    from kbroker.cores.groups.share_group import ShareGroup
    from kbroker.cores.groups.streams.group import StreamsGroup

    AnyGroup = ClassicGroup | ConsumerGroup | StreamsGroup | ShareGroup


@dataclass(slots=True)
class Groups:
    """The groups by protocol and id; no id is in two of them."""

    classic: dict[str, ClassicGroup] = field(default_factory=dict)
    consumer: dict[str, ConsumerGroup] = field(default_factory=dict)
    streams: dict[str, StreamsGroup] = field(default_factory=dict)
    share: dict[str, ShareGroup] = field(default_factory=dict)
    rebalances: Counter[str] = field(default_factory=Counter)
    """By type: generations of classic groups that have their assignment, and group epochs of the others."""

    def __contains__(self, group_id: object) -> bool:
        # Asked for each committed offset: the commonest kinds first, and no generator.
        return (
            group_id in self.classic or group_id in self.consumer or group_id in self.streams or group_id in self.share
        )

    def __len__(self) -> int:
        return len(self.classic) + len(self.consumer) + len(self.streams) + len(self.share)

    def with_offsets(self) -> list[ClassicGroup | ConsumerGroup | StreamsGroup]:
        """The groups that commit offsets. Share groups do not; their offsets are the share coordinator's."""
        return [*self.classic.values(), *self.consumer.values(), *self.streams.values()]

    def with_offsets_of(self, group_id: str) -> ClassicGroup | ConsumerGroup | StreamsGroup | None:
        """The group of that id if it commits offsets."""
        return self.classic.get(group_id) or self.consumer.get(group_id) or self.streams.get(group_id)

    def all(self) -> list[AnyGroup]:
        """Every group."""
        return [*self.with_offsets(), *self.share.values()]

    def find(self, group_id: str) -> AnyGroup:
        """The group of that id; `ApiError` GROUP_ID_NOT_FOUND."""
        group = (
            self.consumer.get(group_id)
            or self.classic.get(group_id)
            or self.streams.get(group_id)
            or self.share.get(group_id)
        )
        if group is None or (isinstance(group, ClassicGroup) and group.state is ClassicGroupState.DEAD):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """The consumer group of that id; `ApiError` GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if not isinstance(group, ConsumerGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return group

    def streams_group(self, group_id: str) -> StreamsGroup:
        """The streams group of that id; `ApiError` GROUP_ID_NOT_FOUND."""
        group = self.streams.get(group_id)
        if group is None:
            self.find(group_id)
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        return group

    def check_has_offsets(self, group_id: str) -> None:
        """`ApiError` GROUP_ID_NOT_FOUND for a share group: it commits no offsets."""
        if group_id in self.share:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def share_group(self, group_id: str) -> ShareGroup:
        """The share group of that id; `ApiError` GROUP_ID_NOT_FOUND."""
        group = self.share.get(group_id)
        if group is None:
            self.find(group_id)
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return group
