"""The flights once more, in the order and at the pace in which they became known, only faster.

    python -m spark_examples.replay --speed 36000x --from 2013-01-01 --to 2013-02-01

A record's timestamp, the event time, is the scheduled departure. It is produced when the aircraft really left (a
cancelled flight: when it should have), so a flight that was 20 hours late comes 20 hours behind its neighbours: this
is what watermarks are for. At 36000x, ten hours of 2013 pass in a second.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kbroker.testing.spark import SetupError
from spark_examples.command import moment_ms, parser, readable_errors
from spark_examples.console import Progress
from spark_examples.flights import TOPIC, load, records, scheduled_departure_ms
from spark_examples.topics import LONGEST_WAIT, Record, Sender, create_topic, topic_exists, topic_has_records


def speed(text: str) -> float:
    """`36000x` or `36000`: seconds of event time in a second; `max` is without waiting. Raises ValueError."""
    value = math.inf if text == "max" else float(text.removesuffix("x"))
    if not value > 0:
        raise ValueError(f"a speed is above 0, not {text}")
    return value


def departure_ms(frame: Any) -> Any:
    """When a flight really left, in ms since 1970; for a cancelled one, when it should have."""
    return scheduled_departure_ms(frame) + frame["dep_delay"].fillna(0).astype("int64") * 60_000


def in_order_of_departure(frame: Any) -> Any:
    """The flights as they became known. The sort is stable: equal moments stay in the data set's order."""
    order = departure_ms(frame).sort_values(kind="stable").index
    return frame.loc[order]


def paced(
    events: Iterable[tuple[float, Record]], speed: float, *, now: Callable[[], float], wait: Callable[[float], object]
) -> Iterator[Record]:
    """Yields each record when it is due: (event ms since the first, record) divided by the speed.

    `now` is a clock in seconds and `wait` lets that many seconds pass, at most LONGEST_WAIT at a time.
    """
    started = now()
    first: float | None = None
    for moment, record in events:
        if first is None:
            first = moment
        due = started + (moment - first) / 1000 / speed
        while (remaining := due - now()) > 0:
            wait(min(remaining, LONGEST_WAIT))
        yield record


TOGETHER_MS = 3_600_000
"""An hour of event time, which no partition is ahead of the others."""


def together(events: Iterable[tuple[float, Record]], flush: Callable[[], object]) -> Iterator[tuple[float, Record]]:
    """The same events (ms, record), in front of each the acknowledgement (by `flush`) of those TOGETHER_MS older.

    Partitions are written one after the other. Where a replay that was held up catches up, one would get days of
    events before another has any, and a query that reads in between would take the rest for too late.
    """
    begun: float | None = None
    for moment, record in events:
        if begun is None or moment - begun >= TOGETHER_MS:
            flush()
            begun = moment
        yield moment, record


class Stopped(Exception):
    """The replay was told to stop before its end."""


def replay(
    bootstrap: str,
    topic: str,
    frame: Any,
    *,
    speed: float,
    stop: threading.Event | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Produces the flights at their pace; returns how many were acknowledged.

    Raises KafkaException if a record failed, and Stopped when `stop` was set. Meant for a thread too.
    """

    def on_wait(acknowledged: int) -> None:
        if on_progress is not None:
            on_progress(acknowledged)
        if stop is not None and stop.is_set():
            raise Stopped

    sender = Sender(bootstrap, linger_ms=5, on_wait=on_wait)
    ordered = in_order_of_departure(frame)
    events: Iterable[tuple[float, Record]] = zip(departure_ms(ordered).tolist(), records(ordered), strict=True)
    if speed < math.inf:
        events = together(events, sender.flush)
    sender.send_all(topic, paced(events, speed, now=time.monotonic, wait=sender.wait))
    return sender.acknowledged


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Replay the flights of 2013 in event time.", own_broker=None)
    arguments_of.add_argument("--topic", default=TOPIC, help="created, unless it exists; it must be empty")
    arguments_of.add_argument("--append", action="store_true", help="also into a topic that has records")
    arguments_of.add_argument(
        "--speed", type=speed, default=36_000.0, help="36000x is ten hours in a second; or max (36000x)"
    )
    arguments_of.add_argument("--from", dest="start", type=moment_ms, help="first departure, e.g. 2013-01-01 (UTC)")
    arguments_of.add_argument("--to", dest="end", type=moment_ms, help="moment after the last departure (UTC)")
    arguments_of.add_argument("--limit", type=int, help="only the first so many flights")
    arguments = arguments_of.parse_args(argv)
    frame = load(arguments.limit, start_ms=arguments.start, end_ms=arguments.end)
    if not topic_exists(arguments.bootstrap, arguments.topic):
        create_topic(arguments.bootstrap, arguments.topic)
    elif not arguments.append and topic_has_records(arguments.bootstrap, arguments.topic):
        raise SetupError(f"{arguments.topic} has records already; --append adds to them")
    progress = Progress(f"replay to {arguments.topic}", len(frame))
    sent = replay(arguments.bootstrap, arguments.topic, frame, speed=arguments.speed, on_progress=progress.update)
    progress.finish(sent)


if __name__ == "__main__":
    main()
