"""``kbroker consume``: read a topic from an offset or a time, to an end or on and on."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_cluster_arguments, cluster, complain, not_negative, positive
from kbroker.tools.cli.output import harmless_json, write
from kbroker.tools.cli.parser import UsageError
from kbroker.tools.cli.record_spans import (
    FILTER_HELP,
    add_filter_argument,
    add_registry_argument,
    add_span_arguments,
    complain_of_undecoded,
    decoder_of,
    find_limits,
    reader_of,
    sieve_of,
    span_of,
)

if TYPE_CHECKING:
    from kbroker.client.reader import Reader, Skipped
    from kbroker.client.records_io.json_records import Formatter
    from kbroker.client.records_io.sieve import Sieve
    from kbroker.tools.cli.decoded_format import Show

DETAILS = f"""\
A record is shown as `TIMESTAMP PARTITION:OFFSET KEY VALUE {{HEADER: VALUE}}`: times in UTC, control characters escaped,
bytes that are not UTF-8 in hexadecimal. The order is kept within a partition.

Names in a template: {{topic}} {{partition}} {{offset}} {{timestamp}} {{timestamp_ms}} {{timestamp_type}} {{key}} {{value}} {{headers}}
{{key_hex}} {{value_hex}} {{key_base64}} {{value_base64}} {{key_size}} {{value_size}}; {{{{ and }}}} are braces, \\n and \\t a newline
and a tab. `--json` has `topic`, `partition`, `offset`, `timestamp`, `timestamp_type`, `key`, `value`, `headers`, with
`key_base64` and `value_base64` instead for what is not UTF-8.

With --registry, keys and values that name a schema are shown as JSON; what cannot be decoded is shown in hexadecimal
with the reason (`value_base64` and `value_error` in JSON), and the reading goes on.

{FILTER_HELP}

It reads without a group and commits nothing; to move a group's offsets, see `kbroker group reset`."""  # noqa: E501

