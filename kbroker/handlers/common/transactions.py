"""Shared by the handlers of transactional requests: verification, and errors by the client's version."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.context import Services
from kbroker.log.producer_entry import VerificationGuard
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import ATTRIBUTES_AT, LOG_OVERHEAD, TRANSACTIONAL_FLAG, parse_header
from kbroker.wire.compression import CorruptRecord

if TYPE_CHECKING:
    from kbroker.handlers.services.partitions import Partition

_ATTRIBUTES_LOW_AT: Final = ATTRIBUTES_AT + 1
"""The low byte of a batch's attributes."""


class ClientSupport(Enum):
    """The errors and features that a client understands when it writes in a transaction (Kafka's
    ``TransactionSupportedOperation``)."""

    VERIFY = "only the errors of old"
    ABORTABLE_ERRORS = "TRANSACTION_ABORTABLE (KIP-1050)"
    ADD_PARTITIONS = "also that a partition is added to the transaction with its first batch (KIP-890)"

    @property
    def adds_partitions(self) -> bool:
        """Whether the client speaks transaction version 2."""
        return self is ClientSupport.ADD_PARTITIONS


def verification_errors(
    errors: Mapping[TopicPartition, ErrorCode], support: ClientSupport
) -> dict[TopicPartition, ErrorCode]:
    """The partitions that may not be written to, with the errors of `AddPartitionsToTxnManager`."""
    found = {}
    for partition, error in errors.items():
        if error is ErrorCode.NONE:
            continue
        if error is ErrorCode.PRODUCER_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        elif error is ErrorCode.TRANSACTION_ABORTABLE and support is ClientSupport.VERIFY:
            error = ErrorCode.INVALID_TXN_STATE
        found[partition] = error
    return found


def begin_verification(
    services: Services, partition: Partition, producer: ProducerIdAndEpoch, sequence: int, support: ClientSupport
) -> tuple[VerificationGuard | None, bool]:
    """Before a producer writes to a partition in a transaction: the guard to append with, and whether the transaction's
    coordinator is asked first. No guard if the transaction is open there already. `ApiError` for a fenced producer."""
    guard = partition.log.producers.maybe_start_verification(
        producer.producer_id, sequence, producer.producer_epoch, support.adds_partitions, services.env.wall_clock_ms()
    )
    is_asked = guard is not None and (support.adds_partitions or services.transactions.settings.verifies_partitions)
    return guard, is_asked


class Unverified(ApiError):
    """A batch that is refused before the log has seen it."""


def produce_support(version: int) -> ClientSupport:
    """The errors and features that a client understands by its version of Produce."""
    if version > 11:
        return ClientSupport.ADD_PARTITIONS
    return ClientSupport.ABORTABLE_ERRORS if version > 10 else ClientSupport.VERIFY


def is_transactional(records: memoryview) -> bool:
    """Whether the first batch says that it belongs to a transaction; one that is cut short says nothing."""
    if len(records) <= _ATTRIBUTES_LOW_AT or not records[_ATTRIBUTES_LOW_AT] & TRANSACTIONAL_FLAG:
        return False
    return int.from_bytes(records[8:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD <= len(records)


def verified_at_once(
    services: Services, transactional_id: str | None, partition: Partition, records: memoryview, version: int
) -> VerificationGuard | None:
    """The guard to append one partition's batch with, where this node can verify it at once; None if none is needed.

    `ApiError` where another coordinator has to be asked, the partition has to be added first, or the batch is refused.
    The ordinary way may repeat all steps so far.
    """
    try:
        header = parse_header(records)
    except CorruptRecord as error:
        raise Unverified(ErrorCode.CORRUPT_MESSAGE) from error
    producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
    transactions, support = services.transactions, produce_support(version)
    if transactional_id is None or not header.has_producer_id:
        raise Unverified(ErrorCode.INVALID_TXN_STATE)
    guard, is_asked = begin_verification(services, partition, producer, header.base_sequence, support)
    if not is_asked:
        return guard
    if support.adds_partitions or not transactions.knows(transactional_id, producer, partition.topic_partition):
        raise Unverified(ErrorCode.INVALID_TXN_STATE)
    return guard


def fenced_for(error: ErrorCode, understands_fenced: bool) -> ErrorCode:
    """PRODUCER_FENCED as INVALID_PRODUCER_EPOCH for a client that does not know it (KIP-588)."""
    if error is ErrorCode.PRODUCER_FENCED and not understands_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
