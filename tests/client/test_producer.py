"""The producer against a broker, and against one that is in trouble."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.client import Client, ClientError
from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs
from kbroker.client.pending_batches import Unanswered, partition_for_key
from kbroker.client.producer import Producer, RecordRefused
from kbroker.client.reader import Chunk, Reader
from kbroker.client.topics import NewTopic, create_topics, list_ranges
from kbroker.testing import RunningBroker
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import parse_header
from kbroker.wire.compression import CompressionType
from kbroker.wire.messages.metadata import MetadataRequest, MetadataResponseBroker
from kbroker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kbroker.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from kbroker.wire.record_batch import Record, iter_records
from tests.client.fake_broker import SILENCE, FakeBroker, with_time
from tests.patience import LONG, SHORT


def record(value: bytes | None, key: bytes | None = None) -> Record:
    return Record(0, 1_700_000_000_000, key, value)


def never(refused: RecordRefused) -> None:
    raise AssertionError(refused)


def read_all(client: Client, topic: str) -> list[tuple[int, Record]]:
    """Partition and record, in the order of each partition."""
    partitions = [TopicPartition(topic, number) for number in client.partitions_of(topic)]
    ranges = list_ranges(client, partitions)
    limits = {name.partition: found for name, found in ranges.items() if isinstance(found, tuple)}
    starts = {number: start for number, (start, _) in limits.items()}
    reader = Reader(client, topic, starts, ends={number: end for number, (_, end) in limits.items()})
    found: list[tuple[int, Record]] = []
    while not reader.finished:
        for chunk in reader.poll(5):
            assert isinstance(chunk, Chunk)
            found += [(chunk.partition, entry) for entry in chunk.records]
    return found


@pytest.fixture
def client(broker: RunningBroker) -> Any:
    with Client(broker.bootstrap_servers, timeout=SHORT) as made:
        yield made


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_everything_is_stored_once_and_in_order(client: Client, codec: CompressionType, acks: int) -> None:
    topic = f"all-{codec.name}-{acks}"
    create_topics(client, [NewTopic(topic, 3)])
    producer = Producer(
        client, topic, client.partitions_of(topic), acks=acks, compression=codec, batch_bytes=1000, on_refused=never
    )
    sent = [record(b"value %d" % number, b"key %d" % (number % 7)) for number in range(2000)]
    for number, entry in enumerate(sent):
        producer.send(entry, number)
    producer.flush()
    assert producer.unfinished == 0 and producer.refused == 0
    assert sum(stored.count for stored in producer.stored.values()) == 2000
    # With acks=0 nobody says when it is there; but the same connection serves one request after the other.
    found = read_all(client, topic)
    for partition in range(3):
        values = [entry.value for where, entry in found if where == partition]
        assert values == [entry.value for entry in sent if partition_for_key(entry.key or b"", 3) == partition]
    if acks:
        assert {number: entry.last_offset for number, entry in producer.stored.items()} == {
            number: sum(where == number for where, _ in found) - 1 for number in producer.stored
        }


def test_records_without_a_key_fill_one_partition_after_the_other(client: Client) -> None:
    create_topics(client, [NewTopic("sticky", 4)])
    producer = Producer(client, "sticky", client.partitions_of("sticky"), batch_bytes=10_000, on_refused=never)
    for number in range(1000):
        producer.send(record(b"x" * 100), number)
    producer.flush()
    counts = sorted(stored.count for stored in producer.stored.values())
    assert len(counts) == 4 and sum(counts) == 1000 and counts[0] > 150


def test_a_batch_that_is_too_large_is_cut_and_only_what_is_too_large_alone_is_refused(client: Client) -> None:
    create_topics(client, [NewTopic("small", 1, configs={"max.message.bytes": "1000"})])
    refused: list[RecordRefused] = []
    producer = Producer(client, "small", [0], on_refused=refused.append)
    for number in range(100):
        producer.send(record(b"%03d" % number + b"x" * (2000 if number == 57 else 50)), number)
    producer.flush()
    assert [(entry.source, entry.partition) for entry in refused] == [(57, 0)]
    assert "max.message.bytes" in refused[0].error or "too large" in refused[0].error
    assert producer.stored[0].count == 99 and producer.refused == 1
    values = [entry.value or b"" for _, entry in read_all(client, "small")]
    assert [int(value[:3]) for value in values] == [number for number in range(100) if number != 57]


def test_records_that_break_a_rule_are_refused_and_the_others_stored(client: Client) -> None:
    create_topics(client, [NewTopic("compacted", 1, configs={"cleanup.policy": "compact"})])
    refused: list[RecordRefused] = []
    producer = Producer(client, "compacted", [0], on_refused=refused.append)
    for number in range(10):
        producer.send(record(b"%d" % number, None if number in (2, 5) else b"k%d" % number), number)
    producer.flush()
    assert [entry.source for entry in refused] == [2, 5]
    assert [entry.value for _, entry in read_all(client, "compacted")] == [
        b"%d" % n for n in range(10) if n not in (2, 5)
    ]
    producer.send(record(b"none"), 10)
    producer.flush()
    assert [entry.source for entry in refused] == [2, 5, 10]
    alter_configs(client, ResourceType.TOPIC, "compacted", [ConfigChange("cleanup.policy", Operation.DELETE)])
    producer.send(record(b"none"), 11)
    producer.flush()
    assert producer.stored[0].count == 9


# --- Trouble --------------------------------------------------------------------------------------------------------


def id_of(request: Any, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=77, producer_epoch=3)


def produce_answer(code: int, offset: int = 0) -> Callable[[Any, int], Any]:
    def answer(request: Any, version: int) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=entry.index, error_code=code, base_offset=offset)
                        for entry in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    return answer


def lost(request: Any, version: int) -> None:
    """The connection goes before the answer."""


def scripted(*answers: Callable[[Any, int], Any]) -> FakeBroker:
    coming = iter(answers)
    return FakeBroker(
        {InitProducerIdRequest: id_of, ProduceRequest: lambda request, version: next(coming)(request, version)},
        partitions=1,
    )


def batches_of(broker: FakeBroker) -> list[bytes]:
    return [
        bytes(entry.records)
        for name, _, request in broker.requests
        if name == "Produce"
        for topic in request.topic_data
        for entry in topic.partition_data
    ]


@pytest.mark.parametrize("trouble", [lost, produce_answer(6), produce_answer(7), produce_answer(19)])
def test_what_may_have_been_stored_is_sent_again_byte_for_byte(trouble: Callable[[Any, int], Any]) -> None:
    with scripted(trouble, produce_answer(0), produce_answer(0, 3)) as broker, Client(broker.bootstrap) as client:
        producer = Producer(client, "t", client.partitions_of("t"), on_refused=never)
        for number in range(3):
            producer.send(record(b"%d" % number), number)
        producer.flush()
        producer.send(record(b"3"), 3)
        producer.flush()
    first, again, second = batches_of(broker)
    assert first == again
    header, following = parse_header(first), parse_header(second)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.records_count) == (77, 3, 0, 3)
    assert following.base_sequence == 3
    assert producer.stored[0].count == 4 and producer.stored[0].last_offset == 3


def test_a_leader_that_hangs_leaves_time_for_the_next_one() -> None:
    def run(seconds: float) -> None:
        leader = 2

        def metadata(request: Any, version: int) -> Any:
            response = first.metadata(request, version)
            response.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=second.port))
            for topic in response.topics:
                topic.partitions[0].leader_id = leader
            return response

        def hang(request: Any, version: int) -> Any:
            nonlocal leader
            leader = 1
            return SILENCE

        with (
            FakeBroker({ProduceRequest: hang}) as second,
            scripted(produce_answer(0)) as first,
            Client(first.bootstrap, timeout=seconds) as client,
        ):
            first.answers[MetadataRequest] = metadata
            producer = Producer(client, "t", client.partitions_of("t"), on_refused=never)
            producer.send(record(b"x"), 0)
            producer.flush()
            assert producer.stored[0].count == 1 and batches_of(first) == batches_of(second)

    with_time(run, 2, 20)


def test_a_duplicate_is_stored() -> None:
    with scripted(lost, produce_answer(46)) as broker, Client(broker.bootstrap) as client:
        producer = Producer(client, "t", [0], on_refused=never)
        producer.send(record(b"x"), 0)
        producer.flush()
        assert producer.stored[0].count == 1


def test_a_batch_that_was_refused_takes_no_sequence_numbers() -> None:
    refused: list[RecordRefused] = []
    with scripted(produce_answer(87), produce_answer(0)) as broker, Client(broker.bootstrap) as client:
        producer = Producer(client, "t", [0], on_refused=refused.append)
        producer.send(record(b"bad"), 5)
        producer.flush()
        producer.send(record(b"good"), 6)
        producer.flush()
    assert [(entry.source, entry.error) for entry in refused] == [
        (5, "partition t-0: the record breaks a rule of the topic (INVALID_RECORD)")
    ]
    assert [parse_header(batch).base_sequence for batch in batches_of(broker)] == [0, 0]
    assert [[entry.value for entry in iter_records(batch)] for batch in batches_of(broker)] == [[b"bad"], [b"good"]]


def test_trouble_that_stays_is_an_error_and_what_is_open_is_counted() -> None:
    def always(request: Any, version: int) -> Any:
        return produce_answer(6)(request, version)

    def run(seconds: float) -> None:
        with (
            FakeBroker({InitProducerIdRequest: id_of, ProduceRequest: always}, partitions=1) as broker,
            Client(broker.bootstrap, timeout=seconds) as client,
        ):
            producer = Producer(client, "t", [0], on_refused=never)
            producer.send(record(b"x"), 0)
            with pytest.raises(ClientError, match="NOT_LEADER_OR_FOLLOWER"):
                producer.flush()
            assert producer.stored == {}

    with_time(run, 1, 20)


@pytest.mark.parametrize("others", [[], [2]], ids=["alone", "with others"])
def test_a_full_disk_is_told_soon_unless_another_replica_may_take_over(others: list[int]) -> None:
    began = time.monotonic()

    def full_at_first(request: Any, version: int) -> Any:
        return produce_answer(56 if not others or time.monotonic() < began + 2 else 0)(request, version)

    with (
        FakeBroker({InitProducerIdRequest: id_of, ProduceRequest: full_at_first}, partitions=1) as broker,
        Client(broker.bootstrap, timeout=2 * LONG) as client,
    ):

        def metadata(request: Any, version: int) -> Any:
            answer = broker.metadata(request, version)
            for topic in answer.topics:
                for entry in topic.partitions:
                    entry.isr_nodes = [entry.leader_id, *others]
            return answer

        broker.answers[MetadataRequest] = metadata
        producer = Producer(client, "t", [0], on_refused=never)
        producer.send(record(b"x"), 0)
        if others:
            producer.flush()
            assert producer.stored[0].count == 1
        else:
            with pytest.raises(ClientError, match="trouble with its disk"):
                producer.flush()
            assert time.monotonic() < began + 300


def test_the_reason_for_trying_again_outlives_a_last_try_without_an_answer() -> None:
    def run(seconds: float) -> None:
        tries = iter(range(1_000))

        def once(request: Any, version: int) -> Any:
            return produce_answer(6)(request, version) if next(tries) == 0 else None

        with (
            FakeBroker({InitProducerIdRequest: id_of, ProduceRequest: once}, partitions=1) as broker,
            Client(broker.bootstrap, timeout=seconds) as client,
        ):
            producer = Producer(client, "t", [0], on_refused=never)
            producer.send(record(b"x"), 0)
            with pytest.raises(ClientError, match="NOT_LEADER_OR_FOLLOWER"):
                producer.flush()

    with_time(run, 1, 20)


def test_a_broker_without_producer_ids_gets_plain_batches() -> None:
    with scripted(produce_answer(0)) as broker, Client(broker.bootstrap) as client:
        del broker.versions[22]
        producer = Producer(client, "t", [0], on_refused=never)
        producer.send(record(b"x"), 0)
        producer.flush()
    assert parse_header(batches_of(broker)[0]).producer_id == -1


# --- Going on with what another producer has left --------------------------------------------------------------------


def test_another_producer_sends_a_batch_without_an_answer_as_it_was() -> None:
    def run(seconds: float) -> None:
        with (
            FakeBroker({InitProducerIdRequest: id_of, ProduceRequest: lost}, partitions=2) as broker,
            Client(broker.bootstrap, timeout=seconds) as client,
        ):
            producer = Producer(client, "t", [0, 1], on_refused=never, batch_bytes=60)
            for number in range(6):
                producer.send(record(b"%d" % number), number, number % 2)
            with pytest.raises(ClientError):
                producer.flush()
            rest = producer.remainder()
            assert producer.unfinished == 6
            assert rest.unanswered == {0: Unanswered([0, 2], 77, 3, 0), 1: Unanswered([1, 3], 77, 3, 0)}
            assert sorted(rest.unsent) == [4, 5]
            first = {parse_header(batch).records_count for batch in batches_of(broker)}
            assert first == {2}

            broker.requests.clear()
            broker.answers[ProduceRequest] = produce_answer(0)
            broker.answers[InitProducerIdRequest] = lambda *_: InitProducerIdResponse(producer_id=78, producer_epoch=0)
            other = Producer(client, "t", [0, 1], on_refused=never, resume=rest)
            for number in (4, 5, 6, 1, 2, 3):  # of partition 0 one record is missing
                other.send(record(b"%d" % number), number, number % 2)
            other.flush()
            assert {partition: each.count for partition, each in other.stored.items()} == {1: 3}
            with pytest.raises(ClientError, match="1 records that may have been stored did not come again"):
                other.finish_unanswered()
            left = other.remainder()
            assert left.unanswered == {0: Unanswered([0, 2], 77, 3, 0)} and sorted(left.unsent) == [4, 6]
            other.send(record(b"0"), 0, 0)
            left = other.remainder()
            assert left.unanswered == {0: Unanswered([2, 0], 77, 3, 0)}, "it is whole, and still may have been stored"
            assert sorted(left.unsent) == [4, 6]
            other.finish_unanswered()
            other.flush()
            assert other.stored[0].count == 4 and other.unfinished == 0
        headers = [parse_header(batch) for batch in batches_of(broker)]
        sent = sorted((each.producer_id, each.base_sequence, each.records_count) for each in headers)
        assert sent == [(77, 0, 2), (77, 0, 2), (78, 0, 1), (78, 0, 2)], "what is new has an id of its own"

    with_time(run, 0.3, 5, 40)


def test_a_batch_that_is_being_built_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> bytes:
        raise KeyboardInterrupt

    with scripted(produce_answer(0)) as broker, Client(broker.bootstrap) as client:
        producer = Producer(client, "t", [0], on_refused=never)
        producer.send(record(b"x"), 9)
        with monkeypatch.context() as patched:
            patched.setattr("kbroker.client.producer.build_batch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.flush()
        assert list(producer.remainder().unanswered[0].sources) == [9]


def test_what_an_answer_leaves_out_is_not_forgotten() -> None:
    with (
        FakeBroker(
            {InitProducerIdRequest: id_of, ProduceRequest: lambda *_: ProduceResponse()}, partitions=1
        ) as broker,
        Client(broker.bootstrap) as client,
    ):
        producer = Producer(client, "t", [0], on_refused=never)
        producer.send(record(b"x"), 9)
        with pytest.raises(ClientError, match="left partition 0 out of its answer"):
            producer.flush()
        assert list(producer.remainder().unanswered[0].sources) == [9]
