"""Records that are gone before Spark has read them, gaps in the offsets, topics that go away under a query.

A broker of their own, which looks at retention and compaction all the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.brokers import Broker, broker_under_test
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
    set_retention,
)
from tests.patience import LONG, SHORT, eventually

LOST = r"(?s)Some data may have been lost because they are not available in Kafka any more.*Reason: "
NOT_READ = LOST + r"Could not read records in offset"


@pytest.fixture(scope="module")
def busy_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Retention and the cleaner come round several times a second."""
    yield from broker_under_test(
        request,
        "log.retention.check.interval.ms=200",
        "log.initial.task.delay.ms=200",
        "log.cleaner.backoff.ms=200",
        "log.cleaner.min.cleanable.ratio=0.01",
        "log.flush.offset.checkpoint.interval.ms=200",
    )


@pytest.fixture(scope="module")
def busy(busy_broker: Broker) -> str:
    """Its address."""
    return busy_broker.bootstrap


def starts(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """The first offset of each partition, by a stock client."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    client = admin(bootstrap)
    earliest: Any = OffsetSpec.earliest
    asked = {TopicPartition(topic, index): earliest() for index in range(partitions)}
    return [future.result(LONG).offset for future in client.list_offsets(asked).values()]


def lose(bootstrap: str, topic: str, how: str) -> None:
    """Take the records of partition 0 away, all that are there."""
    if how == "delete records":
        delete_records(bootstrap, topic, {0: 50})
    else:
        set_retention(bootstrap, topic, 1000)
        eventually(lambda: starts(bootstrap, topic, 1) == [50])
        set_retention(bootstrap, topic, -1)  # what comes now is to stay


# --- failOnDataLoss


@pytest.mark.parametrize("how", ["delete records", "retention"])
def test_a_checkpoint_older_than_the_log_start(
    spark: Any, busy: str, new_name: Callable[[], str], tmp_path: Path, how: str
) -> None:
    """The next run fails and says so; or goes on with what is left, if it was told to."""
    name = create(busy, new_name(), 1)
    produce(busy, name, 1, 50)
    stream = read_stream(spark, busy, subscribe=name, maxOffsetsPerTrigger=10)
    collected = Collected()
    with running(stream, tmp_path / "c", collected) as query:
        collected.wait_for(10)
        query.stop()
    lose(busy, name, how)
    with pytest.raises(Exception, match=NOT_READ + r" \[\d+, \d+\)"):
        run_available(read_stream(spark, busy, subscribe=name), tmp_path / "c")
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": busy})
    for n in range(100, 110):
        producer.produce(name, f"v{n}", partition=0)
    assert producer.flush(LONG) == 0
    lenient = read_stream(spark, busy, subscribe=name, failOnDataLoss="false")
    assert [n for n in run_available(lenient, tmp_path / "c").numbers if n >= 100] == list(range(100, 110))


def test_records_that_go_while_the_query_runs(
    spark: Any, busy: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    """Those already read are of no concern."""
    name = create(busy, new_name(), 1)
    produce(busy, name, 1, 50)
    strict = Collected()
    with running(read_stream(spark, busy, subscribe=name), tmp_path / "c", strict) as query:
        query.processAllAvailable()
        delete_records(busy, name, {0: 50})
        produce(busy, name, 1, 10, first=50)
        query.processAllAvailable()
        assert strict.numbers == list(range(60))


def test_offsets_that_are_out_of_range(spark: Any, busy: str, new_name: Callable[[], str], tmp_path: Path) -> None:
    """Below the start: lost, a strict query says. Above the end: the same, in a batch."""
    name = create(busy, new_name(), 1)
    produce(busy, name, 1, 50)
    delete_records(busy, name, {0: 20})
    below = {"subscribe": name, "startingOffsets": offsets_json(name, {0: 5})}
    with pytest.raises(Exception, match=NOT_READ + r" \[5, 50\)"):
        read(spark, busy, **below, **IMPATIENT).count()
    lenient = read(spark, busy, **below, **IMPATIENT, failOnDataLoss="false")
    assert numbers(lenient) == list(range(20, 50))
    with pytest.raises(Exception, match=LOST):
        run_available(read_stream(spark, busy, **below), tmp_path / "strict")
    stream = read_stream(spark, busy, **below, failOnDataLoss="false")
    assert run_available(stream, tmp_path / "lenient").numbers == list(range(20, 50))


def test_a_topic_that_is_deleted_under_a_query(
    spark: Any, busy: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    """A strict query ends and names the reason."""
    name, other = create(busy, new_name(), 1), create(busy, new_name(), 1)
    produce(busy, name, 1, 10)
    produce(busy, other, 1, 10, first=10)
    collected = Collected()
    pattern = f"{name}|{other}"
    stream = read_stream(spark, busy, subscribePattern=pattern, kafka__metadata__max__age__ms=500)
    with running(stream, tmp_path / "c", collected) as query:
        query.processAllAvailable()
        delete(busy, name)
        with pytest.raises(Exception, match=LOST + r"Partitions Set\(.*\) have been deleted"):
            for n in range(20, 2000):
                produce(busy, other, 1, 1, first=n)
                if query.awaitTermination(1):
                    break
    assert collected.numbers[:20] == list(range(20))


def test_a_topic_that_is_deleted_under_a_lenient_query(
    spark: Any, busy: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name, other = create(busy, new_name(), 1), create(busy, new_name(), 1)
    produce(busy, name, 1, 10)
    produce(busy, other, 1, 10, first=10)
    collected = Collected()
    stream = read_stream(
        spark, busy, subscribePattern=f"{name}|{other}", kafka__metadata__max__age__ms=500, failOnDataLoss="false"
    )
    with running(stream, tmp_path / "c", collected) as query:
        query.processAllAvailable()
        delete(busy, name)
        produce(busy, other, 1, 10, first=20)
        collected.wait_for(30)
        assert query.isActive
    assert collected.numbers == list(range(30))


def test_a_topic_that_is_made_anew_under_a_query(
    spark: Any, busy: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    """The new topic ends before the offsets that were read: a strict query says that records may be lost."""
    name = create(busy, new_name(), 1)
    produce(busy, name, 1, 50)
    collected = run_available(read_stream(spark, busy, subscribe=name), tmp_path / "c")
    assert collected.numbers == list(range(50))
    delete(busy, name)
    eventually(lambda: name not in admin(busy).list_topics(timeout=SHORT).topics)
    create(busy, name, 1)
    produce(busy, name, 1, 20, first=100)
    with pytest.raises(Exception, match=LOST + r"Partition .* offset was changed from 50 to 20"):
        run_available(read_stream(spark, busy, subscribe=name), tmp_path / "c")


# --- gaps


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_compacted_topic_with_gaps(
    spark: Any, busy: str, new_name: Callable[[], str], tmp_path: Path, codec: str
) -> None:
    """Offsets are missing at the beginning, in between and, of a batch, at its end; nothing is read twice or lost."""
    from confluent_kafka import Producer

    name = create(busy, new_name(), 1, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01)
    # Each flush writes one batch, however slowly records come: the segment rolls where it should, and nowhere else.
    producer = Producer({"bootstrap.servers": busy, "compression.type": codec, "linger.ms": 200_000})

    def write(numbers: range) -> None:
        for n in numbers:
            producer.produce(name, f"v{n}", f"k{n % 30}", partition=0)
        assert producer.flush(LONG) == 0

    write(range(200))
    write(range(200, 230))  # every key anew: nothing of the first batches stays
    time.sleep(0.2)
    write(range(230, 240))  # rolls the segment, so that what is before can be compacted

    def found() -> list[int]:
        return numbers(read(spark, busy, subscribe=name))

    eventually(lambda: len(found()) <= 40)
    left = found()
    assert left[-10:] == list(range(230, 240)) and set(left) >= set(range(210, 240))
    stream = read_stream(spark, busy, subscribe=name, maxOffsetsPerTrigger=25)
    collected = run_available(stream, tmp_path / "c")
    assert collected.numbers == left
    bounds = {"startingOffsets": offsets_json(name, {0: 3}), "endingOffsets": offsets_json(name, {0: 215})}
    assert numbers(read(spark, busy, subscribe=name, **bounds)) == [n for n in left if n < 215]
