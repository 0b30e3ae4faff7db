"""Records: a page of them, one in full, the live tail; produced with ``--writes``."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Mapping
from typing import Final

import trio
from starlette.responses import Response

from kbroker.client import Client, ClientError, ResponseError
from kbroker.client.producer import Producer, RecordRefused
from kbroker.client.records_io.json_types import Json
from kbroker.client.topics import LATEST, TopicDescription, list_offsets
from kbroker.tools.console.api.schemas import encode_by_schema
from kbroker.tools.console.api.topics import find_topic
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.masking import Masking
from kbroker.tools.console.record_range import (
    Limits,
    RecordRange,
    find_limits,
    find_partitions,
    parse_positions,
    range_of,
    show_positions,
)
from kbroker.tools.console.record_view import shown_record
from kbroker.tools.console.scan import Budget, Found, Page, RecordView, forward
from kbroker.tools.console.scan_back import backward, latest_per_key
from kbroker.tools.console.streaming import Give, LimiterSlot, Streamed
from kbroker.tools.console.tail import Step, Tail
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record


def spark_code(
    bootstrap: str, topic: str, begins: Mapping[int, int], ends: Mapping[int, int], *, partitions: int, secured: bool
) -> str:
    """PySpark for a batch of offsets ``begins`` to ``ends`` of a topic, and for a stream from ``begins`` on.

    Numbers are those that the page shows now. ``partitions``: so many the topic has; where some are not shown, the
    others are named, as Spark wants offsets for all that it reads. ``secured`` adds a line that says what has to be
    filled in.
    """
    chosen = f'"subscribe", {json.dumps(topic)}'
    if len(begins) < partitions:
        chosen = f'"assign", {_quoted(json.dumps({topic: sorted(begins)}))}'
    starting = json.dumps({topic: {str(partition): offset for partition, offset in sorted(begins.items())}})
    ending = json.dumps({topic: {str(partition): offset for partition, offset in sorted(ends.items())}})
    security = (
        "    # .option('kafka.security.protocol', ...), .option('kafka.sasl.jaas.config', ...): your own login\n"
        if secured
        else ""
    )
    columns = '"CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset", "timestamp"'
    return f"""\
# pip install pyspark==4.2.0
from pyspark.sql import SparkSession

spark = SparkSession.builder.config(
    "spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
).getOrCreate()

# The records that the page shows
records = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", {json.dumps(bootstrap)})
{security}    .option({chosen})
    .option("startingOffsets", {_quoted(starting)})
    .option("endingOffsets", {_quoted(ending)})
    .load()
    .selectExpr({columns})
)
records.show(truncate=False)

