"""``kbroker topic move`` and ``kbroker topic elect``: which brokers have a topic's replicas, and which of them lead."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbroker.errors import FatalError
from kbroker.tools.cli.common import (
    add_cluster_arguments,
    add_yes,
    cluster,
    complain,
    confirm_change,
    positive,
    report_failures,
)
from kbroker.tools.cli.output import plain, print_json, print_table
from kbroker.tools.cli.parser import UsageError
from kbroker.tools.cli.progress import progress
from kbroker.tools.cli.topic_offsets import choose_partitions
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.client import Client

MOVE_DETAILS = """\
A replica stays where it is unless its broker is not among --brokers, or has more than its share. The new replicas copy
what there is; the old ones go then. Without --wait the command ends when the moves have begun; the same command again
shows nothing to move while they run and after them. --cancel takes back what is under way."""

ELECT_DETAILS = """\
The preferred leader of a partition is the first of its replicas; it is elected if it is in sync. With --unclean a
replica that is not in sync may lead where nobody else can: records that only the others have are lost."""


def move_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``move``."""
    parser.add_argument(
        "topics", nargs="+", metavar="TOPIC[:PARTITION,...]", help="topics, or some of their partitions"
    )
    parser.add_argument(
        "--brokers",
        metavar="IDS",
        help="the brokers that have the replicas afterwards: 1,2,5-7 (with -r by default: all that take new ones)",
    )
    parser.add_argument(
        "-r", "--replicas", type=positive, metavar="N", help="replicas of each partition (default: as many as now)"
    )
    parser.add_argument("--cancel", action="store_true", help="cancel what moves now; the replicas are as they were")
    parser.add_argument("--dry-run", action="store_true", help="only show the plan")
    parser.add_argument("--wait", action="store_true", help="end when all has moved")
    add_cluster_arguments(parser)


def move_action(arguments: argparse.Namespace) -> int:
    """Move replicas to other brokers; a row a partition that changes."""
    from kbroker.client.nodes import brokers_open_to_new
    from kbroker.client.reassignments import CannotPlan, alter_reassignments, parse_numbers, plan_moves

    if arguments.cancel == (arguments.brokers is not None or arguments.replicas is not None):
        raise UsageError("give --brokers or --replicas, or --cancel")
    with cluster(arguments, task="asking the cluster") as client:
        partitions = choose_partitions(client, arguments.topics)
        if arguments.cancel:
            return _cancel(client, partitions, arguments)
        before = _replicas(client, partitions)
        after: dict[TopicPartition, tuple[int, ...]] = {}
        try:
            racks = (
                brokers_open_to_new(client)
                if arguments.brokers is None
                else _racks(client, parse_numbers(arguments.brokers, "--brokers"))
            )
            for topic in dict.fromkeys(partition.topic for partition in partitions):
                now = {each.partition: replicas for each, replicas in before.items() if each.topic == topic}
                factor = arguments.replicas or max(map(len, now.values()))
                plan = plan_moves(now, racks, factor)
                after |= {TopicPartition(topic, number): replicas for number, replicas in plan.items()}
        except CannotPlan as error:
            raise FatalError(str(error)) from None
        changed = {partition: replicas for partition, replicas in after.items() if before[partition] != replicas}
        results = {} if arguments.dry_run or not changed else alter_reassignments(client, changed)
        problems: list[object] = [error for error in results.values() if error is not None]
        begun = [partition for partition, error in results.items() if error is None]
        if arguments.wait and begun:
            problems += wait_for_moves(client, {each: after[each] for each in begun})
    _print_plan(arguments, before, {each: changed[each] for each in changed if results.get(each) is None})
    if arguments.wait and begun and not problems and not arguments.json:
        print("moved")
    return report_failures(problems)


def _print_plan(
    arguments: argparse.Namespace,
    before: Mapping[TopicPartition, tuple[int, ...]],
    after: Mapping[TopicPartition, tuple[int, ...]],
) -> None:
    rows: list[dict[str, Any]] = [
        {"topic": each.topic, "partition": each.partition, "before": list(before[each]), "after": list(replicas)}
        for each, replicas in after.items()
    ]
    if arguments.json:
        print_json(rows)
    elif not rows:
        print("nothing to move")
    else:
        print_table(
            ["topic", "partition", "replicas", "would be" if arguments.dry_run else "will be"],
            [
                [
                    row["topic"],
                    plain(row["partition"]),
                    ",".join(map(str, row["before"])),
                    ",".join(map(str, row["after"])),
                ]
                for row in rows
            ],
            numbers=("partition",),
        )


