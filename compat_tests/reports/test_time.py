"""Reports about times: offsets by time, and what is kept and rolled by the times of records."""

from __future__ import annotations

import time

import pytest

from compat_tests.brokers import Broker
from compat_tests.reports.asked import EARLIEST, LATEST, MAX_TIMESTAMP, Asked
from kbroker.wire.compression import CompressionType
from kbroker.wire.record_batch import Record, build_batch
from tests.patience import eventually

ROLLED = {"segment_ms": "1000"}
"""Batches whose records are more than a second apart are in segments of their own."""
NOTHING = (0, -1, -1, -1)
INVALID_TIMESTAMP, INVALID_REQUEST, UNSUPPORTED_VERSION = 32, 42, 35


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4], ids=["plain", "lz4"])
def test_a_time_within_a_batch_finds_its_record(asked: Asked, compression: CompressionType) -> None:
    topic = asked.topic_with()
    asked.write(topic, *range(1, 13), compression=compression)
    assert [asked.offset(topic, each).offset for each in range(14)] == [0, *range(12), -1]


def test_times_that_go_backwards(asked: Asked) -> None:
    topic = asked.topic_with()
    for times in ((100, 90), (50, 120, 110), (60,), (130,)):
        asked.write(topic, *times)
    found = [asked.offset(topic, each)[1:3] for each in (50, 91, 100, 101, 115, 121, 131)]
    assert found == [(100, 0), (100, 0), (100, 0), (120, 3), (120, 3), (130, 6), (-1, -1)]


def test_a_deleted_record_does_not_hide_a_later_segment(asked: Asked, broker: Broker) -> None:
    """Apache Kafka looks no further than the segment that once had a late enough record; KIP-79 promises to."""
    topic = asked.topic_with(**ROLLED)
    asked.write(topic, 90_000, 10_000)
    asked.write(topic, 20_000, 95_000)
    assert asked.delete_records(topic, 1) == 1
    found = asked.offset(topic, 15_000)
    assert found == NOTHING if broker.name == "apache" else found[1:3] == (20_000, 2)
    assert asked.offset(topic, 90_500)[1:3] == (95_000, 3)


def test_the_latest_time_may_be_that_of_a_deleted_record(asked: Asked) -> None:
    topic = asked.topic_with()
    asked.write(topic, 1_000, 9_000)
    asked.write(topic, 2_000)
    assert asked.delete_records(topic, 2) == 2
    assert asked.offset(topic, MAX_TIMESTAMP)[:3] == (0, 9_000, 1)


def test_the_first_of_equal_latest_times(asked: Asked) -> None:
    topic = asked.topic_with(**ROLLED)
    for times in ((5, 7, 7), (7,), (3,)):
        asked.write(topic, *times)
    assert asked.offset(topic, MAX_TIMESTAMP)[:3] == (0, 7, 1)


def test_times_within_an_open_transaction(asked: Asked) -> None:
    topic = asked.topic_with()
    asked.write(topic, 1_000)
    producer = asked.init()
    asked.add(producer, topic=topic)
    asked.produce(producer, topic, 0)
    stamp = 1_700_000_000_000
    assert asked.offset(topic, stamp, committed=True) == NOTHING
    assert asked.offset(topic, MAX_TIMESTAMP, committed=True) == NOTHING
    assert asked.offset(topic, LATEST, committed=True).offset == 1
    assert asked.offset(topic, stamp)[1:3] == (stamp, 1)
    asked.end(producer, commit=True)
    eventually(lambda: asked.offset(topic, stamp, committed=True)[1:3] == (stamp, 1))


def test_special_times_and_partitions_named_twice(asked: Asked) -> None:
    topic = asked.topic_with()
    asked.write(topic, 5)
    assert asked.offset(topic, 5, times=2).error == INVALID_REQUEST
    assert [asked.offset(topic, each, version=11)[::2] for each in (-4, -5, -6)] == [(0, 0), (0, -1), (0, -1)]
    assert asked.offset(topic, -7).error == UNSUPPORTED_VERSION
    assert asked.offset(topic, MAX_TIMESTAMP, version=6).error == UNSUPPORTED_VERSION
    assert asked.offset(asked.topic_with(), MAX_TIMESTAMP) == NOTHING


def test_a_future_time_keeps_its_segment_and_what_follows(asked: Asked) -> None:
    now = int(time.time() * 1000)
    far = str(1 << 62)
    topic = asked.topic_with(message_timestamp_after_max_ms=far, **ROLLED)
    asked.write(topic, now - 50_000_000)
    asked.write(topic, now + 50_000_000)
    asked.write(topic, now - 40_000_000)
    asked.write(topic, now)
    asked.configure(topic, retention_ms="1000000")
    eventually(lambda: asked.offset(topic, EARLIEST).offset == 1)
    marker = asked.topic_with(**ROLLED)
    asked.write(marker, 1)
    asked.write(marker, now)
    asked.configure(marker, retention_ms="1000000")  # another round of retention
    eventually(lambda: asked.offset(marker, EARLIEST).offset == 1)
    assert [each.offset for each in asked.records(topic, 1)] == [1, 2, 3]


def test_times_out_of_bounds_are_refused_by_record(asked: Asked) -> None:
    now = int(time.time() * 1000)
    topic = asked.topic_with(message_timestamp_before_max_ms="3600000", message_timestamp_after_max_ms="3600000")
    for wrong in (now - 7_200_000, now + 7_200_000):
        batch = build_batch([Record(0, each, None, b"v") for each in (now, wrong, now)])
        answer = asked.send(topic, batch)
        assert (answer.error_code, [each.batch_index for each in answer.record_errors]) == (INVALID_TIMESTAMP, [1])
    asked.write(topic, now)
    assert asked.offset(topic, LATEST).offset == 1


def test_records_without_a_time(asked: Asked) -> None:
    topic = asked.topic_with(**ROLLED)
    asked.write(topic, -1, -1)
    asked.write(topic, 5_000)
    asked.write(topic, -1)
    assert asked.offset(topic, 0)[1:3] == (5_000, 2)
    assert asked.offset(topic, MAX_TIMESTAMP)[1:3] == (5_000, 2)
    assert [each.timestamp for each in asked.records(topic)] == [-1, -1, 5_000, -1]


def test_the_time_of_appending_ends_what_a_producer_says(asked: Asked) -> None:
    topic = asked.topic_with(message_timestamp_type="LogAppendTime", **ROLLED)
    before = int(time.time() * 1000)
    asked.write(topic, 1, 1 << 60)
    (first, second) = asked.records(topic)
    assert before <= first.timestamp == second.timestamp <= int(time.time() * 1000)
    assert asked.offset(topic, MAX_TIMESTAMP)[1:3] == (first.timestamp, 0)
    assert asked.offset(topic, first.timestamp + 1) == NOTHING