# The same topic as a stream, from the same place on
stream = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", {json.dumps(bootstrap)})
{security}    .option({chosen})
    .option("startingOffsets", {_quoted(starting)})
    .load()
    .selectExpr({columns})
)
stream.writeStream.format("console").option("truncate", "false").start().awaitTermination()
"""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


MAX_LIMIT: Final = 1000

_ALIVE_SECONDS: Final = 2.0


async def list_records(call: Call) -> Json:
    """A page of records. ``goon`` and ``seen`` of the answer, given with the same parameters, bring the next."""
    wanted = range_of(call)
    limit = call.number("limit", 100, lowest=1, highest=MAX_LIMIT)
    per_key = call.flag("latest_per_key")
    return await call.ask(lambda client: _list(client, call, wanted, limit, per_key=per_key))


def _list(client: Client, call: Call, wanted: RecordRange, limit: int, *, per_key: bool) -> Json:
    topic = find_topic(client, wanted.look.topic)
    # Asked for before the last stable offset: what is beyond that later is held up, and has not just been written.
    all_ends = _ends(client, wanted, topic)
    limits = find_limits(client, wanted, topic)
    held: list[Json] = [
        {"partition": partition, "stable": stable, "end": all_ends[partition]}
        for partition, stable in limits.ends.items()
        if stable < all_ends.get(partition, 0)
    ]
    budget = Budget()
    newest_first = wanted.begin == "latest" or per_key
    began = time.monotonic()
    word = ""
    if per_key:
        page, word = _latest_per_key(client, call, wanted, limits, budget)
    elif newest_first:
        page = backward(client, wanted.look, limits.starts, limits.begins, limit, budget)
    else:
        page = forward(client, wanted.look, limits.begins, limits.ends, limit, budget)
    shown_begins, shown_ends = _shown_range(page, wanted, limits, newest_first=newest_first)
    # A partition without a leader keeps its place.
    goon = {each: wanted.positions[each] for each in limits.leaderless if each in wanted.positions} | page.positions
    settings = call.console.settings
    return {
        "rows": [shown_record(found, wanted.look.masking) for found in page.records],
        "newest_first": newest_first,
        "finished": page.finished and len(goon) == len(page.positions),
        "goon": show_positions(goon),
        "seen": word,
        "scanned": page.scanned,
        "milliseconds": round((time.monotonic() - began) * 1000),
        "notes": [*limits.notes, *page.notes],
        "held": held,
        "ends": show_positions(limits.ends),
        "masked": bool(wanted.look.masking),
        "spark": spark_code(
            settings.bootstrap,
            topic.name,
            shown_begins,
            shown_ends,
            partitions=len(topic.partitions),
            secured=settings.properties is not None,
        ),
    }


def _latest_per_key(
    client: Client, call: Call, wanted: RecordRange, limits: Limits, budget: Budget
) -> tuple[Page, str]:
    """The latest records by key before those of the looks before, and the word by which the next look goes on."""
    first = frozenset[bytes]()
    seen = call.console.seen_keys.find(call.session.id, call.text("seen", "")) if wanted.positions else first
    if seen is None:
        raise RequestRefused(410, "it is not known any more which keys are shown already: read from the beginning")
    before = _tops(wanted, limits)
    page, known = latest_per_key(client, wanted.look, limits.firsts, before, MAX_LIMIT, budget, seen)
    return page, call.console.seen_keys.keep(call.session.id, known)


def _ends(client: Client, wanted: RecordRange, topic: TopicDescription) -> dict[int, int]:
    """Partition -> its end, uncommitted records included, where a first look is to have committed ones to the end."""
    if not wanted.look.read_committed or wanted.positions or wanted.until is not None:
        return {}
    asked = {
        TopicPartition(topic.name, each.partition): LATEST
        for each in topic.partitions
        if each.leader is not None and (wanted.partitions is None or each.partition in wanted.partitions)
    }
    found = list_offsets(client, asked)
    return {
        partition.partition: each.offset for partition, each in found.items() if not isinstance(each, ResponseError)
    }


def _tops(wanted: RecordRange, limits: Limits) -> dict[int, int]:
    """The offsets from which a look goes back."""
    return {each: min(wanted.positions.get(each, end), end) for each, end in limits.ends.items()}


def _shown_range(
    page: Page, wanted: RecordRange, limits: Limits, *, newest_first: bool
) -> tuple[dict[int, int], dict[int, int]]:
    """The offsets that a page covers, for a program that reads the same."""
    if newest_first:
        tops = _tops(wanted, limits)
        return {each: min(page.positions.get(each, top), top) for each, top in tops.items()}, tops
    return limits.begins, {each: min(page.positions.get(each, end), end) for each, end in limits.ends.items()}


async def describe_record(call: Call) -> Json:
    """Show a record in full, found by its topic, partition and offset."""
    name, partition, offset = call.text("topic"), call.number("partition"), call.number("offset")
    look = _look_at_any(call, name)
    found = await call.ask(lambda client: _find(client, look, partition, offset))
    return shown_record(found, look.masking, whole=True)


def _look_at_any(call: Call, name: str) -> RecordView:
    masking = call.console.settings.masking(name)
    return RecordView(name, None, masking, read_committed=False, decoder=call.console.decoder)


def _find(client: Client, look: RecordView, partition: int, offset: int) -> Found:
    """The record at an offset; ``RequestRefused`` if there is none."""
    find_topic(client, look.topic)
    page = forward(client, look, {partition: offset}, {partition: offset + 1}, 1, Budget(seconds=5))
    if not page.records:
        raise RequestRefused(404, f"there is no record at offset {offset} of partition {partition} any more")
    return page.records[0]


async def download_value(call: Call) -> Response:
    """A file with the value of a record, as it may be shown: decoded, and masked."""
    name, partition, offset = call.text("topic"), call.number("partition"), call.number("offset")
    look = _look_at_any(call, name)
    found = await call.ask(lambda client: _find(client, look, partition, offset))
    file = f"{name}-{partition}-{offset}"
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return Response(found.record.value or b"", media_type="application/octet-stream", headers=headers)


# --- The live tail --------------------------------------------------------------------------------------------------


async def tail_records(call: Call) -> Response:
    """Server-sent events: ``records`` as they come. An event's id is where to go on, so nothing is lost at a break."""
    wanted = range_of(call)
    resumed = call.request.headers.get("last-event-id", "") or call.text("goon", "")
    positions = parse_positions(resumed)
    place = LimiterSlot(call.console.tails, "too many live tails are open: close one")
    client = call.view.cluster.make_client()

    def begin() -> Tail:
        topic = find_topic(client, wanted.look.topic)
        if positions:
            # Nobody needs to be asked where the tail was, whoever leads now.
            chosen = find_partitions(wanted, topic)
            begins = {each: positions[each] for each in chosen if each in positions}
            return Tail(client, wanted.look, begins, [each for each in chosen if each not in positions])
        limits = find_limits(client, wanted, topic)
        return Tail(client, wanted.look, limits.ends, limits.leaderless)

    try:
        tail = await trio.to_thread.run_sync(begin, limiter=call.console.limiter)
    except BaseException:
        place.leave()
        client.close()
        raise

    def close() -> None:
        place.leave()
        tail.close()
        client.close()

    return Streamed(lambda give: _follow(call, tail, wanted.look.masking, give), "text/event-stream", close=close)