def _replicas(client: Client, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, ...]]:
    from kbroker.client import ResponseError
    from kbroker.client.reassignments import replicas_to_be
    from kbroker.client.topics import describe_topics

    found: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in describe_topics(client, sorted({partition.topic for partition in partitions})).values():
        if isinstance(topic, ResponseError):
            raise topic
        found |= {TopicPartition(topic.name, each.partition): tuple(each.replicas) for each in topic.partitions}
    return replicas_to_be(client, {partition: found[partition] for partition in partitions})


def _racks(client: Client, brokers: list[int]) -> dict[int, str | None]:
    from kbroker.client.nodes import describe_cluster

    known = {broker.id: broker for broker in describe_cluster(client).brokers}
    for broker in brokers:
        if broker not in known or known[broker].fenced:
            raise FatalError(f"broker {broker} {'is fenced' if broker in known else 'is not there'}: choose others")
    return {broker: known[broker].rack for broker in brokers}


def wait_for_moves(client: Client, moving: Mapping[TopicPartition, Sequence[int]]) -> list[str]:
    """Wait until none of the partitions moves any more. Returns what is to be told of those without these replicas."""
    from kbroker.client.reassignments import list_reassignments

    topics: dict[str, list[int]] = {}
    for topic, partition in moving:
        topics.setdefault(topic, []).append(partition)
    with progress("moving partitions", total=len(moving)) as shown:
        left = len(moving)
        while left:
            now = len(list_reassignments(client, topics))
            shown.add(left - now)
            left = now
            time.sleep(0.3 if left else 0)
    for _ in range(10):  # the broker that is asked may hear later than the controller
        there = _replicas(client, list(moving))
        cancelled = [each for each, replicas in moving.items() if there[each] != tuple(replicas)]
        if not cancelled:
            break
        time.sleep(0.3)
    return [f"{each} did not move: somebody cancelled it" for each in cancelled]


def _cancel(client: Client, partitions: list[TopicPartition], arguments: argparse.Namespace) -> int:
    from kbroker.client.reassignments import alter_reassignments, list_reassignments

    moving = [partition for partition in list_reassignments(client) if partition in set(partitions)]
    results = alter_reassignments(client, dict.fromkeys(moving)) if moving else {}
    done = [partition for partition in moving if results[partition] is None]
    if arguments.json:
        print_json([{"topic": topic, "partition": partition} for topic, partition in done])
    else:
        print(f"{len(done)} moves cancelled")
    return report_failures([error for error in results.values() if error is not None])


def elect_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``elect``."""
    parser.add_argument(
        "topics",
        nargs="*",
        metavar="TOPIC[:PARTITION,...]",
        help="topics, or some of their partitions (default: all of the cluster)",
    )
    parser.add_argument("--unclean", action="store_true", help="also a replica that is not in sync, where nobody leads")
    add_yes(parser)
    add_cluster_arguments(parser)


def elect_action(arguments: argparse.Namespace) -> int:
    """Elect preferred leaders, or with ``--unclean`` any; asks if records may be lost or the cluster is protected."""
    from kbroker.client.reassignments import elect_leaders

    with cluster(arguments) as client:
        partitions = choose_partitions(client, arguments.topics) if arguments.topics else None
        question = (
            "Elect replicas that are not in sync, where nobody leads? Records that only the others have are lost."
            if arguments.unclean
            else "Elect the preferred leaders?"
        )
        must_ask = arguments.unclean or getattr(arguments, "protected", "")
        if must_ask and not confirm_change(question, client, arguments):
            complain("nobody elected")
            return 1
        with progress("electing leaders"):
            results = elect_leaders(client, partitions, unclean=arguments.unclean)
    elected = sorted(partition for partition, error in results.items() if error is None)
    if arguments.json:
        print_json([{"topic": topic, "partition": partition} for topic, partition in elected])
    else:
        print(f"{len(elected)} leaders elected")
    return report_failures([error for error in results.values() if error is not None])
