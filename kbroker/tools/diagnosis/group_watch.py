"""Looks at groups again and again, asks why their records wait, and remembers what only two looks can tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kbroker.client import Client, ClientError, ResponseError
from kbroker.client.errors import known
from kbroker.client.groups import GroupDescription, subscribed_and_unassigned, topics_of_members
from kbroker.client.open_transactions import descriptions_of, open_in
from kbroker.client.topics import LATEST, list_offsets, missing_topics
from kbroker.client.transactions import producers_of
from kbroker.errors import ErrorCode
from kbroker.tools.diagnosis.asking import now_ms
from kbroker.tools.diagnosis.facts import Holder
from kbroker.tools.diagnosis.findings import Finding
from kbroker.tools.diagnosis.log_gaps import LogGaps, Spot
from kbroker.tools.diagnosis.lost_records import Limits, lost_records
from kbroker.tools.diagnosis.stuck_groups import (
    STUCK_MS,
    GroupState,
    LaggingPartition,
    Member,
    OffsetHistory,
    Progress,
    findings,
    progress,
)
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple

_MAX_BLOCKED: Final = 10
"""Partitions of which it is asked which transaction blocks them."""


def ask_lost_records(
    client: Client,
    group: GroupDescription,
    committed: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, Limits],
) -> list[Finding]:
    """Returns why a group gets nothing; the cluster is asked which of its members' topics are missing.

    ``ranges``: the logs that it has committed for or is assigned. Topics that its members have left do not count: their
    offsets are there until they expire.
    """
    unknown = {
        each.topic
        for each, limits in ranges.items()
        if isinstance(limits, ResponseError) and limits.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    subscribed = subscribed_and_unassigned(group, unknown)
    missing = missing_topics(client, sorted(subscribed))
    topics = topics_of_members(group)
    read = {each: limits for each, limits in ranges.items() if topics is None or each.topic in topics}
    return lost_records(committed, read, {topic: subscribed[topic] for topic in missing})


class Look(NamedTuple):
    """A group, where it is, and the logs that it has committed for or is assigned."""

    group: GroupDescription
    committed: Mapping[TopicPartition, int]
    ranges: Mapping[TopicPartition, Limits]


class Judged(NamedTuple):
    """Where records wait for a group, why they wait or are lost, and how it is in a word."""

    lagging: Sequence[LaggingPartition]
    reasons: Sequence[Finding]
    progress: Progress


class GroupWatch:
    """Remembers from look to look where each group was, and which ends of logs hold no records."""

    def __init__(self) -> None:
        self.offsets = OffsetHistory()
        self.gaps = LogGaps()

    def lagging(
        self,
        group: GroupDescription,
        committed: Mapping[TopicPartition, int],
        ranges: Mapping[TopicPartition, Limits],
        at_ms: int,
    ) -> list[LaggingPartition]:
        """Returns the partitions where records wait, with this look; nobody is asked."""
        owners = {partition: member for member in group.members for partition in member.assignment}
        found: list[LaggingPartition] = []
        for partition, limits in ranges.items():
            if not isinstance(limits, tuple):
                continue
            at, (start, end) = committed.get(partition), limits
            spot = partition, start if at is None else max(at, start)
            is_behind = spot[1] < end and not self.gaps.knows(spot, end)
            stall = self.offsets.look(group.group_id, partition, at, behind=is_behind, now_ms=at_ms)
            if is_behind:
                owner = owners.get(partition)
                member = None
                if owner is not None:
                    member = Member(owner.member_id, owner.client_id, owner.host.removeprefix("/"))
                found.append(LaggingPartition(partition, at, start, end, stall, member=member, group_id=group.group_id))
        return found

    def explain(
        self, client: Client, lagging: Sequence[LaggingPartition], at_ms: int, *, stuck_ms: int = STUCK_MS
    ) -> list[LaggingPartition]:
        """Returns the partitions where a record waits, with the transactions that block them, if those may be seen.

        They may be of several groups.
        """
        explained = _with_holders(client, lagging)
        # What does not move may have nothing to wait for.
        still = [each for each in explained if each.member is None or each.stall.is_stuck(at_ms, stuck_ms)]
        empty = self.gaps.look(client, {spot_of(each): each.end for each in still if each.stable is None})
        return [each for each in explained if spot_of(each) not in empty]

    def judge(self, client: Client, looks: Sequence[Look]) -> list[Judged]:
        """Returns for each of several groups where records wait, and why, or why they are lost to it."""
        at_ms = now_ms()
        found = [each for look in looks for each in self.lagging(look.group, look.committed, look.ranges, at_ms)]
        waiting: dict[str, list[LaggingPartition]] = {}
        for each in self.explain(client, found, at_ms):
            waiting.setdefault(each.group_id, []).append(each)
        return [self._judge(client, look, waiting.get(look.group.group_id, []), at_ms) for look in looks]

    @staticmethod
    def _judge(client: Client, look: Look, lagging: Sequence[LaggingPartition], at_ms: int) -> Judged:
        group, committed = look.group, look.committed
        waits = {each.partition for each in lagging}
        # Where no record is left for the group, nothing that is gone is worth an error.
        logs = {
            each: None
            if isinstance(limits, tuple) and max(committed.get(each, 0), limits[0]) < limits[1] and each not in waits
            else limits
            for each, limits in look.ranges.items()
        }
        losses = ask_lost_records(client, group, committed, logs)
        state = GroupState(group.group_id, group.state, len(group.members))
        reasons = findings(state, lagging, at_ms, losses)
        return Judged(lagging, reasons, progress(state, lagging, reasons, at_ms))


def spot_of(lagging: LaggingPartition) -> Spot:
    """Returns the partition and the offset that the group reads next."""
    return lagging.partition, lagging.next_offset


def _with_holders(client: Client, lagging: Sequence[LaggingPartition]) -> list[LaggingPartition]:
    if not lagging:
        return []
    found = list(lagging)
    try:
        told = list_offsets(client, dict.fromkeys([each.partition for each in lagging], LATEST), read_committed=True)
        stable = {partition: each.offset for partition, each in told.items() if not isinstance(each, ResponseError)}
        found = [
            replace(each, stable=last) if (last := stable.get(each.partition, each.end)) < each.end else each
            for each in lagging
        ]
        holders = ask_holders(client, [each.partition for each in found if each.is_blocked][:_MAX_BLOCKED])
    except ClientError:
        return found  # a leader is down, producers may not be seen, or a broker does not tell of them
    return [replace(each, holder=holders[each.partition][0]) if holders.get(each.partition) else each for each in found]


def ask_holders(client: Client, partitions: Collection[TopicPartition]) -> dict[TopicPartition, list[Holder]]:
    """Returns partition -> the open transactions in it, the one that blocks its readers first.

    ``ResponseError`` if producers may not be seen.
    """
    opened = open_in(known(producers_of(client, partitions)))
    try:
        described, _ = descriptions_of(client, opened)
    except ClientError:
        described = {}
    found: dict[TopicPartition, list[Holder]] = {partition: [] for partition in partitions}
    for each in opened:
        found[each.partition].append(Holder(each, described.get(each)))
    return found
