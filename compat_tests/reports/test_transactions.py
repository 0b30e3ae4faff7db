"""Reports about transactions: epochs that end, markers, and what comes at the same moment as an end."""

from __future__ import annotations

import time
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.reports.asked import LATEST, Asked
from compat_tests.transactions.wire_world import UNHURRIED_MS, Producer
from kbroker.wire.messages.transactions import EndTxnRequest, InitProducerIdRequest
from kbroker.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kbroker.wire.records.transaction_state import TransactionLogKey, TransactionLogValue
from kbroker.wire.records.versioned import encode_coordinator_key, encode_versioned
from tests.patience import eventually

INVALID_EPOCH, CONCURRENT, FENCED, INVALID_STATE = 47, 51, 90, 48
LAST_EPOCH = 32766
"""A transactional id's last: the one after it only ends what is open."""


def write(asked: Asked, producer: Producer, topic: str, sequence: int = 0, version: int = 12) -> int:
    """Produce of one record, which adds the partition by itself from version 12 on; its error."""
    request = asked.produce_request(producer, version, topic=topic, sequence=sequence)
    return int(asked.ask_verified(request, version).responses[0].partition_responses[0].error_code)


def end(asked: Asked, producer: Producer, commit: bool) -> int:
    """EndTxn of version 5, and the producer goes on with what it is told; the error."""
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    answer = asked.ask(request, 5)
    if answer.error_code == 0:
        producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
    return int(answer.error_code)


def test_transactions_without_records(asked: Asked) -> None:
    producer = asked.init()
    assert [end(asked, producer, commit) for commit in (True, False)] == [INVALID_STATE, 0]
    asked.settle(producer)
    assert [end(asked, producer, commit) for commit in (True, False)] == [INVALID_STATE, 0]
    assert producer.epoch == 2


def test_an_abort_right_after_a_commit(asked: Asked) -> None:
    topic, producer = asked.topic_with(), asked.init()
    seen = set()
    for number in range(10):
        eventually(lambda: write(asked, producer, topic) == 0)
        eventually(lambda: end(asked, producer, True) == 0)
        before = producer.epoch
        while error := end(asked, producer, False):
            seen.add(error)
        assert producer.epoch == before + 1, number
    assert seen <= {CONCURRENT}
    asked.settle(producer)
    assert len(asked.seen(topic)) == 10


def test_records_right_after_an_end(asked: Asked) -> None:
    topic, producer = asked.topic_with(), asked.init()
    seen, expected = set(), 0
    for number in range(20):
        while error := write(asked, producer, topic):
            seen.add(error)
        expected += number % 2
        while error := end(asked, producer, bool(number % 2)):
            seen.add(error)
    assert seen <= {CONCURRENT}
    asked.settle(producer)
    assert len(asked.seen(topic)) == expected
    assert asked.offset(topic, LATEST, committed=True) == asked.offset(topic, LATEST)


@pytest.fixture
def last(asked: Asked, broker: Broker) -> dict[str, Producer]:
    """Producers whose ids have their last epoch, in a log of transactions that was written so."""
    producers = {}
    for what in ("init", "end", "init-open", "timeout"):
        name = asked.new_id()
        one = asked.init(name)
        producers[what] = Producer(name, one.producer_id, LAST_EPOCH)
        value = TransactionLogValue(
            producer_id=one.producer_id,
            producer_epoch=LAST_EPOCH,
            transaction_timeout_ms=3000 if what == "timeout" else UNHURRIED_MS,
            transaction_status=0,
            transaction_last_update_timestamp_ms=int(time.time() * 1000),
            transaction_start_timestamp_ms=-1,
            client_transaction_version=2,
        )
        key = encode_coordinator_key(TransactionLogKey(transactional_id=name))
        asked.write_internal("__transaction_state", (key, encode_versioned(value, 1)))
    asked.again(broker)
    return producers


