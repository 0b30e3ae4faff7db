"""The reader: what it leaves out, where it begins and ends, and what it does in trouble."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client import Client, ResponseError
from kbroker.client.producer import Producer
from kbroker.client.reader import AbortedTransactions, Chunk, Reader, Skipped
from kbroker.client.topics import NewTopic, create_topics, delete_records
from kbroker.testing import RunningBroker
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import parse_header
from kbroker.wire.compression import CompressionType
from kbroker.wire.control_batch import build_end_txn_marker
from kbroker.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kbroker.wire.messages.metadata import MetadataRequest, MetadataResponseBroker
from kbroker.wire.record_batch import Record, build_batch
from tests.cli_command import command_for
from tests.client.fake_broker import SILENCE, FakeBroker, with_time
from tests.log.large_batches import large_batch
from tests.patience import SHORT


def records(*values: bytes) -> list[Record]:
    return [Record(0, 1000, None, value) for value in values]


def batch(offset: int, *values: bytes, producer_id: int = -1, transactional: bool = False) -> bytes:
    return build_batch(
        records(*values),
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=transactional,
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return build_end_txn_marker(
        commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1,
        base_offset=offset,
    )  # fmt: skip


def fetched(data: bytes, aborted: list[tuple[int, int]] | None = None, code: int = 0) -> FetchResponse:
    transactions = [AbortedTransaction(producer_id=producer, first_offset=first) for first, producer in aborted or []]
    partition = PartitionData(
        partition_index=0, error_code=code, high_watermark=100, aborted_transactions=transactions,
        records=memoryview(data),
    )  # fmt: skip
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def scripted(*answers: FetchResponse | None) -> FakeBroker:
    coming = iter(answers)
    return FakeBroker({FetchRequest: lambda request, version: next(coming, fetched(b""))}, partitions=1)


def values(reader: Reader) -> Iterator[tuple[int, bytes | None]]:
    """Offset and value of everything up to the end."""
    while not reader.finished:
        for chunk in reader.poll(1):
            assert isinstance(chunk, Chunk)
            yield from ((record.offset, record.value) for record in chunk.records)


LOG = (
    batch(0, b"plain")
    + batch(1, b"a1", b"a2", producer_id=1, transactional=True)
    + batch(3, b"b1", producer_id=2, transactional=True)
    + marker(4, 1, commit=False)
    + batch(5, b"a3", producer_id=1, transactional=True)
    + marker(6, 2, commit=True)
    + marker(7, 1, commit=True)
    + batch(8, b"last")
)


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (True, [(0, b"plain"), (3, b"b1"), (5, b"a3"), (8, b"last")]),
        (False, [(0, b"plain"), (1, b"a1"), (2, b"a2"), (3, b"b1"), (5, b"a3"), (8, b"last")]),
    ],
)
def test_aborted_records_and_markers_are_left_out(committed: bool, expected: list[tuple[int, bytes]]) -> None:
    with scripted(fetched(LOG, [(1, 1)] if committed else None)) as broker, Client(broker.bootstrap) as client:
        reader = Reader(client, "t", {0: 0}, ends={0: 9}, read_committed=committed)
        assert list(values(reader)) == expected
        [request] = [request for name, _, request in broker.requests if name == "Fetch"][:1]
        assert request.isolation_level == int(committed)


def test_a_leader_waits_for_many_records_but_for_the_first() -> None:
    with scripted(fetched(batch(0, b"0")), fetched(batch(1, b"1"))) as broker, Client(broker.bootstrap) as client:
        assert len(list(values(Reader(client, "t", {0: 0}, ends={0: 2}, min_bytes=1000)))) == 2
        asked = [request.min_bytes for name, _, request in broker.requests if name == "Fetch"]
        assert asked[:2] == [1, 1000]


def test_from_and_to_the_middle_of_a_batch_and_over_a_gap() -> None:
    log = batch(0, b"0", b"1", b"2") + batch(10, b"10", b"11", b"12")
    with scripted(fetched(log)) as broker, Client(broker.bootstrap) as client:
        reader = Reader(client, "t", {0: 2}, ends={0: 11})
        assert list(values(reader)) == [(2, b"2"), (10, b"10")]
        assert reader.positions == {0: 11}
    with scripted(fetched(log)) as broker, Client(broker.bootstrap) as client:
        reader = Reader(client, "t", {0: 1}, ends={0: 7})  # which compaction has removed
        assert list(values(reader)) == [(1, b"1"), (2, b"2")]


def test_a_batch_that_unpacks_to_much_comes_in_parts() -> None:
    value = bytes(500_000)
    large = bytes(large_batch((Record(index, index, b"k", value) for index in range(60)), CompressionType.ZSTD))
    with scripted(fetched(large)) as broker, Client(broker.bootstrap) as client:
        reader = Reader(client, "t", {0: 1}, ends={0: 59}, max_bytes=4 << 20)
        polls = []
        while not reader.finished:
            offsets = []
            for chunk in reader.poll(1):
                assert isinstance(chunk, Chunk)
                offsets += [record.offset for record in chunk.records]
                assert all(record.value == value for record in chunk.records)
            if offsets:
                polls.append(offsets)
                assert reader.positions == {0: offsets[-1] + 1}
        assert [offset for offsets in polls for offset in offsets] == list(range(1, 59))
        assert max(map(len, polls)) <= (3 << 20) // len(value)
    with scripted(fetched(large)) as broker, Client(broker.bootstrap) as client:
        reader = Reader(client, "t", {0: 0}, ends={0: 60}, max_bytes=1 << 20)
        assert reader.poll(1)
        reader.seek(0, 59)  # what is fetched already is passed over
        assert [offset for offset, _ in values(reader)] == [59]


def test_a_batch_that_is_cut_off_comes_with_the_next_answer() -> None:
    log = batch(0, b"0") + batch(1, b"1")
    with scripted(fetched(log[:-3]), fetched(batch(1, b"1"))) as broker, Client(broker.bootstrap) as client:
        assert list(values(Reader(client, "t", {0: 0}, ends={0: 2}))) == [(0, b"0"), (1, b"1")]


@pytest.mark.parametrize("code", [6, 3, 56, 78])
def test_trouble_that_passes(code: int) -> None:
    with scripted(fetched(b"", code=code), None, fetched(batch(0, b"0"))) as broker, Client(broker.bootstrap) as client:
        assert list(values(Reader(client, "t", {0: 0}, ends={0: 1}))) == [(0, b"0")]


def test_trouble_that_stays() -> None:
    def run(seconds: float) -> None:
        with (
            FakeBroker({FetchRequest: lambda request, version: fetched(b"", code=6)}, partitions=1) as broker,
            Client(broker.bootstrap, timeout=seconds) as client,
            pytest.raises(ResponseError, match="NOT_LEADER"),
        ):
            list(values(Reader(client, "t", {0: 0}, ends={0: 1})))

    with_time(run, 0.2, 20)


def test_a_partition_that_nobody_leads_is_told_while_another_one_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost_at = 0.0

    def metadata(request: Any, version: int) -> Any:
        response = broker.metadata(request, version)
        for topic in response.topics:
            topic.partitions[1].leader_id = -1 if lost_at else 1
        return response

    def start(request: Any, version: int) -> ListOffsetsResponse:
        entries = [ListOffsetsPartitionResponse(partition_index=each, offset=0) for each in (0, 1)]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=entries)])

    def answer(request: Any, version: int) -> FetchResponse:
        nonlocal lost_at
        lost_at = lost_at or time.monotonic()
        data = memoryview(batch(0, b"0") if time.monotonic() > lost_at + 1 else b"")
        partitions = [
            PartitionData(partition_index=0, records=data),
            PartitionData(partition_index=1, error_code=6, records=memoryview(b"")),
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    with FakeBroker({FetchRequest: answer, ListOffsetsRequest: start}) as broker:
        broker.answers[MetadataRequest] = metadata
        kb = command_for(broker.bootstrap, monkeypatch, capsys)
        found = kb("consume", "t", "--follow", "--from", "earliest", "--timeout", "0.5", "-n", "1", "--value-only")
    assert found.out == "0\n" and found.err.count("kbroker: partition 1: nobody answers for it") == 1


def test_a_log_that_was_cut_before_the_end_is_not_waited_for() -> None:
    def run(seconds: float) -> None:
        with (
            scripted(fetched(batch(99, b"99"))) as broker,
            Client(broker.bootstrap, timeout=seconds) as client,
            pytest.raises(ResponseError, match=r"partition t-0: its log was cut: it ends at offset 100, not at 102 as"),
        ):
            list(values(Reader(client, "t", {0: 99}, ends={0: 102})))

    with_time(run, 0.2, 20)


def test_a_connection_that_is_lost_while_something_else_is_asked() -> None:
    """Node 2, which is asked for its partition, dies before it answers; it is noticed by a question for metadata."""
    is_dead = False

    def metadata(request: Any, version: int) -> Any:
        nonlocal is_dead
        response = first.metadata(request, version)
        if [name for name, _, _ in second.requests].count("Fetch") and not is_dead:
            is_dead = True
            return None
        if not is_dead:
            response.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=second.port))
            for topic in response.topics:
                topic.partitions[0].leader_id = 2
        return response

    def answer(request: Any, version: int) -> FetchResponse:
        wanted = [each.partition for topic in request.topics for each in topic.partitions]
        parts = [
            PartitionData(
                partition_index=each, error_code=0 if is_dead else 6, records=memoryview(batch(0, b"%d" % each))
            )
            for each in wanted
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])

    with (
        FakeBroker({FetchRequest: lambda *_: SILENCE, MetadataRequest: lambda *_: None}) as second,
        FakeBroker({FetchRequest: answer}) as first,
        Client(first.bootstrap) as client,
    ):
        first.answers[MetadataRequest] = metadata
        reader = Reader(client, "t", {0: 0, 1: 0}, ends={0: 1, 1: 1})
        assert sorted(value or b"" for _, value in values(reader)) == [b"0", b"1"]


def test_what_may_not_be_read_is_not_tried_again() -> None:
    with (
        scripted(fetched(b"", code=29)) as broker,
        Client(broker.bootstrap) as client,
        pytest.raises(ResponseError, match="partition t-0: not authorized for this topic"),
    ):
        list(values(Reader(client, "t", {0: 0}, ends={0: 1})))


def test_a_wrong_checksum_is_told() -> None:
    damaged = bytearray(batch(0, b"0"))
    damaged[-1] ^= 1
    with (
        scripted(fetched(bytes(damaged))) as broker,
        Client(broker.bootstrap) as client,
        pytest.raises(ResponseError, match=r"partition t-0: crc .*CORRUPT_MESSAGE"),
    ):
        list(values(Reader(client, "t", {0: 0}, ends={0: 1})))


def test_offsets_that_are_gone_are_told_and_passed_over() -> None:
    def start(request: Any, version: int) -> ListOffsetsResponse:
        entry = ListOffsetsPartitionResponse(partition_index=0, offset=5)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[entry])])

    with scripted(fetched(b"", code=1), fetched(batch(5, b"5"))) as broker, Client(broker.bootstrap) as client:
        broker.answers[ListOffsetsRequest] = start
        reader = Reader(client, "t", {0: 2}, ends={0: 6})
        assert reader.poll(5) == [Skipped(0, 2, 5)]
        assert list(values(reader)) == [(5, b"5")]


def test_a_large_batch_does_not_wait_for_the_end_of_another_partition(broker: RunningBroker) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic("unequal", 2)])
        producer = Producer(client, "unequal", [0, 1], batch_bytes=100, on_refused=lambda refused: None)
        for number in range(50):
            producer.send(Record(0, 1000, None, b"x" * 90), number, 0)
        producer.send(Record(0, 1000, None, b"x" * 9000), 50, 1)
        producer.flush()
        reader = Reader(client, "unequal", {0: 0, 1: 0}, ends={0: 50, 1: 1}, partition_bytes=1000)
        came: list[int] = []
        while not reader.finished:
            came += [chunk.partition for chunk in reader.poll(1) if isinstance(chunk, Chunk)]
        assert sorted(came) == [0] * 50 + [1] and came[-1] == 0


def test_against_a_broker(broker: RunningBroker) -> None:
    def refused(entry: object) -> None:
        raise AssertionError(entry)

    with Client(broker.bootstrap_servers, timeout=SHORT) as client:
        create_topics(client, [NewTopic("read", 2)])
        producer = Producer(client, "read", [0, 1], on_refused=refused)
        for number in range(10):
            producer.send(Record(0, 1000 + number, None, b"%d" % number), number, number % 2)
        producer.flush()
        delete_records(client, {TopicPartition("read", 0): 2})
        reader = Reader(client, "read", {0: 2, 1: 0}, ends={0: 5, 1: 4})
        assert sorted(value or b"" for _, value in values(reader)) == [b"1", b"3", b"4", b"5", b"6", b"7", b"8"]
        assert Reader(client, "read", {0: 5}).poll(0) == []


# --- Aborted transactions, as a model -------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["data", "abort", "commit"])), max_size=30))
def test_aborted_transactions_against_a_model(events: list[tuple[int, str]]) -> None:
    log: list[tuple[int, int, str]] = []
    open_since: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    expected: list[bool] = []
    waiting: dict[int, list[int]] = {}
    for offset, (producer, kind) in enumerate(events):
        log.append((offset, producer, kind))
        expected.append(False)
        if kind == "data":
            open_since.setdefault(producer, offset)
            waiting.setdefault(producer, []).append(offset)
        elif producer in open_since:
            first = open_since.pop(producer)
            if kind == "abort":
                aborted.append((first, producer))
                for index in waiting[producer]:
                    expected[index] = True
            waiting[producer] = []
    filter_ = AbortedTransactions(aborted)
    for offset, producer, kind in log:
        if kind == "data":
            header = parse_header(batch(offset, b"x", producer_id=producer, transactional=True))
            assert filter_.covers(header) == expected[offset]
        elif kind == "abort":
            filter_.ended(producer)