_WAIT_SECONDS = 1.0
_LATEST_BYTES = 256 << 20
"""Memory for the latest record of each key."""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``consume``."""
    parser.add_argument("topic", metavar="TOPIC", help="the topic to read")
    where = parser.add_argument_group("what to read")
    add_span_arguments(where, begins="earliest, with --follow latest")
    where.add_argument("-n", "--count", type=not_negative, metavar="N", help="stop after N records")
    where.add_argument("-f", "--follow", action="store_true", help="go on at the end, with what comes")
    add_filter_argument(where)
    where.add_argument(
        "--latest-per-key",
        action="store_true",
        help="the last record of each key, as if the topic were compacted; up to 256 MiB of them",
    )
    add_registry_argument(where)
    shown = parser.add_argument_group("how to show it").add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="a JSON object a line")
    shown.add_argument("--json-values", action="store_true", help="the same, with values that are JSON put in as JSON")
    shown.add_argument("--value-only", action="store_true", help="values as they are, a newline after each")
    shown.add_argument("--hex", action="store_true", help="keys, values and headers in hexadecimal")
    shown.add_argument(
        "--format", metavar="TEMPLATE", help="such as '{offset} {key}={value}\\n'; see the documentation for the names"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on standard error but errors")
    parser.add_argument(
        "--fetch-bytes", type=positive, default=1 << 20, metavar="BYTES", help="of a partition in an answer (1048576)"
    )
    add_cluster_arguments(parser, json=False)


def run(arguments: argparse.Namespace) -> int:
    """Show the records; 0 once the end has been reached."""
    begin = time.monotonic()
    span = span_of(arguments, follow=arguments.follow)
    if arguments.latest_per_key and arguments.follow:
        raise UsageError("--latest-per-key and --follow exclude each other: the last record of a key is yet to come")
    if arguments.hex and arguments.registry is not None:
        raise UsageError("--hex and --registry exclude each other")
    sieve = sieve_of(arguments)
    plain = _plain_formatter(arguments)
    with cluster(arguments) as client:
        sieve.decoder = None if arguments.hex else decoder_of(arguments)
        show = _show(arguments, plain, is_decoded=sieve.decoder is not None)
        limits = find_limits(client, arguments.topic, arguments, span)
        reader = reader_of(client, arguments.topic, limits, arguments)
        if arguments.latest_per_key:
            count = _copy_latest(reader, arguments, sieve, show)
        else:
            count = _copy(reader, arguments, sieve, show, plain if sieve.takes_all else None)
    complain_of_undecoded(sieve)
    if not arguments.quiet and sys.stderr.isatty():
        seconds = max(time.monotonic() - begin, 1e-6)
        complain(f"{count:,} records in {seconds:.2f} s ({count / seconds:,.0f}/s)")
    return 0


def _show(arguments: argparse.Namespace, plain: Formatter, *, is_decoded: bool) -> Show:
    """The formatter of records that a sieve has let through."""
    topic = arguments.topic
    if not is_decoded:
        return lambda partition, decoded, kind: plain(topic, partition, decoded.record, kind)
    from kbroker.tools.cli.decoded_format import decoded_formatter

    return decoded_formatter(
        topic,
        as_json=arguments.json or arguments.json_values,
        parse_values=arguments.json_values,
        value_only=arguments.value_only,
        template=arguments.format,
    )


def _plain_formatter(arguments: argparse.Namespace) -> Formatter:
    """The formatter of records that are not decoded; ``UsageError`` if the template is none."""
    from kbroker.client.records_io.json_records import json_formatter
    from kbroker.tools.cli.record_format import line_formatter, template_formatter, value_formatter

    if arguments.json or arguments.json_values:
        return json_formatter(parse_values=arguments.json_values)
    if arguments.value_only:
        return value_formatter
    if arguments.format is not None:
        try:
            return template_formatter(arguments.format)
        except ValueError as error:
            raise UsageError(f"--format: {error}") from None
    return line_formatter(in_hex=arguments.hex)


def _writer(arguments: argparse.Namespace) -> Callable[[bytes], None]:
    """Writes to standard output; a terminal gets no control characters out of JSON."""
    if (arguments.json or arguments.json_values) and sys.stdout.isatty():
        return lambda data: write(harmless_json(data))
    return write


def _copy(reader: Reader, arguments: argparse.Namespace, sieve: Sieve, show: Show, plain: Formatter | None) -> int:
    """Write records as they come; how many there were. With ``plain`` all are wanted as they are."""
    from kbroker.client.reader import Skipped

    topic, write = arguments.topic, _writer(arguments)
    count, most = 0, arguments.count
    if most == 0:
        return 0
    told: set[int] = set()
    while not reader.finished:
        shown: list[bytes] = []
        chunks = reader.poll(_WAIT_SECONDS)
        silent = reader.silent
        for partition in sorted(silent - told):
            complain(f"partition {partition}: nobody answers for it; its records come when somebody does")
        told = silent
        for chunk in chunks:
            if isinstance(chunk, Skipped):
                _complain_of_skipped(chunk)
                continue
            partition, kind = chunk.partition, chunk.timestamp_type
            left = None if most is None else most - count - len(shown)
            if plain is not None:
                shown += [plain(topic, partition, record, kind) for record in chunk.records[:left]]
                continue
            for record in chunk.records:
                if left == 0:
                    break
                found = sieve.sift(partition, record)
                if found is not None:
                    shown.append(show(partition, found, kind))
                    left = None if left is None else left - 1
        if shown:
            write(b"".join(shown))
            count += len(shown)
        if count == most:
            break
    return count


def _copy_latest(reader: Reader, arguments: argparse.Namespace, sieve: Sieve, show: Show) -> int:
    """Read to the end, and write the last record of each key; how many there were.

    ``FatalError`` once there is more than memory is meant for: a part of the keys would not be what was asked for.
    """
    from kbroker.client.reader import Skipped
    from kbroker.client.records_io.latest_per_key import LatestPerKey

    write = _writer(arguments)
    latest = LatestPerKey(max_bytes=_LATEST_BYTES)
    while not reader.finished:
        for chunk in reader.poll(_WAIT_SECONDS):
            if isinstance(chunk, Skipped):
                _complain_of_skipped(chunk)
                continue
            for record in chunk.records:
                latest.add(chunk.partition, record, chunk.timestamp_type)
        if latest.is_full:
            raise FatalError(
                f"--latest-per-key gives up at {len(latest):,} keys, with {_LATEST_BYTES >> 20} MiB of records:"
                " read one partition (-p), or from later on (--from)"
            )
    count, most = 0, arguments.count
    for partition, record, kind in latest.kept():
        if count == most:
            break
        found = sieve.sift(partition, record)
        if found is not None:
            write(show(partition, found, kind))
            count += 1
    if latest.without_key and not arguments.quiet:
        complain(f"{latest.without_key:,} records without a key are left out")
    return count


def _complain_of_skipped(skipped: Skipped) -> None:
    complain(f"partition {skipped.partition}: offset {skipped.wanted} is gone, going on at {skipped.start}")
