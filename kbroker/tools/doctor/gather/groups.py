"""Groups are looked at, twice if they have members."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from kbroker.client.cluster import Client
from kbroker.client.errors import ResponseError
from kbroker.client.groups import (
    CLASSIC,
    CONSUMER,
    MEMBERLESS,
    GroupListing,
    assigned_to,
    committed_offsets,
    describe_group,
    list_groups,
)
from kbroker.client.topics import list_ranges
from kbroker.tools.diagnosis.asking import now_ms
from kbroker.tools.diagnosis.group_watch import GroupWatch
from kbroker.tools.diagnosis.lost_records import Limits
from kbroker.tools.diagnosis.stuck_groups import STUCK_MS, LaggingPartition
from kbroker.tools.doctor.facts import GroupFacts, GroupLook
from kbroker.types import TopicPartition

MOST_GROUPS: Final = 300


@dataclass(slots=True)
class GroupLooks:
    """The looks at all groups of consumers; of others the state is known alone."""

    left_out: int = 0
    """Groups that were too many."""
    _listed: list[GroupListing] = field(default_factory=list)
    _first: dict[str, GroupLook] = field(default_factory=dict)
    _second: dict[str, GroupLook] = field(default_factory=dict)
    _lagging: dict[str, list[LaggingPartition]] = field(default_factory=dict)
    _watch: GroupWatch = field(default_factory=GroupWatch)
    _is_known: bool = False

    @property
    def has_members(self) -> bool:
        """Whether a second look may tell more."""
        return any(look.members or look.state not in ("Empty", "Dead", "Stable") for look in self._first.values())

    def first(self, client: Client) -> bool:
        """List the groups and look at each; ``ClientError`` if they cannot be listed."""
        listed = list_groups(client)
        self._listed, self.left_out = listed[:MOST_GROUPS], max(0, len(listed) - MOST_GROUPS)
        self._is_known = True
        self._look(client, self._first, [group.group_id for group in self._listed])
        return True

    def second(self, client: Client) -> bool:
        """Look again at those that have members, or are about to have some."""
        again = [name for name, look in self._first.items() if look.state not in MEMBERLESS]
        self._look(client, self._second, again)
        return True

    def _look(self, client: Client, into: dict[str, GroupLook], names: list[str]) -> None:
        types = {group.group_id: group.type for group in self._listed}
        for name in names:
            if types[name] not in ("", CLASSIC, CONSUMER):
                continue
            try:
                into[name] = self._look_at(client, name)
            except ResponseError:
                continue  # it has just gone, or is not for us

    def _look_at(self, client: Client, name: str) -> GroupLook:
        group = describe_group(client, name)
        members = frozenset(member.member_id for member in group.members)
        at_ms = now_ms()
        if not members:
            return GroupLook(group.state, members, group.group_epoch, at_ms=at_ms)
        committed = {partition: each.offset for partition, each in committed_offsets(client, name).items()}
        # A member that has never committed is at a partition, too: a transaction may block it from the first record on.
        ranges = self._ranges(client, committed.keys() | assigned_to(group))
        lagging = self._watch.lagging(group, committed, ranges, at_ms)
        before = self._first.get(name)
        if before is not None:
            stuck_ms = min(STUCK_MS, at_ms - before.at_ms)
            self._lagging[name] = self._watch.explain(client, lagging, at_ms, stuck_ms=stuck_ms)
        ends = {partition: limits[1] for partition, limits in ranges.items() if isinstance(limits, tuple)}
        return GroupLook(group.state, members, group.group_epoch, committed, ends, at_ms)

    @staticmethod
    def _ranges(client: Client, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Limits]:
        if any(client.leader(partition) is None for partition in partitions):
            client.refresh({partition.topic for partition in partitions})
        return dict(list_ranges(client, sorted(each for each in partitions if client.leader(each) is not None)))

    def facts(self) -> tuple[GroupFacts, ...] | None:
        """The groups as they were seen; None if they could not be listed."""
        if not self._is_known:
            return None
        return tuple(
            GroupFacts(
                group.group_id,
                group.type,
                self._first.get(group.group_id, GroupLook(group.state, frozenset())),
                self._second.get(group.group_id),
                tuple(self._lagging.get(group.group_id, ())),
            )
            for group in self._listed
        )
