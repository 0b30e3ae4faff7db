"""The lags of a cluster's groups, asked in few requests: a line for each in lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kbroker.client import Client, ClientError
from kbroker.client.groups import (
    MEMBERLESS,
    GroupDescription,
    GroupListing,
    assigned_to,
    committed_by_node,
    describe_by_node,
    groups_of_node,
)
from kbroker.client.patience import patience
from kbroker.client.share_groups import SHARE
from kbroker.client.streams_groups import STREAMS
from kbroker.client.topics import list_ranges
from kbroker.tools.diagnosis.findings import Finding
from kbroker.tools.diagnosis.group_watch import GroupWatch, Judged, Look
from kbroker.tools.diagnosis.lost_records import Limits
from kbroker.tools.diagnosis.stuck_groups import MOST_REMEMBERED, Progress
from kbroker.types import TopicPartition

MAX_GROUPS: Final = 200
_MAX_PARTITIONS: Final = 5_000
_MAX_OFFSETS: Final = MOST_REMEMBERED * 3 // 4
"""Committed offsets of all groups together: each of them has to be remembered until the next look."""

_PATIENCE: Final = 1.5
"""Seconds that one broker is waited for: a page must not wait for one that is down."""


class GroupLag(NamedTuple):
    """A group with committed offsets, or with members that are assigned partitions.

    ``lag`` is that of Kafka's tools; where a member has committed nothing, all that the log has counts. ``waiting``:
    the part of it that somebody can still have, 0 if there is none. ``topics``: the part of the lag in each topic.
    """

    listing: GroupListing
    members: int
    lag: int
    waiting: int
    topics: Mapping[str, int]
    progress: Progress
    reasons: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class Lags:
    """The lags of groups; ``asked`` of them, of so many ``groups``."""

    of: tuple[GroupLag, ...]
    asked: int
    groups: int


def ask_lags(client: Client, watch: GroupWatch) -> Lags:
    """Ask each coordinator for its groups and their offsets, and the leaders for their logs, of a bounded number."""
    asked = _Asked()
    for node_id in client.all_nodes():
        try:
            with patience(client, _PATIENCE):
                asked.ask(client, node_id)
        except ClientError:
            continue  # it is down, or loads its groups: the others are told
    ranges: Mapping[TopicPartition, Limits] = {}
    if asked.partitions:
        try:
            with patience(client, _PATIENCE):
                ranges = list_ranges(client, sorted(asked.partitions))
        except ClientError:
            pass  # a leader is down
    looks = [
        Look(group, asked.committed[group.group_id], known)
        for group in asked.described.values()
        if (known := {each: ranges[each] for each in asked.of(group) if each in ranges})
    ]
    with patience(client, _PATIENCE):
        judged = watch.judge(client, looks)
    rows = [_told(asked.listings[look.group.group_id], look, each) for look, each in zip(looks, judged, strict=True)]
    return Lags(tuple(sorted(rows, key=lambda row: row.listing.group_id)), len(asked.listings), asked.groups)


def _told(listing: GroupListing, look: Look, judged: Judged) -> GroupLag:
    topics: Counter[str] = Counter()
    for partition, limits in look.ranges.items():
        if isinstance(limits, tuple):
            topics[partition.topic] += max(limits[1] - look.committed.get(partition, limits[0]), 0)
    return GroupLag(
        listing,
        len(look.group.members),
        topics.total(),
        sum(each.waiting for each in judged.lagging),
        topics,
        judged.progress,
        judged.reasons,
    )


class _Asked:
    """The groups that were asked for so far, with their committed offsets."""

    def __init__(self) -> None:
        self.groups = 0
        self.listings: dict[str, GroupListing] = {}
        self.committed: dict[str, Mapping[TopicPartition, int]] = {}
        self.described: dict[str, GroupDescription] = {}
        self.partitions: set[TopicPartition] = set()
        self._offsets = 0

    def ask(self, client: Client, node_id: int) -> None:
        """Ask a broker for the groups that it coordinates, as far as there is room for them."""
        found = [each for each in groups_of_node(client, node_id) if each.type not in (SHARE, STREAMS)]
        self.groups += len(found)
        chosen = sorted(found, key=lambda each: each.group_id)[: max(MAX_GROUPS - len(self.listings), 0)]
        if not chosen:
            return
        told = committed_by_node(client, node_id, [each.group_id for each in chosen])
        described = describe_by_node(client, node_id, [each for each in chosen if each.state not in MEMBERLESS])
        for each in chosen:
            self.committed[each.group_id] = told.get(each.group_id, {})
            group = described.get(each.group_id)
            if group is None:
                group = GroupDescription(each.group_id, each.type, each.state, each.protocol_type, "", node_id, ())
            own = self.of(group)
            partitions = self.partitions | own
            if len(partitions) > _MAX_PARTITIONS or self._offsets + len(own) > _MAX_OFFSETS:
                continue
            self.partitions = partitions
            self._offsets += len(own)
            self.listings[each.group_id] = each
            self.described[each.group_id] = group

    def of(self, group: GroupDescription) -> set[TopicPartition]:
        """The partitions that a group has committed for, or that its members have."""
        return self.committed[group.group_id].keys() | assigned_to(group)
