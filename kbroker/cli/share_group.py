"""``kbroker group describe`` for share groups: who works on which partition, and how much is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.client import Client
    from kbroker.client.groups import GroupDescription, GroupMember
    from kbroker.types import TopicPartition


def share_partitions(client: Client, group: GroupDescription) -> list[dict[str, Any]]:
    """A row for each partition that the group has a place in, or that a member has, in order."""
    from kbroker.client.share_groups import ShareOffset, share_offsets

    offsets = share_offsets(client, group.group_id)
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


def print_share_partitions(document: Mapping[str, Any]) -> None:
    """The rows as a table."""
    from kbroker.cli.output import plain, print_table

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
