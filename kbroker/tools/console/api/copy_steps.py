"""Steps of copies into a topic: records of another topic once more, and those of a piece of a file.

A step blocks a thread, and is short. One that fails in the middle says so in its outcome, with the place from which
another goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from kbroker.client import Client, ClientError
from kbroker.client.producer import Producer, RecordRefused
from kbroker.client.reader import Reader
from kbroker.client.records_io.copy_position import CopyPosition, CopyProgress, ids_of, made_anew, place_of, remaining
from kbroker.client.records_io.csv_records import read_csv_records
from kbroker.client.records_io.items import BadLine, Item
from kbroker.client.records_io.line_records import InputOptions, now_ms, read_records
from kbroker.client.records_io.replay import Replay
from kbroker.client.records_io.sieve import Sieve
from kbroker.errors import FatalError
from kbroker.tools.console.api.topics import find_topic
from kbroker.tools.console.api.uploads import ParquetStep, refusals
from kbroker.tools.console.call import RequestRefused
from kbroker.tools.console.copies import Control, Outcome
from kbroker.tools.console.record_range import RecordRange, find_limits
from kbroker.tools.console.scan import gone
from kbroker.tools.console.uploads import Upload
from kbroker.wire.errors import EncodeError, WireError

STEP_SECONDS: Final = 3.0
"""A replay goes on in steps: after each of them it is known how far it is."""

_BATCH_BYTES: Final = 64 << 10
"""Small: what the place of a step that fails has to name is what its producer holds."""

_KNOWN: Final = (ClientError, FatalError, WireError, EncodeError)
"""Errors after which the place of a step is known."""


class _Copying:
    """A step of a copy: its producer, what was refused, and the place where it stops if it fails."""

    def __init__(self, to: str, begun: CopyPosition | None) -> None:
        self.course = CopyProgress(begun)
        self.problems: list[str] = []
        self.to = to
        self._begun = begun
        self._topic_ids = ""

    def producer(self, client: Client, told: Callable[[RecordRefused], str], *sources: str) -> Producer:
        """A producer; ``told`` says what was refused, ``sources`` are the topics that are read."""
        names = (self.to, *sources)
        self._topic_ids = ids_of(client, names)
        if self._begun is not None and (name := made_anew(names, self._begun.topic_ids, self._topic_ids)):
            raise RequestRefused(409, f"topic {name} was made anew: begin from the beginning")
        return Producer(
            client,
            self.to,
            client.partitions_of(self.to),
            batch_bytes=_BATCH_BYTES,
            on_refused=lambda refused: self.problems.append(told(refused)),
            resume=self.course.rest,
        )

    def caught_up(self, producer: Producer) -> None:
        """Note that all that an earlier step has left was read."""
        self.course.caught_up(producer, self.problems.append)

    def outcome(self, producer: Producer, error: Exception | None = None) -> Outcome:
        """The number of records that were stored, and what was not; after an error the place, if there is one."""
        outcome = Outcome(sum(each.count for each in producer.stored.values()), problems=self.problems)
        if error is not None:
            outcome.error = str(error)
            outcome.place = self.course.place(producer, "", self._topic_ids, {})
            outcome.may_double = outcome.place.may_be_doubled
            producer.close()
        return outcome


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """The records of a range are sent to another topic, with ``keeps_partitions`` to partitions of the same numbers."""

    wanted: RecordRange
    to: str
    keeps_partitions: bool

    def step(
        self, client: Client, goon: dict[int, int], ends: dict[int, int], place: CopyPosition | None, control: Control
    ) -> Outcome:
        """Send records for a while, from ``goon`` on where it is not empty. ``control`` may end the step early.

        ``RequestRefused`` or ``ClientError`` before anything is done.
        """
        wanted = self.wanted
        return _replay(client, replace(wanted, positions=goon) if goon else wanted, self, ends, place, control)


def _replay(
    client: Client,
    wanted: RecordRange,
    order: ReplayOrder,
    stop: dict[int, int],
    place: CopyPosition | None,
    control: Control,
) -> Outcome:
    copying = _Copying(order.to, place)
    look = wanted.look
    limits = find_limits(client, wanted, find_topic(client, look.topic))
    if lost := [partition for partition in (*stop, *copying.course.left) if partition not in limits.ends]:
        raise RequestRefused(
            409, f"partition {lost[0]} of {look.topic} has no leader now: try again, it goes on from here"
        )
    if not stop:
        limits.check_whole(look.topic, "nothing is sent: try again, or choose other partitions")
    begins = (limits.starts if wanted.begin == "latest" else limits.begins) | wanted.positions
    ends = {partition: min(stop.get(partition, end), end) for partition, end in limits.ends.items()}
    begins = {partition: begins[partition] for partition in ends}
    partitions = client.partitions_of(copying.to)
    if order.keeps_partitions and (missing := [partition for partition in begins if partition not in partitions]):
        raise RequestRefused(409, f"topic {copying.to} has no partition {missing[0]}: let the keys choose")
    for partition, offset in begins.items():
        copying.course.passed(partition, offset)
    producer = copying.producer(client, _told, look.topic)
    committed = look.read_committed
    reading = client.another()
    reader = Reader(reading, look.topic, begins, ends=ends, read_committed=committed)
    left = copying.course.left
    again = None
    if left:
        again = Reader(reading, look.topic, left, ends={each: begins[each] for each in left}, read_committed=committed)
    copy = Replay(
        reader,
        producer,
        Sieve(look.fits, look.decoder),
        keep_partitions=order.keeps_partitions,
        course=copying.course,
        again=again,
        caught_up=lambda: copying.caught_up(producer),
    )
    control.begun()
    until = time.monotonic() + STEP_SECONDS
    error: Exception | None = None
    try:
        for _ in copy.run():
            copy.stopped = not copy.is_catching_up and (time.monotonic() >= until or control.is_to_end())
        producer.flush()
    except _KNOWN as caught:  # of a broker, or of the schema registry
        error = caught
    finally:
        reading.close()
    goon = dict(reader.positions if error is None else copying.course.next)
    outcome = copying.outcome(producer, error)
    outcome.looked_at, outcome.goon, outcome.ends = copy.looked_at, goon, ends
    outcome.notes += [gone(skipped) for skipped in copy.skipped]
    outcome.finished = error is None and reader.finished
    return outcome


def _told(refused: RecordRefused) -> str:
    partition, offset = place_of(refused.source)
    return f"partition {partition} offset {offset}: {refused.error}"


@dataclass(frozen=True, slots=True)
class ImportOrder:
    """Records of a file go into a topic; ``kind``: csv, jsonl or parquet."""

    to: str
    kind: str
    keeps_partitions: bool

    def step(self, client: Client, text: str, shift: int, place: CopyPosition | None) -> Outcome:
        """Store the records of a piece of the file: lines of JSON, or rows of CSV after a row of names.

        ``shift`` is what line numbers of the piece, but for that of the names, lack to those of the file.
        ``RequestRefused`` or ``ClientError`` before anything is done.
        """
        lines = text.encode("utf-8", "surrogatepass").split(b"\n")
        if lines[-1] == b"":
            lines.pop()

        def number(line: int) -> str:
            return f"line {line + shift if self.kind == 'jsonl' or line > 1 else line}"

        as_lines = InputOptions(keep_partitions=True)
        items = read_csv_records(lines, now_ms) if self.kind == "csv" else read_records(lines, as_lines)
        return self._store(client, items, _Copying(self.to, place), number)

    def step_of_rows(self, client: Client, upload: Upload, begin: int, place: CopyPosition | None) -> Outcome:
        """Store rows of a whole file for a while, those after the first ``begin``.

        ``RequestRefused`` or ``ClientError`` before anything is done.
        """
        copying = _Copying(self.to, place)
        with refusals(), upload.use() as file:
            rows = ParquetStep(upload, file, begin, copying.course.begun_at.get(0, 0))
            outcome = self._store(client, rows, copying, lambda line: f"row {line}")
            outcome.rows = rows.done
            if outcome.error:
                return outcome
            outcome.finished = rows.is_whole
            if rows.missing:
                outcome.notes.append(f"the file has {rows.missing:,} rows fewer than it promises: it is damaged")
            if not rows.is_whole:
                rows.keep()
        return outcome

    def _store(
        self, client: Client, items: Iterable[Item | BadLine], copying: _Copying, number: Callable[[int], str]
    ) -> Outcome:
        numbers = client.partitions_of(self.to)
        producer = copying.producer(client, lambda refused: f"{number(refused.source)}: {refused.error}")
        error: Exception | None = None
        try:
            for item in remaining(items, copying.course, lambda: copying.caught_up(producer)):
                if isinstance(item, BadLine):
                    copying.problems.append(f"{number(item.line)}: {item.problem}")
                elif self.keeps_partitions and item.partition is not None and item.partition not in numbers:
                    copying.problems.append(f"{number(item.line)}: topic {self.to} has no partition {item.partition}")
                else:
                    producer.send(item.record, item.line, item.partition if self.keeps_partitions else None)
            producer.flush()
        except _KNOWN as caught:  # of a broker, or of a file that is damaged
            error = caught
        return copying.outcome(producer, error)
