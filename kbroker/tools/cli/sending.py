"""Records into a topic, as ``produce``, ``import`` and ``replay`` do it: options, interruption, progress, summary."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.errors import ErrorCode, FatalError
from kbroker.tools.cli.common import cluster, complain, positive
from kbroker.tools.cli.output import console, print_json
from kbroker.tools.cli.output import size as sized
from kbroker.tools.cli.parser import UsageError

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.client.pending_batches import Remainder
    from kbroker.client.producer import Producer, RecordRefused
    from kbroker.client.records_io.items import BadLine, Item
    from kbroker.tools.cli.resuming import Kept, Resuming

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
_SHOWN = 10
"""Problems that are shown one by one."""
_AUTO_CREATION_SECONDS = 5.0


def add_sending_arguments(sending: argparse._ArgumentGroup) -> None:
    """``--compression``, ``--acks``, ``--no-idempotence``, ``--batch-bytes``, ``--quiet``."""
    sending.add_argument("-z", "--compression", choices=_CODECS, default="none", help="of the batches (default none)")
    sending.add_argument("--acks", choices=("0", "1", "all", "-1"), default="all", help="(default all)")
    sending.add_argument("--no-idempotence", action="store_true", help="without a producer id: retries may duplicate")
    sending.add_argument("--batch-bytes", type=positive, metavar="BYTES", help="size of a batch (default 524288)")
    sending.add_argument("-q", "--quiet", action="store_true", help="no progress bar, no summary")


def check_topic_name(name: str) -> None:
    """``UsageError`` if no topic can be named so."""
    from kbroker.client.topics import is_valid_name

    if not is_valid_name(name):
        raise UsageError(f"{name!r} is not a name of a topic: letters, digits, `.`, `_`, `-`, at most 249")


def target_partitions(client: Client, topic: str) -> list[int]:
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


def producer_of(
    arguments: argparse.Namespace,
    client: Client,
    topic: str,
    partitions: Sequence[int],
    on_refused: Callable[[RecordRefused], None],
    resume: Remainder | None = None,
) -> Producer:
    """A producer by the options of :func:`add_sending_arguments`."""
    from kbroker.client.producer import DEFAULT_BATCH_BYTES, Producer
    from kbroker.wire.compression import CompressionType

    return Producer(
        client,
        topic,
        partitions,
        acks=_ACKS[arguments.acks],
        compression=CompressionType.from_name(arguments.compression),
        idempotent=not arguments.no_idempotence,
        batch_bytes=arguments.batch_bytes or DEFAULT_BATCH_BYTES,
        on_refused=on_refused,
        resume=resume,
    )


class Stoppable(Protocol):
    """A source of records that may be told to end."""

    @property
    def waiting(self) -> bool:
        """Whether it may be interrupted now without harm."""

    stopped: bool
    """Set to have no more of it."""


class Input(Stoppable, Protocol):
    """Records out of a file."""

    @property
    def position(self) -> int:
        """The position that is read, in the unit of its size."""

    def __iter__(self) -> Iterator[Item | BadLine]: ...


class Problems:
    """Records that were not stored: the first few one by one, and the count of all."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[tuple[int, str]] = []

    def add(self, source: int, problem: str) -> None:
        """Note a record by the number that it was sent with."""
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append((source, problem))

    def place(self, source: int) -> dict[str, int]:
        """Where a record comes from."""
        return {"line": source}


def store(
    arguments: argparse.Namespace,
    make_input: Callable[[Callable[[], None]], Input],
    *,
    size: int | None,
    shows_progress: bool,
    in_bytes: bool = True,
    partition: int | None = None,
    resuming: Resuming | None = None,
) -> int:
    """Send all records of an input to the topic of the options; 1 if something could not be stored.

    ``make_input`` gets what sends the records that wait. ``size`` is in bytes, or with ``in_bytes=False`` in records.
    ``partition`` is for those that name none. ``resuming`` keeps the place where it stops.
    """
    problems = Problems()
    begin = time.monotonic()
    failure: Exception | None = None
    topic = arguments.topic
    with cluster(arguments) as client:
        from kbroker.client import ClientError

        partitions = target_partitions(client, topic)
        if partition is not None and partition not in partitions:
            raise FatalError(f"topic {topic} has no partition {partition}, only 0 to {len(partitions) - 1}")
        rest = None
        if resuming is not None:
            resuming.check_topics(client)
            rest = resuming.course.rest
        producer = producer_of(
            arguments, client, topic, partitions, lambda refused: problems.add(refused.source, refused.error), rest
        )
        source = make_input(producer.flush)
        shown = shows_progress and not arguments.quiet
        is_whole = False
        with progress(size, shown, in_bytes=in_bytes) as advance, interruptible(source) as interruption:
            sending = _Sending(producer, topic, partitions, partition, problems, resuming)
            try:
                try:
                    is_whole = sending.send_all(source, interruption, advance)
                except KeyboardInterrupt:
                    if interruption.came > 1:
                        raise
                except FatalError as error:  # of the input: what has come of it is sent
                    failure = error
                producer.flush()
            except ClientError as error:
                failure = failure or error
            except KeyboardInterrupt:
                if resuming is not None:
                    complain(resuming.stopped(producer, {})[1])
                raise
        seconds = time.monotonic() - begin
        kept = None
        if resuming is not None:
            kept = resuming.end(producer, {}, is_whole=is_whole and failure is None)
        return finish(arguments, producer, problems, seconds, failure, interruption.came > 0, kept=kept)


