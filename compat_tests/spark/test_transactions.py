"""Spark as a reader of topics that are written in transactions: exactly what was committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.case import await_ended
from compat_tests.spark.records import Collected, create, numbers, read, read_stream, run_available, running
from tests.patience import LONG

READ_COMMITTED = {"kafka__isolation__level": "read_committed"}


class Writer:
    """A transactional producer. Record n goes to partition n modulo 2."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str) -> None:
        self.topic = topic
        self._bootstrap, self._id = bootstrap, transactional_id
        patient = {"transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
        self.producer = Producer({"bootstrap.servers": bootstrap, **patient})
        self.producer.init_transactions(LONG)

    def begin(self, numbers: range) -> None:
        self.producer.begin_transaction()
        for n in numbers:
            self.producer.produce(self.topic, f"v{n}", partition=n % 2)
        assert self.producer.flush(LONG) == 0

    def transact(self, numbers: range, *, commit: bool = True) -> None:
        self.begin(numbers)
        self.commit() if commit else self.abort()

    def commit(self) -> None:
        self.producer.commit_transaction(LONG)
        await_ended(self._bootstrap, self._id)

    def abort(self) -> None:
        self.producer.abort_transaction(LONG)
        await_ended(self._bootstrap, self._id)


@pytest.fixture
def topic(bootstrap: str, new_name: Callable[[], str]) -> str:
    return create(bootstrap, new_name(), 2)


@pytest.fixture
def writer(bootstrap: str, topic: str) -> Writer:
    return Writer(bootstrap, topic, f"{topic}-writer")


def test_committed_and_aborted(spark: Any, bootstrap: str, topic: str, writer: Writer) -> None:
    expected: list[int] = []
    for number in range(12):
        records = range(number * 20, number * 20 + 20)
        writer.transact(records, commit=number % 3 != 1)
        expected += records if number % 3 != 1 else []
    assert numbers(read(spark, bootstrap, subscribe=topic, **READ_COMMITTED)) == expected
    assert numbers(read(spark, bootstrap, subscribe=topic)) == list(range(240)), "read_uncommitted is the default"


def test_a_transaction_that_is_still_open(spark: Any, bootstrap: str, topic: str, writer: Writer) -> None:
    """Its records, and all behind them, are not there yet; "latest" is the last stable offset."""
    writer.transact(range(10))
    other = Writer(bootstrap, topic, f"{topic}-other")
    writer.begin(range(10, 20))
    other.transact(range(20, 30))
    assert numbers(read(spark, bootstrap, subscribe=topic, **READ_COMMITTED)) == list(range(10))
    writer.abort()
    committed = [*range(10), *range(20, 30)]
    assert numbers(read(spark, bootstrap, subscribe=topic, **READ_COMMITTED)) == committed


def test_a_stream_of_transactions(spark: Any, bootstrap: str, topic: str, writer: Writer, tmp_path: Path) -> None:
    collected = Collected()
    stream = read_stream(spark, bootstrap, subscribe=topic, **READ_COMMITTED)
    with running(stream, tmp_path / "c", collected) as query:
        writer.transact(range(10))
        query.processAllAvailable()
        assert collected.numbers == list(range(10))
        writer.transact(range(10, 20), commit=False)
        query.processAllAvailable()  # markers and aborted records alone: a batch without rows
        assert collected.numbers == list(range(10))
        writer.begin(range(20, 30))
        query.processAllAvailable()
        assert collected.numbers == list(range(10))
        writer.commit()
        writer.transact(range(30, 40))
        query.processAllAvailable()
    assert collected.numbers == [*range(10), *range(20, 40)]


def test_batches_that_end_in_the_middle_of_transactions(
    spark: Any, bootstrap: str, topic: str, writer: Writer, tmp_path: Path
) -> None:
    """A micro-batch's bounds are offsets, and some of them are those of markers or of aborted records."""
    expected: list[int] = []
    for number in range(10):
        records = range(number * 7, number * 7 + 7)
        writer.transact(records, commit=number % 2 == 0)
        expected += records if number % 2 == 0 else []
    stream = read_stream(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger=6, **READ_COMMITTED)
    collected = run_available(stream, tmp_path / "c")
    assert collected.numbers == expected
    assert run_available(stream, tmp_path / "c").numbers == []


def test_many_partitions_of_one_range(spark: Any, bootstrap: str, topic: str, writer: Writer) -> None:
    for number in range(6):
        writer.transact(range(number * 50, number * 50 + 50), commit=number % 2 == 0)
    rows = read(spark, bootstrap, subscribe=topic, minPartitions=16, **READ_COMMITTED)
    assert numbers(rows) == [n for n in range(300) if n // 50 % 2 == 0]


def test_only_aborted_records(spark: Any, bootstrap: str, topic: str, writer: Writer) -> None:
    writer.transact(range(30), commit=False)
    assert read(spark, bootstrap, subscribe=topic, **READ_COMMITTED).count() == 0
