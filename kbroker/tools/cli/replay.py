"""``kbroker replay``: records of one topic once more into another, all of them or those that fit."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from kbroker.client import Client, ClientError
from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_cluster_arguments, checked, cluster, complain
from kbroker.tools.cli.record_spans import (
    FILTER_HELP,
    Limits,
    Span,
    add_filter_argument,
    add_registry_argument,
    add_span_arguments,
    check_registry_is_used,
    complain_of_undecoded,
    decoder_of,
    find_limits,
    reader_of,
    sieve_of,
    span_of,
)
from kbroker.tools.cli.resuming import RESUME_HELP, Resuming, add_resume_argument, resuming_of
from kbroker.tools.cli.sending import (
    Interruption,
    Problems,
    add_sending_arguments,
    check_topic_name,
    finish,
    interruptible,
    producer_of,
    progress,
    target_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.client.producer import Producer
    from kbroker.client.records_io.replay import Replay
    from kbroker.client.records_io.sieve import Sieve

DETAILS = f"""\
Keys, values, headers and timestamps stay as they are; a record's partition is that of its key, or with
--keep-partitions the one it has. What is read ends where the topic ends when the command starts, so a topic may be
replayed into itself. Records of aborted transactions are left out, unless --uncommitted is given.

--registry decodes keys and values for --filter; the records that are sent are the original ones.

{RESUME_HELP}

{FILTER_HELP}"""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``replay``."""
    parser.add_argument("source", metavar="FROM_TOPIC", help="the topic to read")
    parser.add_argument("topic", metavar="TO_TOPIC", help="where to; made by the broker if it does that on its own")
    where = parser.add_argument_group("what to send")
    add_span_arguments(where)
    add_filter_argument(where)
    add_registry_argument(where)
    sending = parser.add_argument_group("sending")
    sending.add_argument(
        "--rate", type=checked(_rate, "a number of records a second"), metavar="N", help="at most N records a second"
    )
    sending.add_argument("--keep-partitions", action="store_true", help="to the partitions that the records have")
    add_resume_argument(sending)
    add_sending_arguments(sending)
    add_cluster_arguments(parser)


def _rate(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError
    return value


class _ReplayProblems(Problems):
    def place(self, source: int) -> dict[str, int]:
        """Partition and offset in the topic that is read."""
        from kbroker.client.records_io.copy_position import place_of

        partition, offset = place_of(source)
        return {"partition": partition, "offset": offset}


def run(arguments: argparse.Namespace) -> int:
    """Send the records; 1 if something could not be stored."""
    check_topic_name(arguments.topic)
    with resuming_of(arguments, f"replay {arguments.source} to {arguments.topic}") as resuming:
        return _replay(arguments, resuming)


def _replay(arguments: argparse.Namespace, resuming: Resuming) -> int:
    span = span_of(arguments)
    sieve = sieve_of(arguments)
    check_registry_is_used(arguments)
    problems = _ReplayProblems()
    begin = time.monotonic()
    with cluster(arguments) as client, client.another() as reading:
        sieve.decoder = decoder_of(arguments)
        # The end is found before the first record is sent: a topic that is replayed into itself grows meanwhile.
        limits = _limits(client, arguments, span, resuming)
        partitions = target_partitions(client, arguments.topic)
        resuming.check_topics(client, arguments.source)
        if arguments.keep_partitions:
            _check_partitions(arguments, limits.starts, partitions)
        producer = producer_of(
            arguments,
            client,
            arguments.topic,
            partitions,
            lambda refused: problems.add(refused.source, refused.error),
            resuming.course.rest,
        )
        replay = _replay_of(arguments, reading, limits, producer, sieve, problems, resuming)
        with progress(limits.offsets, not arguments.quiet, in_bytes=False) as advance, interruptible(replay) as stop:
            try:
                failure = _send(replay, producer, advance, stop)
            except KeyboardInterrupt:
                complain(resuming.stopped(producer, limits.ends)[1])
                raise
        for gone in replay.skipped:
            complain(f"partition {gone.partition}: offsets {gone.wanted} to {gone.start - 1} are gone")
        complain_of_undecoded(sieve)
        seconds = time.monotonic() - begin
        kept = resuming.end(producer, limits.ends, is_whole=replay.is_whole and failure is None)
        return finish(
            arguments, producer, problems, seconds, failure, stop.came > 0, looked_at=replay.looked_at, kept=kept
        )


def _replay_of(
    arguments: argparse.Namespace,
    reading: Client,
    limits: Limits,
    producer: Producer,
    sieve: Sieve,
    problems: Problems,
    resuming: Resuming,
) -> Replay:
    from kbroker.client.records_io.replay import Replay

    again = resuming.left()

    def caught_up() -> None:
        problems.count += resuming.course.caught_up(producer, complain)

    return Replay(
        reader_of(reading, arguments.source, limits, arguments),
        producer,
        sieve,
        keep_partitions=arguments.keep_partitions,
        per_second=arguments.rate,
        course=resuming.course,
        again=None if again is None else reader_of(reading, arguments.source, again, arguments),
        caught_up=caught_up,
    )


def _send(
    replay: Replay, producer: Producer, advance: Callable[[int, int], None], stop: Interruption
) -> Exception | None:
    """Send all records, or those up to the first interruption; the error that ended it. A second one is raised."""
    failure: Exception | None = None
    try:
        try:
            for _ in replay.run():
                advance(replay.looked_at, replay.sent)
        except KeyboardInterrupt:
            if stop.came > 1:
                raise
        except FatalError as error:  # of the schema registry: what has come of the topic is sent
            failure = error
        producer.flush()
    except ClientError as error:
        failure = failure or error
    return failure


def _limits(client: Client, arguments: argparse.Namespace, span: Span, resuming: Resuming) -> Limits:
    """Where to begin and to end: as the options say, or as an earlier replay has left it."""
    begun = resuming.begun
    if begun is not None:
        if not begun.next.keys() == begun.ends.keys() >= resuming.course.left.keys():
            raise FatalError(f"{arguments.resume}: it is no place at which a replay has stopped")
        return Limits(dict(begun.next), dict(begun.ends))
    limits = find_limits(client, arguments.source, arguments, span)
    for partition, offset in limits.starts.items():
        resuming.course.passed(partition, offset)
    return limits


def _check_partitions(arguments: argparse.Namespace, source: dict[int, int], target: list[int]) -> None:
    missing = [partition for partition in source if partition not in target]
    if missing:
        raise FatalError(
            f"topic {arguments.topic} has no partition {missing[0]}, which {arguments.source} has: leave out"
            " --keep-partitions, or add partitions with: kbroker topic alter"
        )
