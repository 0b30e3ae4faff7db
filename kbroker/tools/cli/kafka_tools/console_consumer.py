"""``kafka-console-consumer``: the records of a topic on standard output, read without a group."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kbroker.errors import FatalError
from kbroker.tools.cli.kafka_tools.options import OF_ALL, Kind, Options, UsageError
from kbroker.tools.cli.output import write

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.client.reader import Reader
    from kbroker.wire.batch_header import TimestampType
    from kbroker.wire.record_batch import Record

SEPARATORS: Final = {
    "key.separator": b"\t",
    "line.separator": b"\n",
    "headers.separator": b",",
    "null.literal": b"null",
}
PARTS: Final = ("timestamp", "partition", "offset", "headers", "key", "value")
"""The parts of a record that ``print.NAME`` turns on, in their order."""

FORMATTER_PROPERTIES: Final = (*SEPARATORS, *(f"print.{part}" for part in PARTS))

OPTIONS: Final = {
    **OF_ALL,
    **dict.fromkeys(("topic", "partition", "offset", "max-messages", "timeout-ms", "isolation-level"), Kind.VALUE),
    **dict.fromkeys(("property", "formatter-property"), Kind.REPEATED),
    "consumer.config": Kind.VALUE,
    "from-beginning": Kind.FLAG,
}

_POLL_SECONDS: Final = 1.0

Show = Callable[[int, "Record", "TimestampType"], bytes]
"""(partition, record, timestamp type) -> what is written."""


def run(options: Options) -> int:
    """Write records until there are ``--max-messages``, or none comes for ``--timeout-ms``; then tell how many."""
    topic = options.required("topic")
    isolation = options.value("isolation-level") or "read_uncommitted"
    if isolation not in ("read_uncommitted", "read_committed"):
        raise UsageError(f"--isolation-level {isolation}: expected read_committed or read_uncommitted")
    most = options.number("max-messages", least=0)
    patience = options.number("timeout-ms", least=0)
    show = formatter(options)
    count = 0
    try:
        with options.cluster() as client:
            from kbroker.client.reader import Reader

            reader = Reader(
                client, topic, _positions(client, topic, options), read_committed=isolation == "read_committed"
            )
            for written in _copied(reader, show, most, None if patience is None else patience / 1000):
                count += written
    finally:
        print(f"Processed a total of {count} messages", file=sys.stderr)
    return 0


def _positions(client: Client, topic: str, options: Options) -> dict[int, int]:
    """Partition -> where to begin: at the end, unless the options say otherwise."""
    from kbroker.client.errors import known
    from kbroker.client.topics import EARLIEST, LATEST, list_offsets
    from kbroker.types import TopicPartition

    partitions = client.partitions_of(topic, allow_auto_topic_creation=True)
    chosen = options.number("partition", least=0)
    offset = options.value("offset")
    if chosen is None and offset is not None:
        raise UsageError("--offset goes with --partition")
    if offset is not None and "from-beginning" in options:
        raise UsageError("--offset and --from-beginning exclude each other")
    if chosen is not None:
        if chosen not in partitions:
            raise FatalError(f"topic {topic} has no partition {chosen}")
        partitions = [chosen]
    named = (offset or "").lower()
    if offset is not None and named not in ("earliest", "latest"):
        return {partitions[0]: options.number("offset", least=0) or 0}
    moment = EARLIEST if named == "earliest" or "from-beginning" in options else LATEST
    asked = {TopicPartition(topic, partition): moment for partition in partitions}
    return {partition: listed.offset for (_, partition), listed in known(list_offsets(client, asked)).items()}


def _copied(reader: Reader, show: Show, left: int | None, patience: float | None) -> Iterator[int]:
    """Write the records as they come; how many were written each time."""
    from kbroker.client.reader import Chunk

    last = time.monotonic()
    while left is None or left > 0:
        wait = _POLL_SECONDS if patience is None else min(_POLL_SECONDS, last + patience - time.monotonic())
        if wait <= 0:
            return
        shown: list[bytes] = []
        for chunk in reader.poll(wait):
            if isinstance(chunk, Chunk):
                room = None if left is None else left - len(shown)
                shown += [show(chunk.partition, record, chunk.timestamp_type) for record in chunk.records[:room]]
        if shown:
            write(b"".join(shown))
            left = None if left is None else left - len(shown)
            last = time.monotonic()
            yield len(shown)


def formatter(options: Options) -> Show:
    """The form in which a record is shown, by ``--property`` or ``--formatter-property``."""
    given = options.properties("property", FORMATTER_PROPERTIES)
    given |= options.properties("formatter-property", FORMATTER_PROPERTIES)
    key_separator, line_separator, headers_separator, null = (
        given[name].encode() if name in given else default for name, default in SEPARATORS.items()
    )
    wanted = [part for part in PARTS if _is_true(given.get(f"print.{part}", "true" if part == "value" else "false"))]

    def text(part: str, partition: int, record: Record, kind: TimestampType) -> bytes:
        if part == "timestamp":
            return f"{'LogAppendTime' if kind else 'CreateTime'}:{record.timestamp}".encode()
        if part == "partition":
            return f"Partition:{partition}".encode()
        if part == "offset":
            return f"Offset:{record.offset}".encode()
        if part == "headers":
            pairs = [_as_java(name) + b":" + _or(value, null) for name, value in record.headers]
            return headers_separator.join(pairs) or b"NO_HEADERS"
        return _or(record.key if part == "key" else record.value, null)

    def show(partition: int, record: Record, kind: TimestampType) -> bytes:
        return key_separator.join(text(part, partition, record, kind) for part in wanted) + line_separator

    return show if wanted else lambda partition, record, kind: b""


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def _as_java(name: str) -> bytes:
    """The name of a header with replacement characters for what is not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


def _or(value: bytes | None, null: bytes) -> bytes:
    return null if value is None else value