async def _follow(call: Call, tail: Tail, masking: Masking, give: Give) -> None:
    told_at = 0.0
    thread = trio.CapacityLimiter(1)

    def step() -> tuple[bool, bytes]:
        found = tail.step()
        return bool(found.records or found.not_shown or found.notes), _event(found, masking)

    await give(b"retry: 1000\n\n" + _event(tail.begun, masking))
    # Who has signed out sees no more, in whatever window the tail is.
    with call.console.sessions.while_alive(call.session):
        while True:
            try:
                has_news, event = await trio.to_thread.run_sync(step, limiter=thread)
            except ClientError as error:
                # The browser connects again after this, from the last id on.
                await give(f"event: trouble\ndata: {json.dumps({'error': str(error)})}\n\n".encode())
                return
            if has_news or time.monotonic() - told_at >= _ALIVE_SECONDS:
                told_at = time.monotonic()
                await give(event)


def _event(step: Step, masking: Masking) -> bytes:
    document = {
        "rows": [shown_record(found, masking) for found in step.records],
        "not_shown": [
            {"partition": partition, "first": each.first, "last": each.last, "count": each.count}
            for partition, each in sorted(step.not_shown.items())
        ],
        "notes": step.notes,
        "seen": step.seen,
    }
    return f"event: records\nid: {show_positions(step.positions)}\ndata: {json.dumps(document)}\n\n".encode()


# --- Produce --------------------------------------------------------------------------------------------------------


async def produce_record(call: Call) -> Json:
    """Produce one record; ``key`` and ``value`` are text, or base64 where ``*_base64`` is given, or null.

    With ``*_subject`` and ``*_version`` the text is JSON, which is encoded by that schema.
    What is ``kept`` (key, value, headers) is that of the record at ``of_partition`` and ``of_offset``, byte by byte.
    """
    name = call.text("topic")
    partition = call.number("partition", -1, lowest=-1, highest=1_000_000)
    headers = tuple((header, content.encode()) for header, content in call.texts("headers").items())
    key, value = await _bytes(call, "key"), await _bytes(call, "value")
    record = Record(0, time.time_ns() // 1_000_000, key, value, headers)
    kept = set(call.text("kept", "").split(",")) & {"key", "value", "headers"}
    before = (call.number("of_partition"), call.number("of_offset")) if kept else None
    if kept and call.console.settings.masking(name):
        raise RequestRefused(403, f"parts of {name} are masked here: what is not seen is not sent again")
    refused: list[RecordRefused] = []

    def produce(client: Client) -> tuple[int, int]:
        numbers = client.partitions_of(name)
        if partition >= 0 and partition not in numbers:
            raise RequestRefused(404, f"topic {name} has no partition {partition}")
        sent = record
        if before is not None:
            original = _find(client, RecordView(name, read_committed=False), *before).record
            sent = record._replace(**{part: getattr(original, part) for part in kept})
        producer = Producer(client, name, numbers, on_refused=refused.append)
        producer.send(sent, 0, partition if partition >= 0 else None)
        producer.flush()
        if refused:
            raise RequestRefused(409, f"the record is refused: {refused[0].error}")
        [(chosen, stored)] = producer.stored.items()
        return chosen, stored.last_offset

    details: Json = {
        "partition": partition,
        "bytes": len(record.key or b"") + len(record.value or b""),
        "again": None
        if before is None
        else {"partition": before[0], "offset": before[1], "kept": ",".join(sorted(kept))},
    }
    chosen, offset = await call.write("produce", name, details, produce)
    return {"done": f"stored at offset {offset} of partition {chosen}", "partition": chosen, "offset": offset}


async def _bytes(call: Call, name: str) -> bytes | None:
    if call.has(f"{name}_base64"):
        try:
            return base64.b64decode(call.text(f"{name}_base64"), validate=True)
        except (binascii.Error, ValueError):
            raise RequestRefused(400, f"{name} is not base64") from None
    if call.flag(f"{name}_null"):
        return None
    if call.has(f"{name}_subject"):
        return await encode_by_schema(call, name)
    return call.text(name, "").encode()
