"""The lags of a cluster's groups, asked in few requests: a line for each in lists."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kbroker.client import Client, ClientError
from kbroker.client.groups import GroupListing, committed_by_node, groups_of_node
from kbroker.client.patience import patience
from kbroker.client.share_groups import SHARE
from kbroker.client.streams_groups import STREAMS
from kbroker.client.topics import list_ranges
from kbroker.tools.diagnosis.group_watch import GroupWatch
from kbroker.tools.diagnosis.log_gaps import Spot
from kbroker.tools.diagnosis.stuck_groups import MOST_REMEMBERED, Stall
from kbroker.types import TopicPartition

MAX_GROUPS: Final = 200
_MAX_PARTITIONS: Final = 5_000
_MAX_OFFSETS: Final = MOST_REMEMBERED * 3 // 4
"""Committed offsets of all groups together: each of them has to be remembered until the next look."""

_PATIENCE: Final = 1.5
"""Seconds that one broker is waited for: a page must not wait for one that is down."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group with committed offsets.

    ``lag`` is that of Kafka's tools; ``waiting``: the part of it that readers can still have, 0 if there is none.
    ``stuck_since``: since when a lagging partition was seen to be stuck, in ms, None if none is.
    ``advances``: whether others were seen to advance meanwhile, or all of them if none is stuck.
    """

    listing: GroupListing
    lag: int
    waiting: int
    stuck_since: int | None
    advances: bool


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
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    if asked.partitions:
        try:
            with patience(client, _PATIENCE):
                told = list_ranges(client, sorted(asked.partitions))
        except ClientError:
            told = {}  # a leader is down
        ranges = {partition: limits for partition, limits in told.items() if isinstance(limits, tuple)}
    looked = [
        _Looked(asked.listings[group_id], known)
        for group_id, offsets in asked.committed.items()
        if (known := {partition: offset for partition, offset in offsets.items() if partition in ranges})
    ]
    now_ms = time.time_ns() // 1_000_000
    for group in looked:
        group.look(ranges, watch, now_ms)
    stuck = {
        spot: ranges[spot[0]][1] for group in looked for spot, stall in group.behind.items() if stall.is_stuck(now_ms)
    }
    empty = watch.gaps.look(client, stuck)
    rows = [group.told(ranges, empty, now_ms) for group in looked]
    return Lags(tuple(sorted(rows, key=lambda row: row.listing.group_id)), len(asked.listings), asked.groups)


class _Asked:
    """The groups that were asked for so far, with their committed offsets."""

    def __init__(self) -> None:
        self.groups = 0
        self.listings: dict[str, GroupListing] = {}
        self.committed: dict[str, Mapping[TopicPartition, int]] = {}
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
        for each in chosen:
            offsets = told.get(each.group_id, {})
            partitions = self.partitions | offsets.keys()
            if len(partitions) > _MAX_PARTITIONS or self._offsets + len(offsets) > _MAX_OFFSETS:
                continue
            self.partitions = partitions
            self._offsets += len(offsets)
            self.listings[each.group_id] = each
            self.committed[each.group_id] = offsets


class _Looked:
    """A group, and where it is behind."""

    def __init__(self, listing: GroupListing, committed: Mapping[TopicPartition, int]) -> None:
        self._listing = listing
        self._committed = committed
        self.behind: dict[Spot, Stall] = {}
        """The spots where something waits, as far as it is known."""

    def look(self, ranges: Mapping[TopicPartition, tuple[int, int]], watch: GroupWatch, now_ms: int) -> None:
        """Find since when the group has been where it is."""
        for partition, offset in self._committed.items():
            start, end = ranges[partition]
            spot = partition, max(offset, start)
            is_behind = spot[1] < end and not watch.gaps.knows(spot, end)
            stall = watch.offsets.look(self._listing.group_id, partition, offset, behind=is_behind, now_ms=now_ms)
            if is_behind:
                self.behind[spot] = stall

    def told(self, ranges: Mapping[TopicPartition, tuple[int, int]], empty: set[Spot], now_ms: int) -> GroupLag:
        """The line of the group; behind the spots in ``empty`` nothing waits."""
        behind = {spot: stall for spot, stall in self.behind.items() if spot not in empty}
        longest = min(behind.values(), default=None)
        is_stuck = longest is not None and longest.is_stuck(now_ms)
        advancing = [stall.is_advancing(now_ms) for stall in behind.values()]
        return GroupLag(
            self._listing,
            sum(max(ranges[partition][1] - offset, 0) for partition, offset in self._committed.items()),
            sum(ranges[partition][1] - offset for partition, offset in behind),
            longest.since if longest is not None and is_stuck else None,
            any(advancing) if is_stuck else all(advancing),
        )
