"""Shared by the handlers of transactional requests: verification, and errors by the client's version."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
from kbroker.errors import ErrorCode
from kbroker.handlers.context import Services
from kbroker.log.producer_entry import VerificationGuard
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.services.partitions import Partition


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


def fenced_for(error: ErrorCode, understands_fenced: bool) -> ErrorCode:
    """PRODUCER_FENCED as INVALID_PRODUCER_EPOCH for a client that does not know it (KIP-588)."""
    if error is ErrorCode.PRODUCER_FENCED and not understands_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
