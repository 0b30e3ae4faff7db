"""Records of ``__transaction_state``: one key per transactional id, whose value is all that is known of it.

Kafka's ``TransactionLog``: the key opens with the record's type as int16, the value with its version.
"""

from __future__ import annotations

from functools import lru_cache

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.transactions.transaction import NO_TIMESTAMP, Transaction, TransactionState, partitions_by_topic
from kbroker.types import TopicPartition
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.records.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue
from kbroker.wire.records.versioned import decode_versioned, encode_coordinator_key, encode_versioned, read_version

_KEY_TYPE = 0
_S = TransactionState


def transaction_record(transaction: Transaction, transaction_version: int, ahead_ms: int = 0) -> CoordinatorRecord:
    """The record of a transactional id; ``transaction_version`` is the level that the cluster has finalized.

    ``ahead_ms``: the times in it are to be so much later.
    """
    partitions = None
    if transaction.state is not _S.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=ids)
            for topic, ids in partitions_by_topic(transaction.partitions).items()
        ]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms + ahead_ms,
        transaction_start_timestamp_ms=(
            NO_TIMESTAMP if transaction.start_ms == NO_TIMESTAMP else transaction.start_ms + ahead_ms
        ),
    )
    version = 1 if transaction_version >= 1 else 0
    if version >= 1:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return CoordinatorRecord(_key(transaction.transactional_id), encode_versioned(value, version))


def transaction_tombstone(transactional_id: str) -> CoordinatorRecord:
    """The record that forgets a transactional id."""
    return CoordinatorRecord(_key(transactional_id), None)


@lru_cache(maxsize=4096)
def _key(transactional_id: str) -> bytes:
    return encode_coordinator_key(TransactionLogKey(transactional_id=transactional_id))


def read_key(key: bytes) -> str | None:
    """The transactional id that a record is about; None for a type of record that kbroker does not know.

    A newer Kafka may have left such (it passes over them as well). `WireError` for a broken one.
    """
    if read_version(key) != _KEY_TYPE:
        return None
    return decode(TransactionLogKey, 0, key, 2)[0].transactional_id


def read_value(transactional_id: str, encoded: bytes) -> Transaction | None:
    """The state of an id by its record; None for a version that kbroker does not know. `WireError`: broken."""
    if read_version(encoded) not in (0, 1):
        return None
    value, _ = decode_versioned(TransactionLogValue, encoded)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise WireError(f"a transaction has the unknown state {value.transaction_status}") from None
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
