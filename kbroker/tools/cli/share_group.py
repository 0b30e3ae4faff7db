"""``kbroker group describe`` for share groups: who works on which partition, what is left, and what is in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.tools.cli.output import plain, print_table, printable
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kbroker.client import Client
    from kbroker.client.errors import ResponseError
    from kbroker.client.groups import GroupDescription, GroupMember
    from kbroker.client.share_groups import InFlight, ShareOffset

UNTOLD = "the leader does not tell what is in flight"
"""Said of brokers that skip the question, as those of Apache Kafka do."""

_MOST_NAMED = 5
"""Partitions that a line names before it counts them."""


def settled_offsets(
    client: Client, group_id: str
) -> tuple[dict[TopicPartition, ShareOffset], dict[TopicPartition, ResponseError]]:
    """The group's place in each partition, and the partitions that have no leader or whose leader does not answer.

    The coordinator's word is of one moment, so such partitions are waited for, within the client's timeout.
    """
    from kbroker.client.errors import ResponseError
    from kbroker.client.share_groups import share_offsets
    from kbroker.client.topics import list_ranges

    offsets = share_offsets(client, group_id)
    ranges = list_ranges(client, [each for each, place in offsets.items() if place.problem is not None])
    unknown = {each: limits for each, limits in ranges.items() if isinstance(limits, ResponseError)}
    if len(unknown) < len(ranges):
        offsets = share_offsets(client, group_id)
    return offsets, unknown


def share_partitions(group: GroupDescription, offsets: Mapping[TopicPartition, ShareOffset]) -> list[dict[str, Any]]:
    """A row for each partition that the group has a place in, or that a member has, in order."""
    from kbroker.client.share_groups import ShareOffset

    members: dict[TopicPartition, list[GroupMember]] = {}
    for member in group.members:
        for partition in member.assignment:
            members.setdefault(partition, []).append(member)
    rows = []
    for partition in sorted(offsets.keys() | members.keys()):
        place = offsets.get(partition, ShareOffset(None, None))
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start_offset": place.start,
                "lag": place.lag,
                "members": [
                    {"member_id": each.member_id, "client_id": each.client_id, "host": each.host}
                    for each in members.get(partition, ())
                ],
            }
        )
    return rows


def add_in_flight(
    client: Client,
    group: GroupDescription,
    rows: Sequence[dict[str, Any]],
    unknown: Mapping[TopicPartition, ResponseError],
) -> None:
    """Add to each row what is in flight of its partition, or null and the reason why that is not known.

    Leaders of ``unknown`` partitions have been waited for, and are not asked again.
    """
    from kbroker.client.errors import ResponseError
    from kbroker.client.share_groups import share_in_flight

    by_partition = {TopicPartition(row["topic"], row["partition"]): row for row in rows}
    told = share_in_flight(client, group, [each for each in by_partition if each not in unknown])
    for partition, found in (told | dict(unknown)).items():
        row = by_partition[partition]
        row["in_flight"], row["in_flight_left_out"], row["in_flight_problem"] = None, 0, None
        if found is None:
            row["in_flight_problem"] = UNTOLD
        elif isinstance(found, ResponseError):
            row["in_flight_problem"] = str(found)
        else:
            row["in_flight"] = [_in_flight(each) for each in found.ranges]
            row["in_flight_left_out"] = found.left_out


def _in_flight(each: InFlight) -> dict[str, Any]:
    return {
        "first_offset": each.first_offset,
        "last_offset": each.last_offset,
        "state": each.state,
        "delivery_count": each.delivery_count,
        "member_id": each.member_id,
        "client_id": None if each.member is None else each.member.client_id,
        "host": None if each.member is None else each.member.host,
        "lock_ms_left": each.lock_ms_left,
    }


def print_share_partitions(document: Mapping[str, Any]) -> None:
    """The rows as a table."""
    print_table(
        ["topic", "partition", "start", "lag", "members"],
        [
            [
                row["topic"],
                plain(row["partition"]),
                row["start_offset"],
                row["lag"],
                [f"{each['client_id']} ({each['member_id']})" for each in row["members"]],
            ]
            for row in document["partitions"]
        ],
        numbers=("partition", "start", "lag"),
        wrap=("members",),
        total=["total", "", "", document["lag"], ""],
    )
    if any("in_flight" in row for row in document["partitions"]):
        print()
        _print_in_flight(document["partitions"])


def _print_in_flight(rows: Sequence[Mapping[str, Any]]) -> None:
    told = [(row, each) for row in rows for each in row["in_flight"] or ()]
    if told:
        print_table(
            ["topic", "partition", "in flight", "records", "state", "deliveries", "holder", "host", "lock ends in"],
            [
                [
                    row["topic"],
                    plain(row["partition"]),
                    _offsets(each["first_offset"], each["last_offset"]),
                    each["last_offset"] - each["first_offset"] + 1,
                    each["state"],
                    each["delivery_count"],
                    _holder(each),
                    each["host"],
                    None if each["lock_ms_left"] is None else f"{each['lock_ms_left'] / 1000:.1f} s",
                ]
                for row, each in told
            ],
            numbers=("partition", "records", "deliveries", "lock ends in"),
            wrap=("holder",),
        )
    elif any(row["in_flight"] is not None for row in rows):
        print("nothing is in flight")
    notes: dict[str, list[str]] = {}
    for row in rows:
        note = row["in_flight_problem"]
        if row["in_flight_left_out"]:
            note = f"{row['in_flight_left_out']:,} more ranges are in flight"
        if note:
            notes.setdefault(note, []).append(f"{row['topic']}-{row['partition']}")
    for note, partitions in notes.items():
        where = ", ".join(partitions) if len(partitions) <= _MOST_NAMED else f"{len(partitions)} partitions"
        print(printable(f"{where}: {note}"))


def _offsets(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _holder(each: Mapping[str, Any]) -> str | None:
    """The member as those of partitions are shown; the id alone of one that is not in the group any more."""
    if each["client_id"] is None:
        member_id: str | None = each["member_id"]
        return member_id
    return f"{each['client_id']} ({each['member_id']})"
