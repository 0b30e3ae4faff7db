"""``kbroker topic offsets`` and ``kbroker topic truncate``; partitions as they are named on the command line."""

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
    not_negative,
    report_failures,
)
from kbroker.tools.cli.output import plain, print_json, print_table, timestamp
from kbroker.tools.cli.parser import UsageError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.client import Client, ResponseError
    from kbroker.client.topics import ListedOffset


def offsets_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``offsets``."""
    parser.add_argument(
        "topics", nargs="+", metavar="TOPIC[:PARTITION,...]", help="topics, or some of their partitions"
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="the first offset at or after a time (2026-01-31T12:00:00Z, -1h, @SECONDS), or max-timestamp;"
        " without it the start and the end",
    )
    add_cluster_arguments(parser)


def offsets_action(arguments: argparse.Namespace) -> int:
    """A row a partition: where it starts and ends, or where a time is in it."""
    from kbroker.client.records_io.times import parse_moment
    from kbroker.client.topics import MAX_TIMESTAMP

    at: int | None = None
    if arguments.at == "max-timestamp":
        at = MAX_TIMESTAMP
    elif arguments.at is not None:
        try:
            at = parse_moment(arguments.at, _now_ms(time.time_ns()))
        except ValueError as error:
            raise UsageError(f"--at: {error}") from None
    with cluster(arguments, task="asking for offsets") as client:
        partitions = choose_partitions(client, arguments.topics)
        rows, problems = _ranges(client, partitions) if at is None else _offsets_at(client, partitions, at)
    rows.sort(key=lambda row: (row["topic"], row["partition"]))
    if arguments.json:
        print_json(rows)
    elif at is None:
        _print_ranges(rows)
    else:
        _print_offsets(rows)
    return report_failures(problems)


def _ranges(client: Client, partitions: Sequence[TopicPartition]) -> tuple[list[dict[str, Any]], list[object]]:
    from kbroker.client import ResponseError
    from kbroker.client.topics import list_ranges

    rows: list[dict[str, Any]] = []
    problems: list[object] = []
    for partition, found in list_ranges(client, partitions).items():
        if isinstance(found, ResponseError):
            problems.append(found)
            continue
        start, end = found
        rows.append(_where(partition) | {"start_offset": start, "end_offset": end, "messages": end - start})
    return rows, problems


def _offsets_at(
    client: Client, partitions: Sequence[TopicPartition], at: int
) -> tuple[list[dict[str, Any]], list[object]]:
    from kbroker.client import ResponseError
    from kbroker.client.topics import list_offsets

    rows: list[dict[str, Any]] = []
    problems: list[object] = []
    for partition, listed in list_offsets(client, dict.fromkeys(partitions, at)).items():
        if isinstance(listed, ResponseError):
            problems.append(listed)
            continue
        there = listed.offset >= 0
        rows.append(
            _where(partition)
            | {"offset": listed.offset if there else None, "timestamp": listed.timestamp if there else None}
        )
    return rows, problems


def _print_ranges(rows: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        ["topic", "partition", "start", "end", "records"],
        [
            [row["topic"], plain(row["partition"]), row["start_offset"], row["end_offset"], row["messages"]]
            for row in rows
        ],
        numbers=("partition", "start", "end", "records"),
    )


def _print_offsets(rows: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        ["topic", "partition", "offset", "timestamp"],
        [
            [
                row["topic"],
                plain(row["partition"]),
                row["offset"],
                None if row["timestamp"] is None else timestamp(row["timestamp"]),
            ]
            for row in rows
        ],
        numbers=("partition", "offset"),
    )


def _now_ms(now_ns: int) -> int:
    return now_ns // 1_000_000


def _where(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def choose_partitions(client: Client, texts: Sequence[str]) -> list[TopicPartition]:
    """``orders`` and ``orders:0,1`` as partitions that exist; ``FatalError`` or a client's error otherwise."""
    chosen: set[TopicPartition] = set()
    for text in texts:
        try:
            topic, numbers = parse_topic_partitions(text)
        except ValueError:
            raise UsageError(f"{text!r} is not of the form TOPIC or TOPIC:0,1,2") from None
        there = client.partitions_of(topic)
        for number in there if numbers is None else numbers:
            if number not in there:
                raise FatalError(f"topic {topic} has no partition {number}, only 0 to {len(there) - 1}")
            chosen.add(TopicPartition(topic, number))
    return sorted(chosen)


