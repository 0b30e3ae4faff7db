"""``kbroker consume``: read a topic from an offset or a time, to an end or on and on."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.cli.common import add_cluster_arguments, cluster, complain, not_negative, positive
from kbroker.cli.parser import UsageError
from kbroker.errors import FatalError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.cli.record_format import Formatter
    from kbroker.client import Client
    from kbroker.client.reader import Reader

DETAILS = """\
A record is shown as `TIMESTAMP PARTITION:OFFSET KEY VALUE {HEADER: VALUE}`: times in UTC, control characters escaped,
bytes that are not UTF-8 in hexadecimal. The order is kept within a partition.

Names in a template: {topic} {partition} {offset} {timestamp} {timestamp_ms} {timestamp_type} {key} {value} {headers}
{key_hex} {value_hex} {key_base64} {value_base64} {key_size} {value_size}; {{ and }} are braces, \\n and \\t a newline
and a tab. `--json` has `topic`, `partition`, `offset`, `timestamp`, `timestamp_type`, `key`, `value`, `headers`, with
`key_base64` and `value_base64` instead for what is not UTF-8.

It reads without a group and commits nothing; to move a group's offsets, see `kbroker group reset`."""

_WAIT_SECONDS = 1.0


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``consume``."""
    parser.add_argument("topic", metavar="TOPIC", help="the topic to read")
    where = parser.add_argument_group("what to read")
    where.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        help="earliest, latest, an offset, -N (the last N of each partition), or a time: 2026-01-31T12:00:00Z, -1h,"
        " @SECONDS (default: earliest, with --follow latest)",
    )
    where.add_argument("--until", metavar="WHERE", help="stop before this offset or time (default: the end now)")
    where.add_argument("-n", "--count", type=not_negative, metavar="N", help="stop after N records")
    where.add_argument("-f", "--follow", action="store_true", help="go on at the end, with what comes")
    where.add_argument(
        "-p", "--partition", type=not_negative, action="append", metavar="N", help="only this one; may be repeated"
    )
    where.add_argument("--uncommitted", action="store_true", help="records of open and aborted transactions, too")
    shown = parser.add_argument_group("how to show it").add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="a JSON object a line")
    shown.add_argument("--json-values", action="store_true", help="the same, with values that are JSON put in as JSON")
    shown.add_argument("--value-only", action="store_true", help="values as they are, a newline after each")
    shown.add_argument("--hex", action="store_true", help="keys, values and headers in hexadecimal")
    shown.add_argument(
        "--format",
        metavar="TEMPLATE",
        help="such as '{offset} {key}={value}\\n'; see the documentation for the names",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on standard error but errors")
    parser.add_argument(
        "--fetch-bytes", type=positive, default=1 << 20, metavar="BYTES", help="of a partition in an answer (1048576)"
    )
    add_cluster_arguments(parser, json=False)


# --- Where to begin and to end --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AtOffset:
    """An offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """So many offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time in ms."""

    timestamp: int


Where = AtOffset | BeforeEnd | AtTime
EARLIEST = AtOffset(0)
LATEST = BeforeEnd(0)


def parse_where(text: str, now_ms: int) -> Where:
    """Parse the value of ``--from`` or ``--until``. Raises ``ValueError`` with the reason in words."""
    from kbroker.cli.times import parse_moment

    if text in ("earliest", "beginning", "start"):
        return EARLIEST
    if text in ("latest", "end"):
        return LATEST
    if re.fullmatch(r"\d{1,19}", text, re.ASCII):
        return AtOffset(int(text))
    if re.fullmatch(r"-\d{1,19}", text, re.ASCII):
        return BeforeEnd(int(text[1:]))
    return AtTime(parse_moment(text, now_ms))


def resolve(where: Where, start: int, end: int, at_time: int | None) -> int:
    """The offset in a log from ``start`` to ``end``; ``at_time``: the first record at or after the time, if any."""
    match where:
        case AtOffset(offset):
            return min(max(offset, start), end)
        case BeforeEnd(count):
            return max(end - count, start)
        case AtTime():
            return end if at_time is None else max(at_time, start)


