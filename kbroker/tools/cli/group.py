"""``kbroker group``: groups with their lag and members; deleting them; resetting their offsets with a preview."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.client import Client, ResponseError
from kbroker.client.groups import (
    GroupDescription,
    GroupMember,
    committed_offsets,
    delete_group,
    delete_offsets,
    list_groups,
)
from kbroker.client.share_groups import SHARE, describe_any_group
from kbroker.client.streams_groups import STREAMS
from kbroker.client.topics import list_ranges
from kbroker.tools.cli.common import add_cluster_arguments, add_yes, cluster, complain, confirm_change, report_failures
from kbroker.tools.cli.group_reset import RESET
from kbroker.tools.cli.output import plain, print_documents, print_json, print_table, printable, printable_lines
from kbroker.tools.cli.parser import Action, add_repeated
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.tools.diagnosis.findings import Finding


# --- list -----------------------------------------------------------------------------------------------------------


_STATES = (
    "Stable",
    "Empty",
    "Dead",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
)
_TYPES = ("classic", "consumer", "share", "streams")


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    """A name in any case: a broker answers a name that it does not know with no groups at all."""

    def parse(text: str) -> str:
        for name in names:
            if name.lower() == text.lower():
                return name
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")

    return parse


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    add_repeated(
        parser,
        "--state",
        metavar="STATE",
        type=_one_of(_STATES),
        help="only groups in this state (Stable, Empty, PreparingRebalance, ...)",
    )
    add_repeated(
        parser,
        "--type",
        metavar="TYPE",
        type=_one_of(_TYPES),
        help="only groups of this type (classic, consumer, share, streams)",
    )
    parser.add_argument("--names", action="store_true", help="names only, one a line, for scripts")
    add_cluster_arguments(parser)


def _list(arguments: argparse.Namespace) -> int:
    with cluster(arguments, task="asking for groups") as client:
        groups = list_groups(client, states=arguments.state, types=arguments.type)
    if arguments.json:
        print_json(
            [group.group_id for group in groups]
            if arguments.names
            else [
                {
                    "group": group.group_id,
                    "type": group.type or None,
                    "protocol_type": group.protocol_type,
                    "state": group.state or None,
                }
                for group in groups
            ]
        )
    elif arguments.names:
        for group in groups:
            print(group.group_id)
    else:
        print_table(
            ["group", "type", "protocol", "state"],
            [
                [group.group_id, group.type or None, group.protocol_type or None, group.state or None]
                for group in groups
            ],
        )
    return 0


# --- describe -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lag:
    """Where a group is in a partition. ``limits``: start and end of its log, or why nobody can be asked for them."""

    partition: TopicPartition
    current: int | None
    limits: tuple[int, int] | ResponseError
    member: GroupMember | None

    @property
    def start(self) -> int | None:
        """The start of the log, if it is known."""
        return self.limits[0] if isinstance(self.limits, tuple) else None

    @property
    def end(self) -> int | None:
        """The end of the log, if it is known."""
        return self.limits[1] if isinstance(self.limits, tuple) else None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end; None without a committed offset."""
        return None if self.current is None or self.end is None else self.end - self.current


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", nargs="+", metavar="GROUP", help="groups to describe")
    parser.add_argument(
        "--in-flight",
        action="store_true",
        help="of share groups also the records in flight: who holds which, for how long, how often delivered",
    )
    add_cluster_arguments(parser)


def _describe(arguments: argparse.Namespace) -> int:
    documents: list[dict[str, Any]] = []
    problems: list[object] = []
    with cluster(arguments, task="asking for groups and their offsets") as client:
        for group_id in dict.fromkeys(arguments.groups):
            try:
                group = describe_any_group(client, group_id)
                if arguments.in_flight and group.type != SHARE:
                    problems.append(f"{group_id} is no share group: nothing of it is in flight")
                    continue
                documents.append(_described(client, group, in_flight=arguments.in_flight))
            except ResponseError as error:
                problems.append(error)
    print_documents(documents, None if arguments.json else _print_description)
    return report_failures(problems)