def parse_topic_partitions(text: str) -> tuple[str, list[int] | None]:
    """``orders`` or ``orders:0,1,2`` as a topic and some of its partitions (None: all); ``ValueError`` otherwise."""
    topic, colon, rest = text.partition(":")
    numbers = rest.split(",") if colon else []
    if not topic or not all(number.isascii() and number.isdigit() for number in numbers):
        raise ValueError(text)
    return topic, sorted(set(map(int, numbers))) if colon else None


def truncate_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``truncate``."""
    parser.add_argument(
        "topics", nargs="+", metavar="TOPIC[:PARTITION,...]", help="topics, or some of their partitions"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--before-offset", type=not_negative, metavar="OFFSET", help="delete what is before this offset")
    where.add_argument("--before", metavar="TIME", help="delete what is before a time: 2026-01-31, -7d, @SECONDS")
    where.add_argument("--all", action="store_true", help="delete all records that there are now")
    add_yes(parser)
    add_cluster_arguments(parser)


def truncate_action(arguments: argparse.Namespace) -> int:
    """Delete records, after asking; a row a partition."""
    from kbroker.client import ResponseError
    from kbroker.client.records_io.times import parse_moment
    from kbroker.client.topics import delete_records, list_offsets, list_ranges

    at: int | None = None
    if arguments.before is not None:
        try:
            at = parse_moment(arguments.before, _now_ms(time.time_ns()))
        except ValueError as error:
            raise UsageError(f"--before: {error}") from None
    problems: list[object] = []
    with cluster(arguments) as client:
        ranges = list_ranges(client, choose_partitions(client, arguments.topics))
        problems += [found for found in ranges.values() if isinstance(found, ResponseError)]
        known = {partition: found for partition, found in ranges.items() if not isinstance(found, ResponseError)}
        times = list_offsets(client, dict.fromkeys(known, at)) if at is not None else {}
        problems += [found for found in times.values() if isinstance(found, ResponseError)]
        wanted = _targets(known, times, arguments.before_offset)
        count = sum(target - known[partition][0] for partition, target in wanted.items())
        question = f"Delete {count:,} records of {len(wanted)} partitions?"
        if count and not confirm_change(question, client, arguments):
            complain("nothing deleted")
            return 1
        results = delete_records(client, wanted)
    rows: list[dict[str, Any]] = []
    for partition, (start, _) in sorted(known.items()):
        result = results.get(partition, start)
        if isinstance(result, ResponseError):
            problems.append(result)
        else:
            rows.append(_where(partition) | {"start_offset": result, "deleted": result - start})
    if arguments.json:
        print_json(rows)
    else:
        print_table(
            ["topic", "partition", "deleted", "start"],
            [[row["topic"], plain(row["partition"]), row["deleted"], row["start_offset"]] for row in rows],
            numbers=("partition", "deleted", "start"),
        )
    return report_failures(problems)


def _targets(
    ranges: Mapping[TopicPartition, tuple[int, int]],
    times: Mapping[TopicPartition, ListedOffset | ResponseError],
    before_offset: int | None,
) -> dict[TopicPartition, int]:
    """Where each partition is to start: at its offset of the time asked for, at ``before_offset``, or at its end."""
    from kbroker.client import ResponseError

    targets: dict[TopicPartition, int] = {}
    for partition, (start, end) in ranges.items():
        target = end if before_offset is None else min(before_offset, end)
        listed = times.get(partition)
        if isinstance(listed, ResponseError):
            continue
        if listed is not None and listed.offset >= 0:
            target = listed.offset
        if target > start:
            targets[partition] = target
    return targets