# --- Running --------------------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> int:
    """Show the records; 0 once the end has been reached."""
    from kbroker.client.reader import Reader

    formatter = _formatter(arguments)
    begin = time.monotonic()
    span = _span(arguments, time.time_ns() // 1_000_000)
    with cluster(arguments) as client:
        partitions = client.partitions_of(arguments.topic)
        chosen = sorted(set(arguments.partition or partitions))
        for partition in chosen:
            if partition not in partitions:
                raise FatalError(
                    f"topic {arguments.topic} has no partition {partition}, only 0 to {len(partitions) - 1}"
                )
        positions, ends = _limits(client, arguments, chosen, *span)
        reader = Reader(
            client,
            arguments.topic,
            positions,
            ends=ends,
            read_committed=not arguments.uncommitted,
            partition_bytes=arguments.fetch_bytes,
        )
        count = _copy(reader, arguments, formatter)
    if not arguments.quiet and sys.stderr.isatty():
        seconds = max(time.monotonic() - begin, 1e-6)
        complain(f"{count:,} records in {seconds:.2f} s ({count / seconds:,.0f}/s)")
    return 0


def _formatter(arguments: argparse.Namespace) -> Formatter:
    from kbroker.cli.record_format import json_formatter, line_formatter, template_formatter, value_formatter

    if arguments.json or arguments.json_values:
        return json_formatter(parse_values=arguments.json_values)
    if arguments.value_only:
        return value_formatter
    if arguments.format is not None:
        try:
            return template_formatter(arguments.format)
        except ValueError as error:
            raise UsageError(f"--format: {error}") from None
    return line_formatter(as_hex=arguments.hex)


def _span(arguments: argparse.Namespace, now_ms: int) -> tuple[Where, Where | None]:
    """Where to begin, and where to end (None: at the end that there is)."""
    if arguments.follow and arguments.until is not None:
        raise UsageError("--until and --follow exclude each other")
    try:
        first = parse_where(arguments.start or ("latest" if arguments.follow else "earliest"), now_ms)
    except ValueError as error:
        raise UsageError(f"--from: {error}") from None
    try:
        last = parse_where(arguments.until, now_ms) if arguments.until is not None else None
    except ValueError as error:
        raise UsageError(f"--until: {error}") from None
    return first, last


def _limits(
    client: Client, arguments: argparse.Namespace, chosen: list[int], first: Where, last: Where | None
) -> tuple[dict[int, int], dict[int, int]]:
    """Where each partition begins, and before which offset it ends (not in it: never)."""
    from kbroker.client import ResponseError
    from kbroker.client.topics import list_ranges

    names = [TopicPartition(arguments.topic, partition) for partition in chosen]
    ranges = list_ranges(client, names, read_committed=not arguments.uncommitted)
    starts_at, ends_at = _at_times(client, names, first), _at_times(client, names, last)
    positions: dict[int, int] = {}
    ends: dict[int, int] = {}
    for name in names:
        found = ranges[name]
        if isinstance(found, ResponseError):
            raise found
        start, end = found
        positions[name.partition] = resolve(first, start, end, starts_at.get(name))
        if not arguments.quiet and isinstance(first, AtOffset) and not start <= first.offset <= end and first.offset:
            complain(f"partition {name.partition} has no offset {first.offset}, only {start} to {end}")
        if not arguments.follow:
            ends[name.partition] = end if last is None else resolve(last, start, end, ends_at.get(name))
    return positions, ends


def _at_times(client: Client, names: list[TopicPartition], where: Where | None) -> Mapping[TopicPartition, int]:
    """Partition -> the first offset at or after a time, for those that have one."""
    from kbroker.client import ResponseError
    from kbroker.client.topics import list_offsets

    if not isinstance(where, AtTime):
        return {}
    found: dict[TopicPartition, int] = {}
    for name, listed in list_offsets(client, dict.fromkeys(names, where.timestamp)).items():
        if isinstance(listed, ResponseError):
            raise listed
        if listed.offset >= 0:
            found[name] = listed.offset
    return found


def _copy(reader: Reader, arguments: argparse.Namespace, formatter: Formatter) -> int:
    """Write records as they come; how many there were."""
    from kbroker.cli.output import write
    from kbroker.client.reader import Skipped

    topic = arguments.topic
    count, most = 0, arguments.count
    if most == 0:
        return 0
    while not reader.finished:
        shown: list[bytes] = []
        for chunk in reader.poll(_WAIT_SECONDS):
            if isinstance(chunk, Skipped):
                complain(f"partition {chunk.partition}: offset {chunk.wanted} is gone, going on at {chunk.start}")
                continue
            records = chunk.records if most is None else chunk.records[: most - count]
            partition, kind = chunk.partition, chunk.timestamp_type
            shown += [formatter(topic, partition, record, kind) for record in records]
            count += len(records)
        if shown:
            write(b"".join(shown))
        if count == most:
            break
    return count
