"""Records into a topic, with ``--writes``: of another topic once more, and out of a file. Each step is short."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kbroker.client import Client, ClientError
from kbroker.client.producer import Producer
from kbroker.client.producer import Refused as RefusedRecord
from kbroker.client.reader import Reader
from kbroker.console.api.topics import find_topic
from kbroker.console.api.uploads import ParquetStep, upload_of
from kbroker.console.call import Call, Refused
from kbroker.console.record_range import RecordRange, find_limits, parse_positions, range_of, show_positions
from kbroker.errors import FatalError
from kbroker.records_io.csv_records import read_csv_records
from kbroker.records_io.items import BadLine, Item
from kbroker.records_io.json_types import Json
from kbroker.records_io.line_records import InputOptions, now_ms, read_records
from kbroker.records_io.place import Course, Place, ids_of, load_place, made_anew, place_of, remaining
from kbroker.records_io.replay import Replay
from kbroker.records_io.sieve import Sieve

STEP_SECONDS: Final = 3.0
"""A replay of a page goes on in steps: between two of them it can be given up."""

_SHOWN: Final = 10

_BATCH_BYTES: Final = 64 << 10
"""Small: what the place of a step that fails has to name is what its producer holds."""

_LONGEST_PLACE: Final = 1 << 20
_MOST_RECORDS: Final = 1_000_000
"""Records that a place may name: they take memory that its few bytes do not."""


class _Stopped(Exception):
    """A step that has failed in the middle: what it has done, with the place from which another goes on."""

    def __init__(self, error: Exception, answer: dict[str, Json]) -> None:
        super().__init__(str(error))
        self.answer: Json = {**answer, "error": str(error)}


async def replay_records(call: Call) -> Json:
    """Send the records that fit to another topic, for a while; ``goon`` and ``ends`` bring the next step.

    A step that fails in the middle has an ``error``; with its ``place``, too, another one goes on where it stopped.
    """
    wanted = range_of(call)
    to, keeps = call.text("to"), call.flag("keep_partitions")
    ends = parse_positions(call.text("ends", ""))
    topic = wanted.look.topic
    if wanted.look.masking:
        raise Refused(403, f"parts of {topic} are masked here: in another topic they might be seen")
    copying = _Copying(f"replay {topic} to {to}", to, _place_of(call))
    # No log has what somebody looks for.
    details: Json = {"from": topic, "filtered": wanted.look.fits is not None, "goon": call.text("goon", "")}
    try:
        return await call.write(
            "replay", to, details, lambda client: _replay(client, wanted, copying, keeps_partitions=keeps, stop=ends)
        )
    except _Stopped as stopped:
        return stopped.answer


def _place_of(call: Call) -> Place | None:
    """The place of a step that failed."""
    if not call.has("place"):
        return None
    try:
        return load_place(call.text("place"), most=_MOST_RECORDS)
    except ValueError as error:
        raise Refused(400, f"place: {error}") from None


class _Copying:
    """A step of a copy: its producer, what was refused, and the place where it stops if it fails."""

    def __init__(self, task: str, to: str, begun: Place | None) -> None:
        if begun is not None and begun.task != task:
            raise Refused(400, f"the place is of another copy: {begun.task}")
        self.course = Course(begun)
        self.problems: list[str] = []
        self.to = to
        self._task = task
        self._begun = begun
        self._topic_ids = ""

    def producer(self, client: Client, told: Callable[[RefusedRecord], str], *sources: str) -> Producer:
        """A producer; ``told`` says what was refused, ``sources`` are the topics that are read."""
        names = (self.to, *sources)
        self._topic_ids = ids_of(client, names)
        if self._begun is not None and (name := made_anew(names, self._begun.topic_ids, self._topic_ids)):
            raise Refused(409, f"topic {name} was made anew: begin from the beginning")
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

    def told(self, producer: Producer) -> dict[str, Json]:
        """The number of records that were stored, and what was not."""
        shown: list[Json] = list(self.problems[:_SHOWN])
        stored = sum(each.count for each in producer.stored.values())
        return {"stored": stored, "not_stored": len(self.problems), "problems": shown}

    def stopped(self, producer: Producer, error: Exception, answer: dict[str, Json]) -> _Stopped:
        """The outcome of a step that failed, to be raised."""
        place = self.course.place(producer, self._task, self._topic_ids, {})
        producer.close()
        text = place.dump() if len(place.again()) <= _MOST_RECORDS else None
        return _Stopped(error, {**answer, "place": text if text and len(text) <= _LONGEST_PLACE else None})


def _replay(
    client: Client, wanted: RecordRange, copying: _Copying, *, keeps_partitions: bool, stop: dict[int, int]
) -> Json:
    look = wanted.look
    limits = find_limits(client, wanted, find_topic(client, look.topic))
    if gone := [partition for partition in (*stop, *copying.course.left) if partition not in limits.ends]:
        raise Refused(409, f"partition {gone[0]} of {look.topic} has no leader now: try again, it goes on from here")
    if not stop:
        limits.check_whole(look.topic, "nothing is sent: try again, or choose other partitions")
    begins = (limits.starts if wanted.begin == "latest" else limits.begins) | wanted.positions
    ends = {partition: min(stop.get(partition, end), end) for partition, end in limits.ends.items()}
    begins = {partition: begins[partition] for partition in ends}
    partitions = client.partitions_of(copying.to)
    if keeps_partitions and (missing := [partition for partition in begins if partition not in partitions]):
        raise Refused(409, f"topic {copying.to} has no partition {missing[0]}: let the keys choose")
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
        keep_partitions=keeps_partitions,
        course=copying.course,
        again=again,
        caught_up=lambda: copying.caught_up(producer),
    )
    until = time.monotonic() + STEP_SECONDS

    def answer(goon: Mapping[int, int], *, finished: bool) -> dict[str, Json]:
        return {
            "looked_at": copy.looked_at,
            **copying.told(producer),
            "finished": finished,
            "goon": show_positions(dict(goon)),
            "ends": show_positions(ends),
        }

    try:
        for _ in copy.run():
            copy.stopped = not copy.is_catching_up and time.monotonic() >= until
        producer.flush()
    except (ClientError, FatalError) as error:  # of a broker, or of the schema registry
        raise copying.stopped(producer, error, answer(copying.course.next, finished=False)) from None
    finally:
        reading.close()
    return answer(reader.positions, finished=reader.finished)


def _told(refused: RefusedRecord) -> str:
    partition, offset = place_of(refused.source)
    return f"partition {partition} offset {offset}: {refused.error}"


async def import_records(call: Call) -> Json:
    """Store the records of a piece of a file: lines of JSON, rows of CSV after names, rows of an ``upload``.

    Of an upload, ``begin`` rows are stored already; the answer's ``next`` are those for the next step.
    ``shift`` is what line numbers of the piece, but for that of the names, lack to those of the file. A piece that
    fails in the middle has an ``error``; with its ``place``, too, it goes on where it stopped.
    """
    name, kind = call.text("topic"), call.choice("format", ("csv", "jsonl", "parquet"), "jsonl")
    is_parquet = kind == "parquet"
    upload = upload_of(call) if is_parquet else None
    text, keeps, shift = "" if is_parquet else call.text("text"), call.flag("keep_partitions"), call.number("shift", 0)
    lines = text.encode("utf-8", "surrogatepass").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    copying = _Copying(f"import {kind} into {name}", name, _place_of(call))
    details: Json = {"lines": len(lines), "format": kind}

    def place(line: int) -> str:
        if is_parquet:
            return f"row {line}"
        return f"line {line + shift if kind == 'jsonl' or line > 1 else line}"

    def store(client: Client) -> Json:
        if upload is None:
            return store_items(client, None)
        with upload.lock:
            return store_items(client, ParquetStep(upload, call.number("begin", 0), copying.course.begun_at.get(0, 0)))

    def store_items(client: Client, rows: ParquetStep | None) -> Json:
        numbers = client.partitions_of(name)
        producer = copying.producer(client, lambda refused: f"{place(refused.source)}: {refused.error}")
        items: Iterable[Item | BadLine] = rows or ()
        if rows is None:
            as_lines = InputOptions(keep_partitions=True)
            items = read_csv_records(lines, now_ms) if kind == "csv" else read_records(lines, as_lines)
        try:
            for item in remaining(items, copying.course, lambda: copying.caught_up(producer)):
                if isinstance(item, BadLine):
                    copying.problems.append(f"{place(item.line)}: {item.problem}")
                elif keeps and item.partition is not None and item.partition not in numbers:
                    copying.problems.append(f"{place(item.line)}: topic {name} has no partition {item.partition}")
                else:
                    producer.send(item.record, item.line, item.partition if keeps else None)
            producer.flush()
        except (ClientError, FatalError) as error:  # of a broker, or of a file that is damaged
            raise copying.stopped(producer, error, copying.told(producer)) from None
        return copying.told(producer) | (rows.told() if rows is not None else {})

    try:
        told = await call.write("import", name, details, store)
    except _Stopped as stopped:
        return stopped.answer
    if isinstance(told, dict) and told.get("finished"):
        call.console.uploads.end(call.session.id, call.text("upload"))
    return told
