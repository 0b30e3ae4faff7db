"""Fetches that their limit ends: the same whole batches from both brokers, whatever comes after the last of them.

Apache Kafka sends the bytes up to the limit, kbroker ends where a batch does. A reader that takes whole batches and
goes on behind them, as clients do, gets the same records in as many requests and no more bytes.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from compat_tests.brokers import Broker
from compat_tests.wire_differential.dialogue import Dialogue
from compat_tests.wire_differential.judged import beside_apache_kafka
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kbroker.wire.record_batch import Record, build_batch
from tests.patience import eventually

TOPIC = "limits"
BATCHES = 300
WAIT_MS = 50_000
feature = pytest.mark.feature


class Piece(NamedTuple):
    """The content of one Fetch response."""

    bases: list[int]
    """Of the whole batches."""
    next_offset: int
    size: int
    rest: int
    """Bytes after the last whole batch."""


def fetch(talk: Dialogue, offset: int, limit: int, *, min_bytes: int = 1, max_bytes: int = 1 << 30) -> Piece:
    """Ask for partition 0, and cut what comes into batches."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
    request = FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    answer = talk.ask(request, 12)
    [told] = answer.responses[0].partitions
    assert (answer.error_code, told.error_code) == (0, 0)
    data = bytes(told.records or b"")
    bases, end, next_offset = [], 0, offset
    for at, header in walk_headers(data):
        bases.append(header.base_offset)
        end, next_offset = at + header.size, header.next_offset
    return Piece(bases, next_offset, len(data), len(data) - end)


def read_all(talk: Dialogue, limit: int) -> list[Piece]:
    """Every Fetch of a reader from the beginning to the end."""
    pieces: list[Piece] = []
    offset = 0
    while offset < BATCHES:
        piece = fetch(talk, offset, limit)
        assert piece.next_offset > offset, "each Fetch brings a whole batch at least"
        pieces.append(piece)
        offset = piece.next_offset
    return pieces


@pytest.fixture(scope="module")
def pair(broker: Broker) -> Iterator[tuple[Dialogue, Dialogue]]:
    """The broker under test and the judge, with the same batches of many sizes in one partition."""
    with contextlib.ExitStack() as stack:
        ours, theirs = stack.enter_context(beside_apache_kafka(broker))
        talks = (Dialogue(ours), Dialogue(theirs))
        for talk in talks:
            stack.callback(talk.close)
            kept = CreatableTopicConfig(name="retention.ms", value="-1")  # the records are old
            wanted = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=[kept])
            talk.ask(CreateTopicsRequest(topics=[wanted]), 7)
            rng = random.Random(0)
            for _ in range(BATCHES):
                batch = build_batch([Record(0, 1_717_000_000_000, None, rng.randbytes(rng.choice([40, 700, 3_000])))])
                data = PartitionProduceData(index=0, records=memoryview(batch))
                request = ProduceRequest(
                    acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
                )

                def written(talk: Dialogue = talk, request: ProduceRequest = request) -> bool:
                    return bool(talk.ask(request, 9).responses[0].partition_responses[0].error_code == 0)

                eventually(written, "the batch to be written")
        yield talks


@feature("wire", "Answers equal to Apache Kafka's", "whole batches of a Fetch that its limit ends")
@pytest.mark.parametrize("limit", [100, 1_000, 3_000, 5_003, 20_011, 70_001, 200_003, 1 << 20])
def test_a_reader_gets_the_same_for_no_more(broker: Broker, pair: tuple[Dialogue, Dialogue], limit: int) -> None:
    ours, theirs = (read_all(talk, limit) for talk in pair)
    assert [base for piece in ours for base in piece.bases] == [base for piece in theirs for base in piece.bases]
    assert len(ours) <= len(theirs) * 17 / 16 + 1
    assert sum(piece.size for piece in ours) <= sum(piece.size for piece in theirs)
    # `allowed.py` says why.
    assert not any(piece.rest for piece in ours) or broker.name == "apache"


@feature("wire", "Answers equal to Apache Kafka's", "a Fetch for as much as its limit waits for nothing")
@pytest.mark.parametrize("of_request", [False, True])
def test_as_much_as_the_limit_is_there(pair: tuple[Dialogue, Dialogue], of_request: bool) -> None:
    limit = 10_007
    for talk in pair:
        for offset in (0, BATCHES - 40):
            began = time.monotonic()
            if of_request:
                piece = fetch(talk, offset, 1 << 20, min_bytes=limit, max_bytes=limit)
            else:
                piece = fetch(talk, offset, limit, min_bytes=limit)
            assert piece.bases
            assert time.monotonic() - began < WAIT_MS / 1_000
