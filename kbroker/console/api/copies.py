"""Records into a topic, with ``--writes``: of another topic once more, and out of a file. Each step is short."""

from __future__ import annotations

import time
from typing import Final

from kbroker.cli.inputs import InputOptions, now_ms, read_records
from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.producer import Refused as RefusedRecord
from kbroker.client.reader import Reader
from kbroker.console.api.topics import find_topic
from kbroker.console.call import Call, Refused
from kbroker.console.record_range import RecordRange, find_limits, parse_positions, range_of, show_positions
from kbroker.records_io.csv_records import read_csv_records
from kbroker.records_io.items import BadLine
from kbroker.records_io.json_types import Json
from kbroker.records_io.replay import Replay, place_of
from kbroker.records_io.sieve import Sieve

STEP_SECONDS: Final = 3.0
"""A replay of a page goes on in steps: between two of them it can be given up."""

_SHOWN: Final = 10


async def replay_records(call: Call) -> Json:
    """Send the records that fit to another topic, for a while; ``goon`` and ``ends`` bring the next step."""
    wanted = range_of(call)
    to, keeps = call.text("to"), call.flag("keep_partitions")
    ends = parse_positions(call.text("ends", ""))
    topic = wanted.look.topic
    if wanted.look.masking:
        raise Refused(403, f"parts of {topic} are masked here: in another topic they might be seen")
    details: Json = {"from": topic, "filter": call.text("filter", ""), "goon": call.text("goon", "")}
    return await call.write("replay", to, details, lambda client: _replay(client, wanted, to, keeps, ends))


def _replay(client: Client, wanted: RecordRange, to: str, keeps: bool, stop: dict[int, int]) -> Json:
    look = wanted.look
    limits = find_limits(client, wanted, find_topic(client, look.topic))
    begins = (limits.starts if wanted.begin == "latest" else limits.begins) | wanted.positions
    ends = {partition: min(stop.get(partition, end), end) for partition, end in limits.ends.items()}
    begins = {partition: begins[partition] for partition in ends}
    partitions = client.partitions_of(to)
    if keeps and (missing := [partition for partition in begins if partition not in partitions]):
        raise Refused(409, f"topic {to} has no partition {missing[0]}: let the keys choose")
    refused: list[RefusedRecord] = []
    producer = Producer(client, to, partitions, on_refused=refused.append)
    reader = Reader(client, look.topic, begins, ends=ends, read_committed=look.read_committed)
    copy = Replay(reader, producer, Sieve(look.fits, look.decoder), keep_partitions=keeps)
    until = time.monotonic() + STEP_SECONDS
    try:
        for _ in copy.run():
            copy.stopped = time.monotonic() >= until
        producer.flush()
    finally:
        reader.close()
    return {
        "looked_at": copy.looked_at,
        "stored": sum(stored.count for stored in producer.stored.values()),
        "not_stored": len(refused),
        "problems": [_told(each) for each in refused[:_SHOWN]],
        "finished": reader.finished,
        "goon": show_positions(reader.positions),
        "ends": show_positions(ends),
    }


def _told(refused: RefusedRecord) -> Json:
    partition, offset = place_of(refused.source)
    return f"partition {partition} offset {offset}: {refused.error}"


async def import_records(call: Call) -> Json:
    """Store the records of a piece of a file: lines of JSON, or rows of CSV after a row of names."""
    name, kind = call.text("topic"), call.choice("format", ("csv", "jsonl"), "jsonl")
    text, keeps = call.text("text"), call.flag("keep_partitions")
    lines = text.encode("utf-8", "surrogatepass").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    details: Json = {"lines": len(lines), "format": kind}

    def store(client: Client) -> Json:
        numbers = client.partitions_of(name)
        problems: list[str] = []
        producer = Producer(
            client, name, numbers, on_refused=lambda refused: problems.append(f"line {refused.source}: {refused.error}")
        )
        options = InputOptions(keep_partitions=True)
        for item in read_csv_records(lines, now_ms) if kind == "csv" else read_records(lines, options):
            if isinstance(item, BadLine):
                problems.append(f"line {item.line}: {item.problem}")
            elif keeps and item.partition is not None and item.partition not in numbers:
                problems.append(f"line {item.line}: topic {name} has no partition {item.partition}")
            else:
                producer.send(item.record, item.line, item.partition if keeps else None)
        producer.flush()
        stored = sum(each.count for each in producer.stored.values())
        shown: list[Json] = list(problems[:_SHOWN])
        return {"stored": stored, "not_stored": len(problems), "problems": shown}

    return await call.write("import", name, details, store)
