"""The records of a topic that a command reads: from where to where, of which partitions, decoded and chosen how."""

from __future__ import annotations

import argparse
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.client.errors import known
from kbroker.client.log_places import END, START, AtOffset, AtTime, BeforeEnd, Place, find, offsets_at_time
from kbroker.errors import FatalError
from kbroker.tools.cli.common import complain, not_negative, readable_errors
from kbroker.tools.cli.parser import UsageError, add_repeated
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.client.reader import Reader
    from kbroker.client.records_io.sieve import Sieve
    from kbroker.client.schemas.decoder import RecordDecoder
    from kbroker.client.schemas.registry import SchemaRegistry

FILTER_HELP = """\
An EXPRESSION of --filter is a word (in the key or the value), or comparisons: `key = order-17`, `value ~ "not found"`,
`$.total >= 9.5` (a member of a value that is JSON, or is decoded to it), `header.trace = abc`, `partition`, `offset`,
`timestamp` (ms), `size`, `value is null`, `$.total is number`, `key matches ^a.*z$` (RE2), joined by `and`, `or`, `not`
and parentheses; docs/console.md has all."""


def add_span_arguments(where: argparse._ArgumentGroup, *, begins: str = "earliest", to: bool = True) -> None:
    """``--from``, ``--until`` (and ``--to`` for it), ``--partition``, ``--uncommitted``."""
    where.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        help="earliest, latest, an offset, -N (the last N of each partition), or a time: 2026-01-31T12:00:00Z, -1h,"
        f" @SECONDS (default: {begins})",
    )
    where.add_argument(
        "--until",
        *(("--to",) if to else ()),
        dest="until",
        metavar="WHERE",
        help="stop before this offset or time (default: the end now)",
    )
    add_repeated(where, "-p", "--partition", metavar="N", type=not_negative, help="only this one")
    where.add_argument("--uncommitted", action="store_true", help="records of open and aborted transactions, too")


def add_filter_argument(where: argparse._ArgumentGroup) -> None:
    """``--filter``."""
    where.add_argument("--filter", metavar="EXPRESSION", help="only records that fit, such as '$.total > 9.5'")


def add_registry_argument(where: argparse._ArgumentGroup) -> None:
    """``--registry``."""
    where.add_argument(
        "--registry",
        metavar="URL",
        help="decode keys and values by the schemas of this registry (Avro, Protobuf, JSON Schema); user, token and"
        " TLS are properties of --command-config: basic.auth.user.info, bearer.auth.token, schema.registry.ssl.*",
    )


def sieve_of(arguments: argparse.Namespace) -> Sieve:
    """The filter that the options name; ``UsageError`` if it is none. The decoder is :func:`decoder_of`'s."""
    from kbroker.client.records_io.sieve import Sieve

    fits = None
    if arguments.filter is not None:
        from kbroker.client.records_io.record_filter import BadFilter, parse_filter

        try:
            fits = parse_filter(arguments.filter)
        except BadFilter as error:
            raise UsageError(f"--filter: {error}") from None
    return Sieve(fits)


def decoder_of(arguments: argparse.Namespace) -> RecordDecoder | None:
    """The decoder by the registry of ``--registry`` or ``--command-config``, if one of them names it.

    Ask within :func:`kbroker.tools.cli.common.cluster`: it knows all that chooses the properties.
    """
    registry = registry_of(arguments, arguments.registry, arguments.timeout)
    if registry is None:
        return None
    from kbroker.client.schemas.decoder import RecordDecoder

    return RecordDecoder(registry)


def registry_of(arguments: argparse.Namespace, urls: str | None, patience: float) -> SchemaRegistry | None:
    """The registry of ``urls`` or of ``--command-config``, if one of them names it; ask as for :func:`decoder_of`."""
    if urls is None and arguments.command_config is None:
        return None
    from kbroker.client.schemas.settings import registry_settings

    properties = None
    if arguments.command_config is not None:
        from kbroker.client.properties import ClientProperties

        with readable_errors():
            properties = ClientProperties.read(arguments.command_config)
    settings = registry_settings(urls, properties)
    if settings is None:
        return None
    if settings.is_exposed:
        complain("the registry's password or token goes over the network as it is: an address with https hides it")
    from kbroker.client.schemas.registry import SchemaRegistry

    return SchemaRegistry(settings, patience=patience)


