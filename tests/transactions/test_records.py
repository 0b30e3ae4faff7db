"""Records of ``__transaction_state``, and the ids at hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.transactions.producer_ids import ProducerIdPool
from kbroker.cores.transactions.records import read_key, read_value, transaction_record, transaction_tombstone
from kbroker.cores.transactions.transaction import Transaction, TransactionState
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.errors import WireError

INT64 = st.integers(0, 2**63 - 1)
EPOCHS = st.integers(-1, 2**15 - 1)
PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 2**31 - 1)), max_size=5
)
TRANSACTIONS = st.builds(
    Transaction,
    transactional_id=st.text(max_size=20),
    producer_id=INT64,
    previous_producer_id=INT64,
    next_producer_id=INT64,
    producer_epoch=EPOCHS,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(sorted(set(TransactionState) - {TransactionState.EMPTY})),
    partitions=PARTITIONS,
    start_ms=INT64,
    last_update_ms=INT64,
    client_version=st.integers(0, 2),
    last_producer_epoch=st.just(-1),
)


@given(TRANSACTIONS)
def test_a_record_holds_all_but_the_last_epoch(transaction: Transaction) -> None:
    record = transaction_record(transaction, 2)
    assert record.value is not None
    assert read_key(record.key) == transaction.transactional_id
    assert read_value(transaction.transactional_id, record.value) == transaction


def test_the_bytes_are_apache_kafkas() -> None:
    # What Apache Kafka 4.3.1 wrote for an id "copier" of producer 3 with a transaction in t-0.
    transaction = Transaction(
        "copier", 3, 3, -1, 1, -1, 60_000, TransactionState.ONGOING, frozenset({TopicPartition("t", 0)}), 5, 6, 2
    )
    record = transaction_record(transaction, 2)
    assert record.key == b"\0\0" + b"\0\x06copier"
    assert record.value is not None
    assert record.value.hex() == (
        "0001"
        "0000000000000003"
        "0001"
        "0000ea60"
        "01"
        "02"
        "0274"
        "0200000000"
        "00"
        "0000000000000006"
        "0000000000000005"
        "02"
        "00080000000000000003"
        "02020002"
    )
    # Version 0, of clusters below transaction.version 1, has no tagged fields.
    assert transaction_record(transaction, 0).value == bytes.fromhex(
        "0000000000000000000300010000ea600100000001000174000000010000000000000000000000060000000000000005"
    )


def test_an_empty_transaction_has_no_partitions_at_all() -> None:
    record = transaction_record(Transaction("x", 1, producer_epoch=0), 0)
    assert record.value is not None and record.value[17:21] == b"\xff\xff\xff\xff"
    assert read_value("x", record.value) == Transaction("x", 1, producer_epoch=0)


def test_what_is_unknown_is_passed_over_and_what_is_broken_is_not() -> None:
    assert transaction_tombstone("x").value is None and read_key(transaction_tombstone("x").key) == "x"
    assert read_key(b"\0\x07" + b"\0\x01x") is None
    assert read_value("x", b"\0\x09") is None
    with pytest.raises(WireError):
        read_key(b"\0\0" + b"\0\x09x")
    record = transaction_record(Transaction("x", 1, producer_epoch=0), 0)
    assert record.value is not None
    with pytest.raises(WireError):
        read_value("x", record.value[:16] + b"\x63" + record.value[17:])


def test_producer_ids_are_given_once_each() -> None:
    pool = ProducerIdPool()
    with pytest.raises(ApiError) as caught:
        pool.take()
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    pool.add_block(5, 2)
    pool.add_block(10, 1)
    assert pool.available == 3
    assert [pool.take() for _ in range(3)] == [5, 6, 10]
    assert not pool.available
