"""Bad input: on kbroker Spark does what it does on Apache Kafka, and says so in the same words. Both run in each test.

What is compared is the rows that come out or, whole, the error's message, but for names, ids and addresses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.brokers import ApacheBroker, KbrokerBroker
from compat_tests.spark.records import (
    IMPATIENT,
    Collected,
    admin,
    create,
    delete,
    delete_records,
    numbers,
    offsets_json,
    produce,
    read,
    read_stream,
    run_available,
    running,
)
from tests.patience import LONG, SHORT

LOST = "Some data may have been lost because they are not available in Kafka any more"
UNKNOWN = "UnknownTopicOrPartitionException: This server does not host this topic-partition"


class World:
    """A case's place: a session, a broker, a directory, a name for its topic."""

    def __init__(self, spark: Any, bootstrap: str, directory: Path, name: str) -> None:
        self.spark, self.bootstrap, self.directory, self.name = spark, bootstrap, directory, name

    def topic(self, records: int = 50, deleted: int = 0, name: str = "") -> str:
        """A topic of one partition."""
        name = create(self.bootstrap, name or self.name, 1)
        produce(self.bootstrap, name, 1, records)
        if deleted:
            delete_records(self.bootstrap, name, {0: deleted})
        return name

    def batch(self, **options: object) -> list[int]:
        return numbers(read(self.spark, self.bootstrap, **options))

    def stream(self, **options: object) -> list[int]:
        """From the checkpoint of this case, if there is one."""
        return run_available(read_stream(self.spark, self.bootstrap, **options), self.directory / "c").numbers

    def under_way(self, change: Callable[[], None], **options: object) -> list[int]:
        """A stream that has read all, when something happens to it, and ten records more."""
        collected = Collected()
        with running(read_stream(self.spark, self.bootstrap, **options), self.directory / "c", collected) as query:
            query.processAllAvailable()
            before = len(collected.numbers)
            change()
            if options.get("failOnDataLoss") == "false":
                collected.wait_for(before + 10)
                return collected.numbers
            assert query.awaitTermination(int(LONG)), "the query goes on"
        return collected.numbers


# --- the cases


def unknown_topic(world: World) -> Any:
    return world.batch(subscribe=world.name)


def unknown_topic_that_is_assigned(world: World) -> Any:
    return world.batch(assign=f'{{"{world.name}": [0]}}')


def unknown_topic_of_a_stream(world: World) -> Any:
    return world.stream(subscribe=world.name)


def unknown_topic_beside_a_known_one(world: World) -> Any:
    return world.batch(subscribe=f"{world.topic()},{world.name}-unknown")


def unknown_topic_of_given_offsets(world: World) -> Any:
    topic = world.topic()
    return world.batch(subscribe=topic, startingOffsets=offsets_json(f"{topic}-unknown", {0: 1}))


def start_below_the_log(world: World) -> Any:
    topic = world.topic(deleted=20)
    return world.batch(subscribe=topic, startingOffsets=offsets_json(topic, {0: 5}), **IMPATIENT)


def start_below_the_log_leniently(world: World) -> Any:
    topic = world.topic(deleted=20)
    offsets = offsets_json(topic, {0: 5})
    return world.batch(subscribe=topic, startingOffsets=offsets, failOnDataLoss="false", **IMPATIENT)


def start_above_the_log(world: World) -> Any:
    topic = world.topic()
    return world.batch(subscribe=topic, startingOffsets=offsets_json(topic, {0: 500}), **IMPATIENT)


def start_of_a_stream_above_the_log(world: World) -> Any:
    topic = world.topic()
    return world.stream(subscribe=topic, startingOffsets=offsets_json(topic, {0: 500}))


def end_above_the_log(world: World) -> Any:
    topic = world.topic()
    return world.batch(subscribe=topic, endingOffsets=offsets_json(topic, {0: 500}), **IMPATIENT)


def end_above_the_log_leniently(world: World) -> Any:
    topic = world.topic()
    offsets = offsets_json(topic, {0: 500})
    return world.batch(subscribe=topic, endingOffsets=offsets, failOnDataLoss="false", **IMPATIENT)


def end_below_the_start(world: World) -> Any:
    topic = world.topic()
    bounds = {"startingOffsets": offsets_json(topic, {0: 30}), "endingOffsets": offsets_json(topic, {0: 20})}
    return world.batch(subscribe=topic, **bounds)


def _older_checkpoint(world: World, **options: object) -> Any:
    topic = world.topic()
    assert len(world.stream(subscribe=topic)) == 50
    produce(world.bootstrap, topic, 1, 50, first=50)
    delete_records(world.bootstrap, topic, {0: 70})
    return world.stream(subscribe=topic, **options)


def checkpoint_older_than_the_log_start(world: World) -> Any:
    return _older_checkpoint(world)


def checkpoint_older_than_the_log_start_leniently(world: World) -> Any:
    return _older_checkpoint(world, failOnDataLoss="false", **IMPATIENT)