def check_registry_is_used(arguments: argparse.Namespace) -> None:
    """``UsageError`` for a registry without a filter, in a command that does not show what it decodes."""
    if arguments.registry is not None and arguments.filter is None:
        raise UsageError("--registry decodes records for --filter: give one, too")


def complain_of_undecoded(sieve: Sieve) -> None:
    """A line about keys and values that could not be decoded, if there were any."""
    if sieve.undecoded:
        complain(f"{sieve.undecoded:,} keys or values could not be decoded; the first: {sieve.first_problem}")


# --- Where to begin and to end --------------------------------------------------------------------------------------


def parse_place(text: str, now_ms: int) -> Place:
    """Parse the value of ``--from`` or ``--until``. Raises ``ValueError`` with the reason in words."""
    from kbroker.client.records_io.times import parse_moment

    if text in ("earliest", "beginning", "start"):
        return START
    if text in ("latest", "end"):
        return END
    if re.fullmatch(r"\d{1,19}", text, re.ASCII):
        return AtOffset(int(text))
    if re.fullmatch(r"-\d{1,19}", text, re.ASCII):
        return BeforeEnd(int(text[1:]))
    return AtTime(parse_moment(text, now_ms))


@dataclass(frozen=True, slots=True)
class Span:
    """Where to begin, and where to end; without an end, at the end that there is, or never with ``follow``."""

    first: Place
    last: Place | None
    follow: bool = False


def span_of(arguments: argparse.Namespace, *, follow: bool = False) -> Span:
    """The span that the options name; ``UsageError`` says what is wrong with it."""
    now_ms = time.time_ns() // 1_000_000
    if follow and arguments.until is not None:
        raise UsageError("--until and --follow exclude each other")
    try:
        first = parse_place(arguments.start or ("latest" if follow else "earliest"), now_ms)
    except ValueError as error:
        raise UsageError(f"--from: {error}") from None
    try:
        last = parse_place(arguments.until, now_ms) if arguments.until is not None else None
    except ValueError as error:
        raise UsageError(f"--until: {error}") from None
    return Span(first, last, follow)


@dataclass(frozen=True, slots=True)
class Limits:
    """Partition -> offset: where to begin, and before which to end (not in it: never)."""

    starts: dict[int, int]
    ends: dict[int, int]

    @property
    def offsets(self) -> int:
        """Offsets between them; there are at most as many records."""
        return sum(max(end - self.starts[partition], 0) for partition, end in self.ends.items())


def find_limits(client: Client, topic: str, arguments: argparse.Namespace, span: Span) -> Limits:
    """The offsets that a span means now, in the partitions that ``--partition`` names."""
    partitions = client.partitions_of(topic)
    chosen = sorted(set(arguments.partition or partitions))
    for partition in chosen:
        if partition not in partitions:
            raise FatalError(f"topic {topic} has no partition {partition}, only 0 to {len(partitions) - 1}")
    return _limits(client, [TopicPartition(topic, partition) for partition in chosen], arguments, span)


def _limits(client: Client, names: list[TopicPartition], arguments: argparse.Namespace, span: Span) -> Limits:
    from kbroker.client.topics import list_ranges

    first, last = span.first, span.last
    ranges = known(list_ranges(client, names, read_committed=not arguments.uncommitted))
    starts_at, ends_at = offsets_at_time(client, names, first), offsets_at_time(client, names, last)
    positions: dict[int, int] = {}
    ends: dict[int, int] = {}
    for name in names:
        start, end = ranges[name]
        positions[name.partition] = find(first, start, end, starts_at.get(name)).offset
        if not arguments.quiet and isinstance(first, AtOffset) and not start <= first.offset <= end and first.offset:
            complain(f"partition {name.partition} has no offset {first.offset}, only {start} to {end}")
        if not span.follow:
            # A time may be found behind an open transaction, which nobody reads past.
            ends[name.partition] = end if last is None else min(find(last, start, end, ends_at.get(name)).offset, end)
    return Limits(positions, ends)


def reader_of(client: Client, topic: str, limits: Limits, arguments: argparse.Namespace) -> Reader:
    """A reader of the records between the limits."""
    from kbroker.client.reader import DEFAULT_PARTITION_BYTES, Reader

    return Reader(
        client,
        topic,
        limits.starts,
        ends=limits.ends,
        read_committed=not arguments.uncommitted,
        partition_bytes=getattr(arguments, "fetch_bytes", DEFAULT_PARTITION_BYTES),
    )
