"""What the handlers of transactional requests share."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition


class ClientSupport(Enum):
    """What a client can take where it writes to a partition in a transaction (Kafka's
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
    """The partitions that may not be written to, with what `AddPartitionsToTxnManager` makes of the reason."""
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


def fenced_for(error: ErrorCode, understands_fenced: bool) -> ErrorCode:
    """PRODUCER_FENCED as INVALID_PRODUCER_EPOCH for a client that does not know it (KIP-588)."""
    if error is ErrorCode.PRODUCER_FENCED and not understands_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