def _deleted_topic(world: World, **options: object) -> Any:
    topic, other = world.topic(), world.topic(10, name=f"{world.name}-other")

    def change() -> None:
        delete(world.bootstrap, topic)
        produce(world.bootstrap, other, 1, 10, first=1000)

    return world.under_way(change, subscribe=f"{topic},{other}", kafka__metadata__max__age__ms=500, **options)


def topic_deleted_under_a_query(world: World) -> Any:
    return _deleted_topic(world)


def _deleted_topic_of_a_pattern(world: World, **options: object) -> Any:
    topic, other = world.topic(), world.topic(10, name=f"{world.name}-other")

    def change() -> None:
        delete(world.bootstrap, topic)
        produce(world.bootstrap, other, 1, 10, first=1000)

    return world.under_way(change, subscribePattern=f"{topic}.*", kafka__metadata__max__age__ms=500, **options)


def topic_of_a_pattern_deleted_under_a_query(world: World) -> Any:
    return _deleted_topic_of_a_pattern(world)


def topic_of_a_pattern_deleted_under_a_lenient_query(world: World) -> Any:
    return _deleted_topic_of_a_pattern(world, failOnDataLoss="false")


def topic_made_anew_between_two_runs(world: World) -> Any:
    topic = world.topic()
    assert len(world.stream(subscribe=topic)) == 50
    delete(world.bootstrap, topic)
    while topic in admin(world.bootstrap).list_topics(timeout=SHORT).topics:
        pass
    world.topic(20)
    return world.stream(subscribe=topic)


EVERYTHING = list(range(50))
CASES: dict[Callable[[World], Any], str | list[int]] = {
    unknown_topic: UNKNOWN,
    unknown_topic_that_is_assigned: UNKNOWN,
    unknown_topic_of_a_stream: UNKNOWN,
    unknown_topic_beside_a_known_one: UNKNOWN,
    unknown_topic_of_given_offsets: "TOPIC-unknown-0",
    start_below_the_log: LOST,
    start_below_the_log_leniently: EVERYTHING[20:],
    start_above_the_log: "greater than",
    start_of_a_stream_above_the_log: LOST,
    end_above_the_log: LOST,
    end_above_the_log_leniently: EVERYTHING,
    end_below_the_start: "greater than",
    checkpoint_older_than_the_log_start: LOST,
    checkpoint_older_than_the_log_start_leniently: list(range(70, 100)),
    topic_deleted_under_a_query: UNKNOWN,
    topic_of_a_pattern_deleted_under_a_query: r"Partitions Set\(TOPIC-0\) have been deleted",
    topic_of_a_pattern_deleted_under_a_lenient_query: sorted([*EVERYTHING, *range(10), *range(1000, 1010)]),
    topic_made_anew_between_two_runs: "offset was changed from 50 to 20",
}
"""With what comes out, or what the message must say of the cause."""


@pytest.fixture(scope="module")
def brokers(request: pytest.FixtureRequest) -> Iterator[list[KbrokerBroker | ApacheBroker]]:
    if request.config.getoption("--broker") == "apache" or request.config.getoption("--bootstrap"):
        pytest.skip("these start both brokers themselves")
    made: list[KbrokerBroker | ApacheBroker] = []
    try:
        made.append(KbrokerBroker())
        made.append(ApacheBroker())
        yield made
    finally:
        for broker in made:
            broker.stop()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.replace("_", " "))
def test_the_same_on_both_brokers(
    spark: Any,
    brokers: list[KbrokerBroker | ApacheBroker],
    new_name: Callable[[], str],
    tmp_path: Path,
    case: Callable[[World], Any],
) -> None:
    worlds = [World(spark, broker.bootstrap, tmp_path / broker.name, new_name()) for broker in brokers]
    ours, theirs = (outcome(case, world) for world in worlds)
    assert ours == theirs
    expected = CASES[case]
    if isinstance(expected, list):
        assert ours == expected
    else:
        assert re.search(expected, "\n".join(map(str, ours)), re.S), ours


def outcome(case: Callable[[World], Any], world: World) -> Any:
    """The result of a case, or the lines of its error that give the reason."""
    try:
        return case(world)
    except Exception as error:
        return said(str(error), world)


def said(text: str, world: World) -> list[str]:
    """Messages and causes without the stack, and without what differs between two runs."""
    text = re.split(r"\n\s*=== Streaming Query ===|\n\nDriver stacktrace|\n\s*== ", text)[0]
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "... "))]
    replaced = []
    for line in lines:
        for pattern, instead in (
            (re.escape(world.name), "TOPIC"),
            (re.escape(world.bootstrap), "BROKER"),
            (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
            (r"(?i)\b(stage|task|tid|executor \w+|job) \d+(\.\d+)?", r"\1"),
            (r"-*\b\d{6,}\b", "NUMBER"),
            (r"\bo\d+\.", "OBJECT."),
        ):
            line = re.sub(pattern, instead, line)
        replaced.append(line)
    return replaced
