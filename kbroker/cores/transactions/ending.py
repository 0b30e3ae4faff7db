"""The decision on an EndTxn request by the state of its transaction, and the final answers to a marker.

Kafka 4.3's ``TransactionCoordinator.endTransaction`` and ``TransactionMarkerRequestCompletionHandler``.
"""

from __future__ import annotations

from enum import Enum, auto

from kbroker.cores.transactions.transaction import MAX_EPOCH, Transaction, TransactionState
from kbroker.errors import ApiError, ErrorCode

_S = TransactionState

FINAL_MARKER_ANSWERS = frozenset(
    {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
"""The marker is written, or the partition's log has gone past the transaction: another coordinator, or a later epoch
of the producer, ended it there. (Kafka leaves such a transaction in PREPARE_* until its coordinator moves.) A
partition that answers anything else is asked again, or its transaction would hang, and all that follows it there."""


class Decision(Enum):
    """The decision on an EndTxn."""

    END = auto()
    DONE = auto()
    """It was done before: the request is a retry."""


_COMPLETED = {True: _S.COMPLETE_COMMIT, False: _S.COMPLETE_ABORT}
_PREPARED = {True: _S.PREPARE_COMMIT, False: _S.PREPARE_ABORT}


def decide_v1(transaction: Transaction, producer_id: int, producer_epoch: int, commit: bool) -> Decision:
    """Before version 2 the epoch stays, so a repeated request is known by the state alone.

    The producer has been checked. `ApiError`: INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS.
    """
    state = transaction.state
    if state is _S.ONGOING:
        return Decision.END
    if state is _COMPLETED[commit]:
        return Decision.DONE
    if state is _PREPARED[commit]:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    raise ApiError(ErrorCode.INVALID_TXN_STATE)


def decide_v2(transaction: Transaction, producer_id: int, producer_epoch: int, commit: bool) -> Decision:
    """In version 2 a retry bears the epoch before, and a client may abort a transaction that has not begun.

    =============== ============ ============ ============ ============
    state           abort, retry abort        commit,retry commit
    =============== ============ ============ ============ ============
    EMPTY           fenced       end          fenced       invalid
    COMPLETE_ABORT  done         end          invalid      invalid
    COMPLETE_COMMIT invalid      end          done         invalid
    =============== ============ ============ ============ ============

    `ApiError`: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS.
    """
    state = transaction.state
    # The last epoch of an id is followed by epoch 0 of the next.
    overflowed = (
        transaction.previous_producer_id == producer_id
        and producer_epoch == MAX_EPOCH - 1
        and transaction.producer_epoch == 0
    )
    bumped = transaction.producer_epoch == producer_epoch + 1
    is_retry = bumped or overflowed
    if transaction.producer_id != producer_id and not overflowed:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    current = producer_epoch == transaction.producer_epoch
    if state in (_S.PREPARE_COMMIT, _S.PREPARE_ABORT):
        is_valid = bumped
    elif state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT):
        is_valid = is_retry or current
    else:
        is_valid = current
    if not is_valid:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if state is _S.ONGOING:
        return Decision.END
    if state is _PREPARED[commit]:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if is_retry and state is _COMPLETED[commit]:
        return Decision.DONE
    if not is_retry and not commit and state not in (_S.PREPARE_COMMIT, _S.PREPARE_ABORT):
        return Decision.END
    raise ApiError(ErrorCode.INVALID_TXN_STATE)
