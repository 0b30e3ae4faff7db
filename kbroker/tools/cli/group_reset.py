"""``kbroker group reset``: put a group's offsets elsewhere, after a look at what would change."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbroker.client import Client
from kbroker.client.group_offsets import (
    CannotReset,
    GroupOffsets,
    NewOffset,
    ShiftBy,
    Strategy,
    ToCurrent,
    ToOffsets,
    delete_own_topics,
    look_at_group,
    named,
    plan_reset,
    put_offsets,
    read_offsets_file,
    write_offsets_file,
)
from kbroker.client.log_places import END, START, AtOffset, AtTime
from kbroker.client.streams_groups import STREAMS
from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_cluster_arguments, cluster, complain, confirm, not_negative, report_failures
from kbroker.tools.cli.output import plain, print_json, print_table
from kbroker.tools.cli.parser import Action, UsageError, add_repeated
from kbroker.types import TopicPartition


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="the group; nobody may be in it when offsets are set")
    add_repeated(parser, "--topic", metavar="TOPIC[:PARTITION,...]", help="a topic, or some of its partitions")
    parser.add_argument("--all-topics", action="store_true", help="all topics that the group has offsets for")
    parser.add_argument("--to-earliest", action="store_true", help="to the start of each partition")
    parser.add_argument("--to-latest", action="store_true", help="to the end of each partition")
    parser.add_argument("--to-current", action="store_true", help="to what is committed now, or else the end")
    parser.add_argument("--to-offset", type=not_negative, metavar="OFFSET", help="to one offset")
    parser.add_argument("--shift-by", type=int, metavar="N", help="so many records on, or back (-10)")
    parser.add_argument(
        "--to-datetime",
        metavar="TIME",
        help="to the first record at or after 2026-01-31T12:00:00 (UTC, or with a zone)",
    )
    parser.add_argument("--by-duration", metavar="DURATION", help="to the first record of the last 1h30m, 7d, P1DT2H")
    parser.add_argument(
        "--from-file", type=Path, metavar="FILE", help="to offsets from lines topic,partition,offset; see --export"
    )
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the new offsets as --from-file reads them")
    parser.add_argument(
        "--delete-internal-topics",
        action="store_true",
        help="of a Streams group: then delete its changelog and repartition topics",
    )
    parser.add_argument("--execute", "--yes", "-y", action="store_true", help="do it without asking")
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    add_cluster_arguments(parser)


def strategy_of(arguments: argparse.Namespace, now_ms: int) -> Strategy:
    """The one way that the options name; ``FatalError`` if they name none, several, or nonsense."""
    from kbroker.client.records_io.times import parse_duration, parse_moment

    chosen: list[Strategy] = []
    try:
        if arguments.to_earliest:
            chosen.append(START)
        if arguments.to_latest:
            chosen.append(END)
        if arguments.to_current:
            chosen.append(ToCurrent())
        if arguments.to_offset is not None:
            chosen.append(AtOffset(arguments.to_offset))
        if arguments.shift_by is not None:
            chosen.append(ShiftBy(arguments.shift_by))
        if arguments.to_datetime is not None:
            chosen.append(AtTime(parse_moment(arguments.to_datetime, now_ms)))
        if arguments.by_duration is not None:
            chosen.append(AtTime(max(now_ms - parse_duration(arguments.by_duration), 0)))
        if arguments.from_file is not None:
            chosen.append(_from_file(arguments.from_file, arguments.group))
    except ValueError as error:
        option = "--to-datetime" if arguments.to_datetime is not None else "--by-duration"
        raise UsageError(f"{option}: {error}") from None
    if len(chosen) != 1:
        raise UsageError(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime,"
            " --by-duration and --from-file"
        )
    return chosen[0]


def _from_file(path: Path, group_id: str) -> ToOffsets:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FatalError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return ToOffsets(read_offsets_file(text, group_id))
    except CannotReset as error:
        raise FatalError(f"{path}: {error}") from None


def _run(arguments: argparse.Namespace) -> int:
    strategy = strategy_of(arguments, time.time_ns() // 1_000_000)
    if arguments.execute and arguments.dry_run:
        raise UsageError("--execute and --dry-run exclude each other")
    if arguments.all_topics and arguments.topic:
        raise UsageError("--topic and --all-topics exclude each other")
    if isinstance(strategy, ToOffsets):
        if arguments.topic or arguments.all_topics:
            raise UsageError("--from-file says which partitions; leave out --topic and --all-topics")
    elif not (arguments.topic or arguments.all_topics):
        raise UsageError("give --topic TOPIC (or TOPIC:0,1), or --all-topics")
    with cluster(arguments) as client:
        return _reset(client, arguments, strategy)


def _reset(client: Client, arguments: argparse.Namespace, strategy: Strategy) -> int:
    group = look_at_group(client, arguments.group)
    if arguments.delete_internal_topics and group.type != STREAMS:
        raise FatalError(f"group {group.group_id} is no Streams group: it has no internal topics")
    partitions = _partitions(client, arguments, strategy, group)
    try:
        rows = plan_reset(client, group, partitions, strategy)
    except CannotReset as error:
        raise FatalError(str(error)) from None
    if arguments.export is not None:
        _export(arguments.export, rows)
    if not arguments.json:
        _print(rows)
    for note in topic_notes(group, delete=arguments.delete_internal_topics):
        complain(note)
    execute = arguments.execute
    if group.refusal and not arguments.dry_run:
        if arguments.json and not execute:
            complain(group.refusal)
            execute = False
        else:
            raise FatalError(group.refusal)
    if not (execute or arguments.dry_run or arguments.json):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            complain("nothing changed; give --execute to do it")
            return 0
        more = ", and delete its internal topics" if arguments.delete_internal_topics and group.own_topics else ""
        execute = confirm(f"Reset {len(rows)} offsets of group {arguments.group}{more}?", False)
        if not execute:
            complain("nothing changed")
    failed = put_offsets(client, group, rows) if execute else {}
    delete = execute and arguments.delete_internal_topics and not failed
    deleted, kept = delete_own_topics(client, group) if delete else ([], [])
    if arguments.json:
        _print_json(group, rows, executed=execute and not failed, deleted=deleted)
    elif execute:
        print(f"{len(rows) - len(failed)} offsets of group {arguments.group} are reset")
        if delete:
            print(f"internal topics deleted: {named(deleted) if deleted else 'none'}")
    return report_failures([*failed.values(), *kept])


def topic_notes(group: GroupOffsets, *, delete: bool) -> list[str]:
    """Lines on the internal topics of a Streams group; ``delete``: those that are named after it are to go."""
    own, internal = group.own_topics, () if group.topics is None else group.topics.internal
    others = [topic for topic in internal if topic not in own]
    if not delete:
        if not group.note:
            return []
        more = "does the first" if not others else f"deletes {named(own)}"
        return [f"{group.note} (--delete-internal-topics {more})" if own else group.note]
    if group.topics is None or not group.topics.inputs:
        return ["the group has told no topology: its internal topics are not known"]
    if not internal:
        return ["the group has no internal topics"]
    lines = [f"internal topics go as well: {named(own)}. Delete the local state of the application, too"] if own else []
    return [*lines, *([f"not named after the group, and therefore kept: {named(others)}"] if others else [])]


def _partitions(
    client: Client, arguments: argparse.Namespace, strategy: Strategy, group: GroupOffsets
) -> list[TopicPartition]:
    from kbroker.tools.cli.topic_offsets import choose_partitions

    if isinstance(strategy, ToOffsets):
        return sorted(strategy.offsets)
    if arguments.all_topics:
        if not group.partitions:
            raise FatalError(f"group {arguments.group} has no offsets: name topics with --topic")
        return group.partitions
    return choose_partitions(client, arguments.topic)


def _export(path: Path, rows: Sequence[NewOffset]) -> None:
    try:
        path.write_text(write_offsets_file(rows), "utf-8")
    except OSError as error:
        raise FatalError(f"cannot write {path}: {error.strerror}") from None


def _print(rows: Sequence[NewOffset]) -> None:
    with_notes = any(row.note for row in rows)
    print_table(
        ["topic", "partition", "current", "new", "change", *(["note"] if with_notes else [])],
        [
            [
                row.partition.topic,
                plain(row.partition.partition),
                row.current,
                row.new,
                None if row.change is None else f"{row.change:+,}",
                *([row.note] if with_notes else []),
            ]
            for row in rows
        ],
        numbers=("partition", "current", "new", "change"),
    )


def _print_json(group: GroupOffsets, rows: Sequence[NewOffset], *, executed: bool, deleted: Sequence[str]) -> None:
    partitions: list[dict[str, Any]] = [
        {
            "topic": row.partition.topic,
            "partition": row.partition.partition,
            "current_offset": row.current,
            "new_offset": row.new,
            "change": row.change,
            "note": row.note or None,
        }
        for row in rows
    ]
    document: dict[str, Any] = {"group": group.group_id, "executed": executed, "partitions": partitions}
    if group.topics is not None:
        document["internal_topics"] = list(group.topics.internal)
        document["deleted_topics"] = list(deleted)
    print_json(document)


RESET = Action(
    "reset a group's offsets, after a preview",
    _arguments,
    _run,
    "Without --execute it shows what would change, and asks if there is a terminal. Offsets that the log does not\n"
    "have become its start or its end.",
)
