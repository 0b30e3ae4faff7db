"""The groups of a shard, whatever their protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbroker.errors import ApiError, ErrorCode
from kbroker.groups.classic_group import ClassicGroup, ClassicGroupState
from kbroker.groups.consumer_group import ConsumerGroup

if TYPE_CHECKING:
    from kbroker.groups.streams.group import StreamsGroup


@dataclass(slots=True)
class Groups:
    """The groups by protocol and id; no id is in two of them."""

    classic: dict[str, ClassicGroup] = field(default_factory=dict)
    consumer: dict[str, ConsumerGroup] = field(default_factory=dict)
    streams: dict[str, StreamsGroup] = field(default_factory=dict)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self.classic or group_id in self.consumer or group_id in self.streams

    def __len__(self) -> int:
        return len(self.classic) + len(self.consumer) + len(self.streams)

    def all(self) -> list[ClassicGroup | ConsumerGroup | StreamsGroup]:
        """Every group."""
        return [*self.classic.values(), *self.consumer.values(), *self.streams.values()]

    def find(self, group_id: str) -> ClassicGroup | ConsumerGroup | StreamsGroup:
        """The group of that id; `ApiError` GROUP_ID_NOT_FOUND."""
        group = self.consumer.get(group_id) or self.classic.get(group_id) or self.streams.get(group_id)
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
        group = self.find(group_id)
        if isinstance(group, (ClassicGroup, ConsumerGroup)):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        return group
