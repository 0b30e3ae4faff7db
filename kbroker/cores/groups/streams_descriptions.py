"""The topology epochs whose descriptions a plugin keeps, as a group remembers them (KIP-1331).

The plugin and the log know nothing of each other, so a group is marked `UNCERTAIN` before the plugin is told to store
or to delete: whatever fails then, a member is asked for the description again, or the plugin to delete it again.
Rules: Kafka's ``GroupMetadataManager`` (4.4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.groups.groups import Groups
from kbroker.cores.groups.streams.group import NO_DESCRIPTION, StreamsGroup
from kbroker.cores.groups.streams.records import group_record
from kbroker.errors import ApiError, ErrorCode

_R = TypeVar("_R")

UNCERTAIN: Final = -2
"""The plugin may have a description, or may not."""


class StreamsDescriptions:
    """Questions and steps about the descriptions of one shard's streams groups."""

    def __init__(self, groups: Groups, has_offsets: Callable[[str], bool]) -> None:
        """``has_offsets`` says whether a group has committed any, or is about to."""
        self._groups = groups
        self._has_offsets = has_offsets

    def check_push(self, group_id: str, member_id: str, epoch: int) -> None:
        """`ApiError` GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, or INVALID_REQUEST for another epoch than the group's."""
        group = self._groups.streams_group(group_id)
        group.member(member_id)
        if epoch != group.topology_epoch:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Topology epoch {epoch} does not match the group's current topology epoch {group.topology_epoch}.",
            )

    def stored_epoch(self, group_id: str) -> int:
        """The epoch whose description is kept, `UNCERTAIN`, or -1 where certainly nothing is."""
        group = self._groups.streams.get(group_id)
        return NO_DESCRIPTION if group is None else group.stored_description_topology_epoch

    def to_clean(self) -> list[str]:
        """The groups that nobody needs any more, but for the description that a plugin may have of them."""
        return [
            group_id
            for group_id, group in self._groups.streams.items()
            if not group.members
            and group.stored_description_topology_epoch != NO_DESCRIPTION
            and not self._has_offsets(group_id)
        ]

    def is_waiting(self, group_id: str) -> bool:
        """Whether the group is empty, and only there until the plugin has deleted its description."""
        group = self._groups.streams.get(group_id)
        return group is not None and not group.members and group.stored_description_topology_epoch != NO_DESCRIPTION

    def mark(self, group_id: str, *, for_push: bool) -> CoordinatorResult[bool]:
        """Make the epoch `UNCERTAIN`, before the plugin is told to store or (not ``for_push``) to delete.

        The response says whether it is to be told: to delete only of an empty group of which it may have something.
        """
        group = self._groups.streams.get(group_id)
        if group is None or (group.members and not for_push):
            return CoordinatorResult(False)
        stored = group.stored_description_topology_epoch
        if stored == UNCERTAIN:
            return CoordinatorResult(True)
        if stored == NO_DESCRIPTION and not for_push:
            return CoordinatorResult(False)
        return self._with_stored(group, UNCERTAIN, True)

    def stored(self, group_id: str, epoch: int) -> CoordinatorResult[None]:
        """The plugin has stored the description of an epoch. `ApiError` GROUP_ID_NOT_FOUND."""
        group = self._groups.streams_group(group_id)
        before = group.stored_description_topology_epoch
        # Without the mark, a deletion has come between: what the plugin has now depends on which came first there.
        return self._with_stored(group, UNCERTAIN if before == NO_DESCRIPTION else max(before, epoch), None)

    def failed(self, group_id: str, epoch: int) -> CoordinatorResult[None]:
        """The plugin will never take the description of an epoch. `ApiError` GROUP_ID_NOT_FOUND."""
        group = self._groups.streams_group(group_id)
        failed = max(group.failed_description_topology_epoch, epoch)
        return CoordinatorResult(None, [group_record(group, group.group_epoch, failed_description=failed)])

    def lost(self, group_id: str, epoch: int) -> CoordinatorResult[None]:
        """The plugin does not have the description of an epoch: a member may be asked for it again.

        Nothing if the group is marked or has another epoch stored meanwhile.
        """
        group = self._groups.streams.get(group_id)
        if group is None or group.stored_description_topology_epoch != epoch:
            return CoordinatorResult(None)
        return self._with_stored(group, UNCERTAIN, None)

    def after_delete(self, group_id: str) -> CoordinatorResult[None]:
        """The plugin has deleted what it had. A push that came meanwhile leaves it uncertain."""
        group = self._groups.streams.get(group_id)
        if group is None or group.stored_description_topology_epoch == NO_DESCRIPTION:
            return CoordinatorResult(None)
        is_marked = group.stored_description_topology_epoch == UNCERTAIN
        return self._with_stored(group, NO_DESCRIPTION if is_marked else UNCERTAIN, None)

    @staticmethod
    def _with_stored(group: StreamsGroup, stored: int, response: _R) -> CoordinatorResult[_R]:
        return CoordinatorResult(response, [group_record(group, group.group_epoch, stored_description=stored)])