def _described(client: Client, group: GroupDescription, *, in_flight: bool) -> dict[str, Any]:
    from kbroker.tools.diagnosis.group_watch import GroupWatch, Look, ask_lost_records

    if group.type != "Share":
        found = lags(client, group)
        committed = {each.partition: each.current for each in found if each.current is not None}
        ranges = {each.partition: each.limits for each in found}
        if group.type == STREAMS or not group.members:  # nobody waits, or the tasks of members are no partitions
            return _document(group, found, ask_lost_records(client, group, committed, ranges))
        [judged] = GroupWatch().judge(client, [Look(group, committed, ranges)])
        return _document(group, found, judged.reasons)
    from kbroker.tools.cli.share_group import add_in_flight, settled_offsets, share_partitions

    offsets, unknown = settled_offsets(client, group.group_id)
    rows = share_partitions(group, offsets)
    if in_flight:
        add_in_flight(client, group, rows, unknown)
    reasons = [each.document() for each in ask_lost_records(client, group, {}, unknown)]
    return {**_head(group), "lag": sum(row["lag"] or 0 for row in rows), "partitions": rows, "reasons": reasons}


def lags(client: Client, group: GroupDescription) -> list[Lag]:
    """Every partition that the group has committed for or is assigned, in order."""
    committed = committed_offsets(client, group.group_id)
    # Members of Streams groups have tasks, which are no partitions.
    members = group.members if group.type != STREAMS else ()
    owners = {partition: member for member in members for partition in member.assignment}
    partitions = sorted(committed.keys() | owners.keys())
    ranges = list_ranges(client, partitions)
    return [
        Lag(each, committed[each].offset if each in committed else None, ranges[each], owners.get(each))
        for each in partitions
    ]


def total_lag(found: Iterable[Lag]) -> int:
    """The sum of the lags that are known."""
    return sum(entry.lag for entry in found if entry.lag is not None)


def _document(group: GroupDescription, found: Sequence[Lag], reasons: Sequence[Finding]) -> dict[str, Any]:
    return {
        **_head(group),
        "lag": total_lag(found),
        "partitions": [
            {
                "topic": entry.partition.topic,
                "partition": entry.partition.partition,
                "current_offset": entry.current,
                "start_offset": entry.start,
                "end_offset": entry.end,
                "lag": entry.lag,
                "member_id": None if entry.member is None else entry.member.member_id,
                "client_id": None if entry.member is None else entry.member.client_id,
                "host": None if entry.member is None else entry.member.host,
            }
            for entry in found
        ],
        "reasons": [each.document() for each in reasons],
    }


def _head(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": len(group.members),
    }


def _print_head(document: Mapping[str, Any]) -> None:
    count = document["members"]
    facts = [f"{document['type'].lower()} group", document["state"], f"{count} member{'' if count == 1 else 's'}"]
    if document["assignor"]:
        facts.append(f"assignor {document['assignor']}")
    if document["group_epoch"] is not None:
        facts.append(f"epoch {document['group_epoch']} (assignment {document['assignment_epoch']})")
    facts.append(f"coordinator {document['coordinator']}")
    print(printable(f"{document['group']}  {', '.join(facts)}"))


def _print_description(document: Mapping[str, Any]) -> None:
    _print_head(document)
    if document["type"] == "Share" and document["partitions"]:
        from kbroker.tools.cli.share_group import print_share_partitions

        print_share_partitions(document)
    elif document["partitions"]:
        _print_partitions(document)
    else:
        print("  no offsets are committed, no partitions assigned")
    for reason in document.get("reasons", ()):
        print(printable_lines(f"{reason['text']}\n  {reason['advice']}"))


def _print_partitions(document: Mapping[str, Any]) -> None:
    print_table(
        ["topic", "partition", "current", "end", "lag", "member", "host"],
        [
            [
                entry["topic"],
                plain(entry["partition"]),
                entry["current_offset"],
                entry["end_offset"],
                entry["lag"],
                entry["member_id"],
                entry["host"],
            ]
            for entry in document["partitions"]
        ],
        numbers=("partition", "current", "end", "lag"),
        wrap=("member",),
        total=["total", "", "", "", document["lag"], "", ""],
    )


