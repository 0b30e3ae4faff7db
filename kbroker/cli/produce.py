"""``kbroker produce``: lines, CSV or JSON from a file or standard input to a topic."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kbroker.cli.common import add_cluster_arguments, cluster, complain, name_value, not_negative, positive
from kbroker.cli.parser import UsageError
from kbroker.errors import ErrorCode, FatalError

if TYPE_CHECKING:
    from kbroker.cli.inputs import BadLine, InputOptions, Item, LineSource
    from kbroker.client import Client
    from kbroker.client.producer import Producer

DETAILS = """\
A record's partition is the one that every Kafka client would choose by its key; records without a key go to one
partition until a batch is full, then to the next. What the broker refuses, and lines that are no record, are reported
with their line number; everything else is stored, and the exit code is 1. With acks=all a retry stores nothing twice.

`--input records` takes objects with `key`, `value` (or `key_base64`, `value_base64`), `headers` (a list of
[name, value], or an object), `timestamp` in ms and `partition`; all may be missing."""

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
_SHOWN = 10
"""So many problems are shown one by one."""
_AUTO_CREATION_SECONDS = 5.0


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``produce``."""
    parser.add_argument("topic", metavar="TOPIC", help="made by the broker if it does that on its own")
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="what to send (default: standard input)")
    parser.add_argument(
        "-i",
        "--input",
        choices=("lines", "csv", "json", "records"),
        help="lines: a value a line. csv: a JSON object a row, named by the first row. json: a JSON document a line."
        " records: what consume --json writes. (default: by the name of FILE, else lines)",
    )
    keys = parser.add_argument_group("records")
    keys.add_argument("-k", "--key", metavar="KEY", help="the key of every record")
    keys.add_argument("--key-separator", metavar="TEXT", help="lines: what is before it is the key (\\t is a tab)")
    keys.add_argument("--key-column", metavar="NAME", help="csv, json: the column or field that is the key, too")
    keys.add_argument(
        "--timestamp-column",
        metavar="NAME",
        help="csv, json: the column or field that is the timestamp, in ms or as 2026-01-31T12:00:00Z",
    )
    keys.add_argument(
        "-H", "--header", type=name_value, action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    keys.add_argument("--null-value", metavar="TEXT", help="lines: a value that stands for none (a tombstone)")
    keys.add_argument("--delimiter", metavar="CHAR", help="csv: what is between fields (default , or a tab for .tsv)")
    keys.add_argument("--typed", action="store_true", help="csv: numbers, true, false and empty fields as JSON's own")
    keys.add_argument("--keep-partitions", action="store_true", help="records: to the partitions they name")
    keys.add_argument("-p", "--partition", type=not_negative, metavar="N", help="everything to one partition")
    sending = parser.add_argument_group("sending")
    sending.add_argument("-z", "--compression", choices=_CODECS, default="none", help="of the batches (default none)")
    sending.add_argument("--acks", choices=("0", "1", "all", "-1"), default="all", help="(default all)")
    sending.add_argument("--no-idempotence", action="store_true", help="without a producer id: retries may duplicate")
    sending.add_argument("--batch-bytes", type=positive, metavar="BYTES", help="size of a batch (default 524288)")
    sending.add_argument(
        "--linger", type=not_negative, default=100, metavar="MS", help="send what there is after such a pause (100)"
    )
    sending.add_argument("-q", "--quiet", action="store_true", help="no progress bar, no summary")
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send everything; 1 if something could not be stored."""
    from kbroker.cli.inputs import LineSource, read_items
    from kbroker.client.producer import DEFAULT_BATCH_BYTES, Producer, Refused
    from kbroker.client.topics import is_valid_name
    from kbroker.wire.compression import CompressionType

    kind, options = input_options(arguments)
    if not is_valid_name(arguments.topic):
        raise UsageError(f"{arguments.topic!r} is not a name of a topic: letters, digits, `.`, `_`, `-`, at most 249")
    acks = _ACKS[arguments.acks]
    problems = _Problems()
    begin = time.monotonic()
    failure: Exception | None = None
    with _opened(arguments.file) as (descriptor, size), cluster(arguments) as client:
        from kbroker.client import ClientError

        def on_refused(refused: Refused) -> None:
            problems.add(refused.source, f"{refused.error}")

        partitions = _partitions_of(client, arguments.topic)
        if arguments.partition is not None and arguments.partition not in partitions:
            raise FatalError(
                f"topic {arguments.topic} has no partition {arguments.partition}, only 0 to {len(partitions) - 1}"
            )
        producer = Producer(
            client,
            arguments.topic,
            partitions,
            acks=acks,
            compression=CompressionType.from_name(arguments.compression),
            idempotent=not arguments.no_idempotence,
            batch_bytes=arguments.batch_bytes or DEFAULT_BATCH_BYTES,
            on_refused=on_refused,
        )
        source = LineSource(descriptor, producer.flush, arguments.linger / 1000)
        with _progress(arguments, descriptor, size) as advance, _interruptible(source) as interruption:
            try:
                try:
                    items = read_items(kind, source, options)
                    _send_all(producer, items, partitions, arguments, problems, interruption, source, advance)
                except KeyboardInterrupt:
                    if interruption.came > 1:
                        raise
                producer.flush()
            except ClientError as error:
                failure = error
        seconds = time.monotonic() - begin
        return _finish(arguments, producer, problems, seconds, failure, interruption.came > 0)


def _send_all(
    producer: Producer,
    items: Iterable[Item | BadLine],
    partitions: Sequence[int],
    arguments: argparse.Namespace,
    problems: _Problems,
    interruption: _Interruption,
    source: LineSource,
    advance: Callable[[int, int], None],
) -> None:
    """Give the records to the producer, and note what is none."""
    everything_to: int | None = arguments.partition
    send = producer.send
    count = 0
    for item in items:
        if interruption.came:
            return
        if len(item) == 2:
            problems.add(item.line, item.problem)
            continue
        record, line, partition = item
        if partition is None:
            partition = everything_to
        elif partition not in partitions:
            problems.add(line, f"topic {arguments.topic} has no partition {partition}")
            continue
        send(record, line, partition)
        count += 1
        if not count & 0x3FF:
            advance(source.bytes_read, count)


def input_options(arguments: argparse.Namespace) -> tuple[str, InputOptions]:
    """The format of the input and how it becomes records; ``FatalError`` for options that do not go together."""
    from kbroker.cli.inputs import InputOptions

    suffix = os.path.splitext(arguments.file)[1].lower()
    by_name = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
    kind = arguments.input or by_name.get(suffix, "lines")
    for option, kinds in (
        ("key_separator", ("lines",)),
        ("null_value", ("lines",)),
        ("key_column", ("csv", "json")),
        ("timestamp_column", ("csv", "json")),
        ("delimiter", ("csv",)),
        ("typed", ("csv",)),
        ("keep_partitions", ("records",)),
    ):
        if getattr(arguments, option) and kind not in kinds:
            raise UsageError(f"--{option.replace('_', '-')} goes with --input {' or '.join(kinds)}, not {kind}")
    delimiter = _escapes(arguments.delimiter or ("\t" if suffix == ".tsv" else ","))
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise UsageError(f"--delimiter {arguments.delimiter!r}: expected one character")
    if arguments.key is not None and (arguments.key_separator or arguments.key_column):
        raise UsageError("--key goes without --key-separator and --key-column")
    return kind, InputOptions(
        key=None if arguments.key is None else _encoded(arguments.key),
        key_separator=_encoded(_escapes(arguments.key_separator)) if arguments.key_separator else None,
        key_column=arguments.key_column,
        timestamp_column=arguments.timestamp_column,
        headers=tuple((name, _encoded(value)) for name, value in arguments.header),
        null_value=None if arguments.null_value is None else _encoded(arguments.null_value),
        delimiter=delimiter,
        typed=arguments.typed,
        keep_partitions=arguments.keep_partitions,
    )


def _escapes(text: str) -> str:
    return text.replace("\\t", "\t").replace("\\0", "\0")


def _encoded(text: str) -> bytes:
    """An argument as the bytes that the shell gave."""
    return os.fsencode(text)


@contextmanager
def _opened(name: str) -> Iterator[tuple[int, int | None]]:
    """Descriptor and size (None if it is not a file) of what is to be read."""
    if name == "-":
        try:
            os.fstat(0)
        except OSError:
            raise FatalError("standard input is closed") from None
        yield 0, None
        return
    try:
        descriptor = os.open(name, os.O_RDONLY)
    except OSError as error:
        raise FatalError(f"cannot read {name}: {error.strerror}") from None
    try:
        size = os.fstat(descriptor).st_size
        if os.path.isdir(name):
            raise FatalError(f"cannot read {name}: it is a directory")
        yield descriptor, size or None
    finally:
        os.close(descriptor)


def _partitions_of(client: Client, topic: str) -> list[int]:
    """The topic's partitions; a broker that makes topics on its own makes it now."""
    from kbroker.client import ResponseError

    patience = client.timeout
    client.timeout = min(patience, _AUTO_CREATION_SECONDS)
    try:
        return client.partitions_of(topic, allow_auto_topic_creation=True)
    except ResponseError as error:
        if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            allow = f"kbroker acl add --allow User:NAME --producer --topic {topic}"
            raise FatalError(f"{error}; one who may can allow it: {allow}") from None
        raise FatalError(f"{error}; create it with: kbroker topic create {topic}") from None
    finally:
        client.timeout = patience


class _Interruption:
    """How often the user has asked to stop."""

    def __init__(self) -> None:
        self.came = 0


@contextmanager
def _interruptible(source: LineSource) -> Iterator[_Interruption]:
    """Ctrl-C ends the reading; what has been read is sent and its answer waited for. A second one ends that as well."""
    interruption = _Interruption()

    def on_interrupt(number: int, frame: object) -> None:
        interruption.came += 1
        source.stopped = True
        if source.waiting or interruption.came > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)