def test_the_last_epoch_of_a_producer_id(asked: Asked, last: dict[str, Producer]) -> None:
    fresh = asked.init(last["init"].transactional_id)
    assert (fresh.producer_id != last["init"].producer_id, fresh.epoch) == (True, 0)

    topic, producer = asked.topic_with(), last["end"]
    old = producer.producer_id
    assert write(asked, producer, topic) == 0
    assert end(asked, producer, True) == 0
    assert (producer.producer_id != old, producer.epoch) == (True, 0)
    retry = Producer(producer.transactional_id, old, LAST_EPOCH)
    asked.settle(producer)
    assert (end(asked, retry, True), retry.producer_id, retry.epoch) == (0, producer.producer_id, 0)
    eventually(lambda: write(asked, producer, topic) == 0)
    assert end(asked, producer, False) == 0
    asked.settle(producer)
    assert asked.seen(topic) == [(0, LAST_EPOCH)]

    topic, producer = asked.topic_with(), last["init-open"]
    assert write(asked, producer, topic) == 0
    again = asked.init(producer.transactional_id)
    assert (again.producer_id != producer.producer_id, again.epoch) == (True, 1)
    assert write(asked, producer, topic, 1) == INVALID_EPOCH
    eventually(lambda: asked.offset(topic, LATEST, committed=True).offset == 2)
    eventually(lambda: write(asked, again, topic) == 0)
    assert end(asked, again, True) == 0
    asked.settle(again)
    assert asked.seen(topic) == [(2, 1)]

    topic, producer = asked.topic_with(), last["timeout"]
    assert write(asked, producer, topic) == 0
    eventually(lambda: asked.offset(topic, LATEST, committed=True).offset == 2)
    late = Producer(producer.transactional_id, producer.producer_id, LAST_EPOCH)
    eventually(lambda: asked.state(producer) == "CompleteAbort")
    assert end(asked, late, False) == 0
    again = asked.init(producer.transactional_id)
    assert again.producer_id != producer.producer_id
    eventually(lambda: write(asked, again, topic) == 0)


def test_an_open_transaction_is_aborted_by_the_next_life(asked: Asked) -> None:
    topic, producer = asked.topic_with(), asked.init()
    assert write(asked, producer, topic) == 0
    answers: list[Any] = []
    request = InitProducerIdRequest(transactional_id=producer.transactional_id, transaction_timeout_ms=UNHURRIED_MS)
    while not answers or answers[-1].error_code:
        answers.append(asked.ask(request, 5))
    assert {each.error_code for each in answers} == {0, CONCURRENT}
    again = Producer(producer.transactional_id, answers[-1].producer_id, answers[-1].producer_epoch)
    assert (again.producer_id, again.epoch) == (producer.producer_id, producer.epoch + 2)
    eventually(lambda: write(asked, again, topic) == 0)
    assert end(asked, again, True) == 0
    asked.settle(again)
    assert asked.seen(topic) == [(2, again.epoch - 1)]


@pytest.mark.parametrize("version", [9, 12])
def test_a_producer_whose_transaction_ran_out_of_time(asked: Asked, version: int) -> None:
    topic = asked.topic_with()
    producer = asked.init(timeout_ms=500)
    if version < 12:
        asked.add(producer, topic=topic)
    assert write(asked, producer, topic, 0, version) == 0
    eventually(lambda: asked.offset(topic, LATEST, committed=True).offset == 2)
    assert write(asked, producer, topic, 1, version) == INVALID_EPOCH
    assert asked.offset(topic, LATEST).offset == 2


def marker(asked: Asked, producer: Producer, topic: str, version: int, epoch: int) -> int:
    """WriteTxnMarkers that commits partition 0, for a transaction of that version; its error."""
    topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=[0])]
    one = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=topics,
        coordinator_epoch=7,
        transaction_version=version,
    )
    answer = asked.ask(WriteTxnMarkersRequest(markers=[one]), 2)
    return int(answer.markers[0].topics[0].partitions[0].error_code)


def test_markers_and_their_bytes(asked: Asked) -> None:
    topic = asked.topic_with()
    producer = asked.init()
    asked.add(producer, topic=topic)
    asked.produce(producer, topic, 0)
    assert marker(asked, producer, topic, 2, producer.epoch) == INVALID_EPOCH
    assert asked.offset(topic, LATEST, committed=True).offset == 0
    assert marker(asked, producer, topic, 0, producer.epoch) == 0
    assert marker(asked, producer, topic, 0, producer.epoch) == 0
    assert marker(asked, producer, topic, 2, producer.epoch + 1) == 0
    assert marker(asked, producer, topic, 0, producer.epoch) == INVALID_EPOCH
    found = [(records[0].key, records[0].value) for header, records in asked.batches(topic) if header.is_control]
    assert found == [(b"\0\0\0\1", b"\0\0\0\0\0\7")] * 3


def test_producer_ids_are_never_given_twice(asked: Asked, broker: Broker) -> None:
    def fresh() -> int:
        answer = asked.ask_with_ids(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), 4)
        assert answer.error_code == 0, answer
        return int(answer.producer_id)

    seen = [fresh() for _ in range(3)]
    asked.again(broker, crash=True)
    seen += [fresh() for _ in range(3)]
    assert seen == sorted(set(seen))
