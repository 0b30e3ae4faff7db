"""What the handlers of transactional requests share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from kbroker.coordinator.result import CoordinatorResult
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext, Services
from kbroker.log.producer_state import VerificationGuard
from kbroker.transactions.coordinator import ProducerIdAndEpoch, TransactionCoordinator
from kbroker.types import TopicPartition

logger = logging.getLogger(__name__)
R = TypeVar("R")


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


def begin_verification(
    services: Services, partition: Any, producer: ProducerIdAndEpoch, sequence: int, support: ClientSupport
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


def submit_soon(
    ctx: RequestContext,
    transactional_id: str | None,
    operation: Callable[[TransactionCoordinator, int], CoordinatorResult[R]],
    on_committed: Callable[[R | None, ApiError | None], None],
    *,
    patient: bool = False,
) -> None:
    """Run a step on the shard of a transactional id, at once where that is loaded and has what the step needs.

    ``on_committed`` is called with the response as soon as the records are committed, before markers are written; or
    with why there is none. ``patient``: where the id's last transaction is about to be complete, which takes some
    milliseconds, wait for that, as Produce does in version 2. A client that is told to try again waits much longer.
    """
    transactions, producer_ids = ctx.services.transactions, ctx.services.producer_ids

    async def wait(code: ErrorCode) -> None:
        try:
            if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                await transactions.until_free(transactional_id)
            try:
                response = await transactions.submit(transactional_id, operation)
            except ApiError as error:
                if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    raise
                await producer_ids.ensure()
                response = await transactions.submit(transactional_id, operation)
        except ApiError as error:
            on_committed(None, error)
        except Exception:
            failed()
        else:
            on_committed(response, None)

    def failed() -> None:
        logger.exception("a request about the transactional id %r failed", transactional_id)
        on_committed(None, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))

    try:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        transactions.submit_now(transactional_id, operation, on_committed)
    except ApiError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or (
            patient and error.code is ErrorCode.CONCURRENT_TRANSACTIONS
        ):
            ctx.services.replica_manager.start_soon(wait, error.code)
        else:
            on_committed(None, error)
    except Exception:
        failed()