class _Sending:
    """Gives the records of an input to a producer, and notes what is none."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partitions: Sequence[int],
        everything_to: int | None,
        problems: Problems,
        resuming: Resuming | None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._everything_to = everything_to
        self._problems = problems
        self._resuming = resuming

    def send_all(self, source: Input, interruption: Interruption, advance: Callable[[int, int], None]) -> bool:
        """Whether the input has come to its end."""
        resuming = self._resuming
        items: Iterable[Item | BadLine] = source
        if resuming is not None and resuming.begun is not None:
            from kbroker.client.records_io.copy_position import remaining

            def caught_up() -> None:
                self._problems.count += resuming.course.caught_up(self._producer, complain)

            items = remaining(source, resuming.course, caught_up)
        send = self._producer.send
        count = line = 0
        try:
            for item in items:
                if len(item) == 2:
                    line = item.line
                    self._problems.add(line, item.problem)
                else:
                    record, line, partition = item
                    if partition is None:
                        partition = self._everything_to
                    if partition is not None and partition not in self._partitions:
                        self._problems.add(line, f"topic {self._topic} has no partition {partition}")
                    else:
                        send(record, line, partition)
                        count += 1
                        if not count & 0x3FF:
                            advance(source.position, count)
                if interruption.came:
                    return False
        finally:
            if resuming is not None:
                resuming.course.passed(0, line + 1)
        return not interruption.came


class Interruption:
    """Counts the times that the user has asked to stop."""

    def __init__(self) -> None:
        self.came = 0


@contextmanager
def interruptible(source: Stoppable) -> Iterator[Interruption]:
    """Ctrl-C or SIGTERM ends the reading; what has been read is sent, its answer waited for. A second one ends that."""
    interruption = Interruption()

    def on_interrupt(number: int, frame: object) -> None:
        interruption.came += 1
        source.stopped = True
        if source.waiting or interruption.came > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, on_interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress(size: int | None, shown: bool, *, in_bytes: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to call with the place in ``size`` and the records so far; draws a bar if somebody sees it."""
    if not shown or not sys.stderr.isatty():
        yield lambda position, count: None
        return
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: list[Any] = [TextColumn("{task.fields[records]:,} records")]
    if in_bytes:
        columns.append(DownloadColumn(binary_units=True))
    elif size is not None:
        columns.append(MofNCompleteColumn())
    if size is not None:
        columns[1:1] = [BarColumn()]
        columns.append(TimeRemainingColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as drawn:
        task = drawn.add_task("", total=size, records=0)
        yield lambda position, count: drawn.update(task, completed=position, records=count)


def finish(
    arguments: argparse.Namespace,
    producer: Producer,
    problems: Problems,
    seconds: float,
    failure: Exception | None,
    interrupted: bool,
    *,
    looked_at: int | None = None,
    kept: Kept | None = None,
) -> int:
    """Say what has been done; the exit code. ``looked_at``: records of which only some were to be sent.

    ``kept``: where the place of a copy that has stopped is, and how to go on from it.
    """
    stored = sum(entry.count for entry in producer.stored.values())
    size = sum(entry.bytes for entry in producer.stored.values())
    rest = producer.remainder()
    unknown = sum(len(each.sources) for each in rest.unanswered.values())
    if arguments.json:
        _print_json(arguments.topic, producer, problems, seconds, stored, size, unknown, failure, looked_at, kept)
    elif not arguments.quiet:
        pace = max(seconds, 1e-6)
        of_all = "" if looked_at is None else f" of {looked_at:,}"
        plural = "" if (stored if looked_at is None else looked_at) == 1 else "s"
        print(
            f"{stored:,}{of_all} record{plural} to {arguments.topic} in {seconds:.2f} s"
            f" ({stored / pace:,.0f}/s, {sized(int(size / pace))}/s)"
        )
    for source, problem in problems.first:
        place = " ".join(f"{name} {number}" for name, number in problems.place(source).items())
        complain(f"{place}: {problem}")
    if problems.count > len(problems.first):
        complain(f"... and {problems.count - len(problems.first):,} more")
    if problems.count:
        complain(f"{problems.count:,} record{'' if problems.count == 1 else 's'} not stored")
    if failure is not None:
        complain(f"{failure}{_told(unknown, len(rest.unsent))}")
    if kept is not None:
        complain(kept[1])
    if interrupted:
        return 130
    return 1 if problems.count or failure is not None else 0


def _told(unknown: int, unsent: int) -> str:
    """The end of a line about a failure: the records that were read, and are not stored, or perhaps not."""
    text = f"; {unknown:,} records may or may not have been stored" if unknown else ""
    return text + (f"; {unsent:,} that were read are not stored" if unsent else "")


def _print_json(
    topic: str,
    producer: Producer,
    problems: Problems,
    seconds: float,
    stored: int,
    size: int,
    unknown: int,
    failure: Exception | None,
    looked_at: int | None,
    kept: Kept | None,
) -> None:
    print_json(
        {
            "topic": topic,
            **({} if looked_at is None else {"looked_at": looked_at}),
            "stored": stored,
            "not_stored": problems.count,
            "unknown": unknown,
            "bytes": size,
            "seconds": round(seconds, 3),
            "error": None if failure is None else str(failure),
            **({} if kept is None else {"resume": kept[0] and str(kept[0])}),
            "problems": [{**problems.place(source), "problem": problem} for source, problem in problems.first],
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


@contextmanager
def opened_input(name: str) -> Iterator[tuple[int, int | None]]:
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