class _Problems:
    """Records that were not stored: the first few one by one, and the count of all."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[tuple[int, str]] = []

    def add(self, line: int, problem: str) -> None:
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append((line, problem))


@contextmanager
def _progress(arguments: argparse.Namespace, descriptor: int, size: int | None) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to call with the bytes read and the records sent so far; draws a bar if somebody can see it."""
    if arguments.quiet or not sys.stderr.isatty() or os.isatty(descriptor):
        yield lambda position, count: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from kbroker.cli.output import console

    columns: list[Any] = [TextColumn("{task.fields[records]:,} records"), DownloadColumn(binary_units=True)]
    if size is not None:
        columns[1:1] = [BarColumn()]
        columns.append(TimeRemainingColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as progress:
        task = progress.add_task("", total=size, records=0)
        yield lambda position, count: progress.update(task, completed=position, records=count)


def _finish(
    arguments: argparse.Namespace,
    producer: Producer,
    problems: _Problems,
    seconds: float,
    failure: Exception | None,
    interrupted: bool,
) -> int:
    """Say what has been done; the exit code."""
    stored = sum(entry.count for entry in producer.stored.values())
    size = sum(entry.bytes for entry in producer.stored.values())
    unknown = producer.unfinished if failure is not None else 0
    if arguments.json:
        _print_json(arguments, producer, problems, seconds, stored, size, unknown, failure)
    elif not arguments.quiet:
        from kbroker.cli.output import size as sized

        pace = max(seconds, 1e-6)
        print(
            f"{stored:,} record{'' if stored == 1 else 's'} to {arguments.topic} in {seconds:.2f} s"
            f" ({stored / pace:,.0f}/s, {sized(int(size / pace))}/s)"
        )
    for line, problem in problems.first:
        complain(f"line {line}: {problem}")
    if problems.count > len(problems.first):
        complain(f"... and {problems.count - len(problems.first):,} more")
    if problems.count:
        complain(f"{problems.count:,} record{'' if problems.count == 1 else 's'} not stored")
    if failure is not None:
        complain(f"{failure}; {unknown:,} records may or may not have been stored")
    if interrupted:
        return 130
    return 1 if problems.count or failure is not None else 0


def _print_json(
    arguments: argparse.Namespace,
    producer: Producer,
    problems: _Problems,
    seconds: float,
    stored: int,
    size: int,
    unknown: int,
    failure: Exception | None,
) -> None:
    from kbroker.cli.output import print_json

    print_json(
        {
            "topic": arguments.topic,
            "stored": stored,
            "not_stored": problems.count,
            "unknown": unknown,
            "bytes": size,
            "seconds": round(seconds, 3),
            "error": None if failure is None else str(failure),
            "problems": [{"line": line, "problem": problem} for line, problem in problems.first],
            "partitions": [
                {
                    "partition": partition,
                    "stored": entry.count,
                    "first_offset": entry.first_offset if entry.first_offset >= 0 else None,
                    "last_offset": entry.last_offset if entry.last_offset >= 0 else None,
                }
                for partition, entry in sorted(producer.stored.items())
            ],
        }
    )
