"""Quix Streams: a windowed count, exactly once: killed, its state lost and recovered, a node killed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

from confluent_kafka import Message

from compat_tests.brokers import Broker
from compat_tests.works_with.judge import (
    await_no_lag,
    config_of,
    coordinator,
    create_topics,
    end_offsets,
    read_until,
    text_of,
    topics_of,
    write,
)
from compat_tests.works_with.nodes import without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, RunningError

GROUP = "clicks-per-minute"
BEGIN_MS = 1_700_000_000_000 // 60_000 * 60_000
PAGES = 7
PER_MINUTE = 500
"""Clicks of a minute, of all pages."""


def time_ms(number: int) -> int:
    """The time of the n-th click."""
    return BEGIN_MS + number * 60_000 // PER_MINUTE


def click(number: int) -> tuple[str, str]:
    """Key and value of the n-th click."""
    return f"page-{number % PAGES}", json.dumps({"number": number})


def write_clicks(bootstrap: str, begin: int, end: int) -> None:
    clicks = (click(number) for number in range(begin, end))
    write(bootstrap, "clicks", clicks, timestamp_ms=lambda number: time_ms(begin + number))


def steps(messages: list[Message]) -> Counter[tuple[str, int, int]]:
    """(page, beginning of the minute, count) -> so many times it was told."""
    found: Counter[tuple[str, int, int]] = Counter()
    for message in messages:
        window = json.loads(message.value() or b"{}")
        found[text_of(message.key()), window["start"], window["clicks"]] += 1
    return found


def wanted(clicks: int) -> Counter[tuple[str, int, int]]:
    """Each step of each count, once."""
    counts: Counter[tuple[str, int]] = Counter()
    told: Counter[tuple[str, int, int]] = Counter()
    for number in range(clicks):
        window = (click(number)[0], time_ms(number) // 60_000 * 60_000)
        counts[window] += 1
        told[*window, counts[window]] += 1
    return told


def test_clicks_are_counted_exactly_once(
    broker: Broker, bootstrap: str, program: Program, seen: Callable[..., None], tmp_path: Path
) -> None:
    # The clicks are of 2023: a broker that has run for half a minute would delete them, unread ones too.
    create_topics(bootstrap, {"clicks": 4, "counts": 2}, retention_ms="-1")
    command = [program.python(), program.file("recipe.py")]

    attempts = count()

    def start() -> Running:
        """Start it, anew if it ends at once: it asks for a topic that it has just made, of which not all nodes know."""
        while True:
            running = Running(command, tmp_path, f"application-{next(attempts)}", {"KAFKA": bootstrap})
            try:
                running.await_output("is now processing incoming messages", 90)
            except RunningError as error:
                running.kill()
                if "TopicNotFoundError" in str(error):
                    continue
                raise
            return running

    with start() as application:
        write_clicks(bootstrap, 0, 1000)
        application.until(lambda: sum(end_offsets(bootstrap, "counts").values()) >= 1000, "to count", 90)
        write_clicks(bootstrap, 1000, 5000)
        application.until(lambda: sum(end_offsets(bootstrap, "counts").values()) >= 2000, "to count on", 90)
        application.kill()  # in the middle of a transaction
    shutil.rmtree(tmp_path / "state")
    with start() as application:
        with without_a_node(broker, coordinator(bootstrap, GROUP)):
            write_clicks(bootstrap, 5000, 7000)
            # The next coordinator gives the killed application a session anew: nobody else has partitions for 45 s.
            await_no_lag(bootstrap, GROUP, "clicks", 300)
        assert application.stop() == 0
    recoveries = application.output.count("recover")
    told = steps(read_until(bootstrap, "counts", lambda messages: len(messages) >= 7000))
    assert told == wanted(7000)

    (changelog,) = [name for name in topics_of(bootstrap) if name.startswith("changelog__")]
    assert recoveries and "compact" in config_of(bootstrap, changelog)["cleanup.policy"]
    windows = {(page, start) for page, start, _ in told}
    seen(
        f"7000 clicks of {PAGES} pages in {len(windows)} windows; a committed record for each step of each count, "
        "none missing and none twice",
        "the application was killed (SIGKILL) while it worked, and its directory of state deleted: it recovered the "
        f"counts from `{changelog}`, a compacted topic of {topics_of(bootstrap)[changelog]} partitions that it had "
        "created, and counted on",
        "the coordinator of its group was killed while it counted",
    )