# --- members --------------------------------------------------------------------------------------------------------


def _members_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="the group whose members to show")
    add_cluster_arguments(parser)


def _members(arguments: argparse.Namespace) -> int:
    with cluster(arguments, task="asking for the group") as client:
        group = describe_any_group(client, arguments.group)
    if arguments.json:
        print_json({**_head(group), "members": [_member(member) for member in group.members]})
        return 0
    _print_head(_head(group))
    if not group.members:
        return 0
    modern = group.group_epoch is not None
    static = any(member.instance_id for member in group.members)
    print_table(
        [
            "member",
            *(["instance"] if static else []),
            "client",
            "host",
            *(["epoch"] if modern else []),
            "partitions",
            "subscription",
        ],
        [
            [
                member.member_id,
                *([member.instance_id] if static else []),
                member.client_id,
                member.host,
                *([plain(member.epoch)] if modern else []),
                _short(member.assignment) + (f" (to be {_short(member.target)})" if _moves(member) else ""),
                member.topic_regex or member.topics,
            ]
            for member in group.members
        ],
        numbers=("epoch",),
        wrap=("member", "partitions", "subscription"),
    )
    return 0


def _moves(member: GroupMember) -> bool:
    return member.target is not None and member.target != member.assignment


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "protocol": member.protocol,
        "epoch": member.epoch,
        "topics": list(member.topics),
        "topic_regex": member.topic_regex,
        "assignment": _by_topic(member.assignment),
        "target_assignment": None if member.target is None else _by_topic(member.target),
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _short(partitions: Sequence[TopicPartition] | None) -> str:
    """``orders(0-2,5) other(0)``."""
    return " ".join(f"{topic}({_ranges(numbers)})" for topic, numbers in _by_topic(partitions or ()).items()) or "none"


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


# --- delete ---------------------------------------------------------------------------------------------------------


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", nargs="+", metavar="GROUP", help="groups to delete; they must have no members")
    add_repeated(
        parser,
        "--topic",
        metavar="TOPIC[:PARTITION,...]",
        help="delete only the offsets of this topic, or of some partitions of it",
    )
    add_yes(parser)
    add_cluster_arguments(parser)


def _delete(arguments: argparse.Namespace) -> int:
    from kbroker.tools.cli.topic_offsets import choose_partitions

    names = list(dict.fromkeys(arguments.groups))
    what = f"group {names[0]}" if len(names) == 1 else f"{len(names)} groups ({', '.join(names)})"
    what = (
        f"{what} and its offsets" if not arguments.topic else f"the offsets of {what} for {', '.join(arguments.topic)}"
    )
    documents: list[dict[str, Any]] = []
    problems: list[object] = []
    with cluster(arguments) as client:
        if not confirm_change(f"Delete {what}?", client, arguments):
            complain("nothing deleted")
            return 1
        partitions = choose_partitions(client, arguments.topic)
        for name in names:
            try:
                if partitions:
                    there = committed_offsets(client, name)  # a broker takes those that are not there for deleted
                    failed = delete_offsets(client, name, partitions)
                    problems += [f"group {name}, {error}" for error in failed.values()]
                    gone = there.keys() & set(partitions) - failed.keys()
                    documents.append({"group": name, "deleted_offsets": len(gone)})
                else:
                    delete_group(client, name)
                    documents.append({"group": name, "deleted": True})
            except ResponseError as error:
                problems.append(error)
                continue
            if not arguments.json:
                text = f"{documents[-1]['deleted_offsets']} offsets deleted" if partitions else "deleted"
                print(f"group {name}{':' if partitions else ''} {text}")
    if arguments.json:
        print_json(documents)
    return report_failures(problems)


ACTIONS = {
    "list": Action("list groups with their type and state", _list_arguments, _list),
    "describe": Action(
        "show a group's state, and its offset and lag in each partition", _describe_arguments, _describe
    ),
    "members": Action("show a group's members and what is assigned to them", _members_arguments, _members),
    "reset": RESET,
    "delete": Action("delete groups that have no members, or some of their offsets", _delete_arguments, _delete),
}
