"""Groups are looked at, twice if they have members."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from kbroker.client.cluster import Client
from kbroker.client.errors import ResponseError
from kbroker.client.groups import CLASSIC, CONSUMER, GroupListing, committed_offsets, describe_group, list_groups
from kbroker.client.topics import LATEST, list_offsets
from kbroker.tools.doctor.facts import GroupFacts, GroupLook

MOST_GROUPS: Final = 300


@dataclass(slots=True)
class GroupLooks:
    """The looks at all groups of consumers; of others the state is known alone."""

    left_out: int = 0
    """Groups that were too many."""
    _listed: list[GroupListing] = field(default_factory=list)
    _first: dict[str, tuple[float, GroupLook]] = field(default_factory=dict)
    _second: dict[str, tuple[float, GroupLook]] = field(default_factory=dict)
    _is_known: bool = False

    @property
    def has_members(self) -> bool:
        """Whether a second look may tell more."""
        return any(look.members or look.state not in ("Empty", "Dead", "Stable") for _, look in self._first.values())

    def first(self, client: Client) -> bool:
        """List the groups and look at each; ``ClientError`` if they cannot be listed."""
        listed = list_groups(client)
        self._listed, self.left_out = listed[:MOST_GROUPS], max(0, len(listed) - MOST_GROUPS)
        self._is_known = True
        self._look(client, self._first, [group.group_id for group in self._listed])
        return True

    def second(self, client: Client) -> bool:
        """Look again at those that have members, or are about to have some."""
        again = [name for name, (_, look) in self._first.items() if look.state not in ("Empty", "Dead")]
        self._look(client, self._second, again)
        return True

    def _look(self, client: Client, into: dict[str, tuple[float, GroupLook]], names: list[str]) -> None:
        types = {group.group_id: group.type for group in self._listed}
        for name in names:
            if types[name] not in ("", CLASSIC, CONSUMER):
                continue
            try:
                into[name] = (time.monotonic(), _look_at(client, name))
            except ResponseError:
                continue  # it has just gone, or is not for us

    def facts(self) -> tuple[GroupFacts, ...] | None:
        """The groups as they were seen; None if they could not be listed."""
        if not self._is_known:
            return None
        found = []
        for group in self._listed:
            at, first = self._first.get(group.group_id, (0.0, GroupLook(group.state, frozenset())))
            then, second = self._second.get(group.group_id, (at, None))
            found.append(GroupFacts(group.group_id, group.type, first, second, then - at))
        return tuple(found)


def _look_at(client: Client, name: str) -> GroupLook:
    group = describe_group(client, name)
    members = frozenset(member.member_id for member in group.members)
    if not members:
        return GroupLook(group.state, members, group.group_epoch)
    committed = {partition: each.offset for partition, each in committed_offsets(client, name).items()}
    if any(client.leader(partition) is None for partition in committed):
        client.refresh({partition.topic for partition in committed})
    asked = {partition: LATEST for partition in committed if client.leader(partition) is not None}
    listed = list_offsets(client, asked)
    ends = {partition: each.offset for partition, each in listed.items() if not isinstance(each, ResponseError)}
    return GroupLook(group.state, members, group.group_epoch, committed, ends)
