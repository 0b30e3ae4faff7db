"""The lags of a cluster's groups, asked in few requests: a line for each in lists."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kbroker.client import Client, ClientError, ResponseError
from kbroker.client.groups import GroupListing, committed_by_node, groups_of_node
from kbroker.client.patience import patience
from kbroker.client.share_groups import SHARE
from kbroker.client.streams_groups import STREAMS
from kbroker.client.topics import LATEST, list_offsets
from kbroker.console.standing import STANDS_MS, OffsetHistory
from kbroker.types import TopicPartition

MAX_GROUPS: Final = 200
_MAX_PARTITIONS: Final = 5_000
_PATIENCE: Final = 1.5
"""Seconds that one broker is waited for: a page must not wait for one that is down."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group with committed offsets.

    ``stands_since``: since when a partition with lag was seen to stand, in ms, None if none has for long. ``goes_on``:
    whether others were seen to advance meanwhile, or all of them if none stands.
    """

    listing: GroupListing
    lag: int
    stands_since: int | None
    goes_on: bool


@dataclass(frozen=True, slots=True)
class Lags:
    """The lags of groups; ``asked`` of them, of so many ``groups``."""

    of: tuple[GroupLag, ...]
    asked: int
    groups: int


def ask_lags(client: Client, history: OffsetHistory) -> Lags:
    """Ask each coordinator for its groups and their offsets, and the leaders for the ends, of a bounded number."""
    listings: dict[str, GroupListing] = {}
    committed: dict[str, Mapping[TopicPartition, int]] = {}
    groups = 0
    for node_id in client.all_nodes():
        try:
            with patience(client, _PATIENCE):
                found = [each for each in groups_of_node(client, node_id) if each.type not in (SHARE, STREAMS)]
                groups += len(found)
                chosen = sorted(found, key=lambda each: each.group_id)[: max(MAX_GROUPS - len(listings), 0)]
                if chosen:
                    committed |= committed_by_node(client, node_id, [each.group_id for each in chosen])
        except ClientError:
            continue  # it is down, or loads its groups: the others are told
        listings |= {each.group_id: each for each in chosen}
    wanted = sorted({partition for offsets in committed.values() for partition in offsets})[:_MAX_PARTITIONS]
    ends: dict[TopicPartition, int] = {}
    if wanted:
        try:
            with patience(client, _PATIENCE):
                told = list_offsets(client, dict.fromkeys(wanted, LATEST))
        except ClientError:
            told = {}  # a leader is down
        ends = {partition: each.offset for partition, each in told.items() if not isinstance(each, ResponseError)}
    now_ms = time.time_ns() // 1_000_000
    rows: list[GroupLag] = []
    for group_id, offsets in committed.items():
        known = {partition: offset for partition, offset in offsets.items() if partition in ends}
        if not known:
            continue
        lag = sum(max(ends[partition] - offset, 0) for partition, offset in known.items())
        looks = {
            partition: history.look(group_id, partition, offset, behind=offset < ends[partition], now_ms=now_ms)
            for partition, offset in known.items()
        }
        stood = [look for partition, look in looks.items() if known[partition] < ends[partition]]
        since = min((look.since for look in stood), default=now_ms)
        stands = now_ms - since >= STANDS_MS
        moving = [look.moved and now_ms - look.since < STANDS_MS for look in stood]
        goes_on = any(moving) if stands else all(moving)
        rows.append(GroupLag(listings[group_id], lag, since if stands else None, goes_on))
    return Lags(tuple(sorted(rows, key=lambda row: row.listing.group_id)), len(listings), groups)
