"""Produce in a transaction: before its first batch in a partition, the transaction's coordinator is asked.

A client of transaction version 1 has added the partition before, which is verified; one of version 2 (Produce 12 and
later) leaves that to the broker (KIP-890). Where the coordinator is on this node and at rest, all happens at once.
Elsewhere the request waits in the connection's queue for the answer, and later requests behind it: they may have the
next batches of the same partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import CloseConnection, RequestContext, Services
from kbroker.handlers.transactions import ClientSupport, begin_verification, verification_errors
from kbroker.log.producer_entry import VerificationGuard
from kbroker.log.validation import only_batch
from kbroker.runtime.later import Later
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import ATTRIBUTES_AT, LOG_OVERHEAD, TRANSACTIONAL_FLAG, BatchHeader, parse_header
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from kbroker.handlers.authorization import May
    from kbroker.handlers.services.partitions import Partition

Verified = Mapping[tuple[str, int], VerificationGuard | ApiError]
"""By partition: the guard to append with, or the error that it is refused with."""
Response = ProduceResponse | Later[ProduceResponse | None] | None
T = TypeVar("T")
Steps = Generator[Callable[[], Any] | Later[Any] | None, Any, T]
"""As those of the log's validation; where they yield a `Later`, they wait for its value (``work_queue``)."""

_ATTRIBUTES_LOW_AT: Final = ATTRIBUTES_AT + 1
"""The low byte of a batch's attributes."""

_UNVERIFIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Unverified(ApiError):
    """A batch that is refused before the log has seen it."""


def verified_first(
    request: ProduceRequest, ctx: RequestContext, may_write: May | None, append: Callable[[Verified], Steps[Response]]
) -> Steps[Response]:
    """The steps that verify, and then ``append``. The coordinator is asked at once, also for a request that waits for
    others of its connection; not about topics that the principal may not write to."""
    headers = _transactional_batches(request, ctx, may_write)
    producers = {ProducerIdAndEpoch(header.producer_id, header.producer_epoch) for header in headers.values()}
    if not headers:
        return append({})
    if len(producers) > 1:
        return all_refused(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "it has transactions of several producers")
    verification = _Verification(request, ctx, headers, producers.pop())
    verification.ask()
    return verification.steps(append)


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
    transactions, support = services.transactions, _support_of(version)
    if transactional_id is None or not header.has_producer_id:
        raise Unverified(ErrorCode.INVALID_TXN_STATE)
    guard, is_asked = begin_verification(services, partition, producer, header.base_sequence, support)
    if not is_asked:
        return guard
    if support.adds_partitions or not transactions.knows(transactional_id, producer, partition.topic_partition):
        raise Unverified(ErrorCode.INVALID_TXN_STATE)
    return guard


def is_transactional(records: memoryview) -> bool:
    """Whether the first batch says that it belongs to a transaction; one that is cut short says nothing."""
    if len(records) <= _ATTRIBUTES_LOW_AT or not records[_ATTRIBUTES_LOW_AT] & TRANSACTIONAL_FLAG:
        return False
    return int.from_bytes(records[8:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD <= len(records)


def all_refused(request: ProduceRequest, code: ErrorCode, message: str | None = None) -> Steps[Response]:
    """The steps of a request that is refused as a whole: the same error for every partition, in its turn.

    ``CloseConnection`` for acks=0, as there is no answer to tell it in.
    """
    yield from ()
    if request.acks == 0:
        raise CloseConnection(f"error in a produce request with acks=0: {code.name}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=code,
                        base_offset=-1,
                        log_append_time_ms=-1,
                        log_start_offset=-1,
                        error_message=message,
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
            if topic.partition_data
        ]
    )


def _support_of(version: int) -> ClientSupport:
    """The errors and features that a client understands by its version of Produce."""
    if version > 11:
        return ClientSupport.ADD_PARTITIONS
    return ClientSupport.ABORTABLE_ERRORS if version > 10 else ClientSupport.VERIFY


def _transactional_batches(
    request: ProduceRequest, ctx: RequestContext, may_write: May | None
) -> dict[TopicPartition, BatchHeader]:
    found = {}
    name_of = ctx.services.replica_manager.topic_name
    for topic in request.topic_data:
        name = name_of(topic.topic_id) if ctx.api_version >= 13 else topic.name
        if name is not None and may_write is not None and not may_write(name):
            continue
        for data in topic.partition_data:
            try:
                header = parse_header(data.records or b"")
                if header.size != len(data.records or b""):
                    only_batch(data.records or b"", TopicPartition(name or "", data.index))
            except (ApiError, CorruptRecord):
                continue  # the log refuses it with the right error
            if header.is_transactional and header.has_producer_id and name is not None:
                found[TopicPartition(name, data.index)] = header
    return found


class _Verification:
    """A request's way through the coordinator of its transaction."""

    def __init__(
        self,
        request: ProduceRequest,
        ctx: RequestContext,
        headers: Mapping[TopicPartition, BatchHeader],
        producer: ProducerIdAndEpoch,
    ) -> None:
        self._request = request
        self._services = ctx.services
        self._headers = headers
        self._producer = producer
        self._support = _support_of(ctx.api_version)
        self._verified: dict[tuple[str, int], VerificationGuard | ApiError] = {}
        self._answer: Later[dict[TopicPartition, ErrorCode]] | None = None
        """None where nobody has to be asked."""

    def ask(self) -> None:
        """Ask the coordinator about the partitions that it has to be asked about."""
        self._verified = {}
        self._answer = None
        unknown: list[TopicPartition] = []
        services = self._services
        for key, header in self._headers.items():
            try:
                partition = services.replica_manager.get_leader(*key)
                sequence = header.base_sequence
                guard, is_asked = begin_verification(services, partition, self._producer, sequence, self._support)
            except ApiError as error:
                self._verified[key] = Unverified(error.code)
                continue
            if guard is not None:
                self._verified[key] = guard
            if is_asked:
                unknown.append(key)
        if unknown:
            self._answer = services.transactions.add_or_verify(
                self._request.transactional_id, self._producer, unknown, self._support.adds_partitions
            )

    def steps(self, append: Callable[[Verified], Steps[Response]]) -> Steps[Response]:
        """Wait for the answer, and ``append``; ask again while the producer's last transaction is being completed."""
        transactions = self._services.transactions
        patience_ms = min(
            transactions.settings.add_partitions_retry_backoff_max_ms, self._services.config.request_timeout_ms
        )
        retry_until = self._services.env.now() + patience_ms / 1000
        while (answer := self._answer) is not None:
            errors = answer.value if answer.done else (yield answer)
            failed = verification_errors(errors, self._support)
            if (
                self._support.adds_partitions
                and ErrorCode.CONCURRENT_TRANSACTIONS in failed.values()
                and self._services.env.now() < retry_until
            ):
                yield transactions.backoff()
                self.ask()
                continue
            for key, code in failed.items():
                self._verified[key] = _for_client(code, self._support)
            break
        return (yield from append(self._verified))


def _for_client(code: ErrorCode, support: ClientSupport) -> Unverified:
    """The error for a batch that was not verified. Where another try may pass, it is one that every client retries."""
    if code is ErrorCode.INVALID_TXN_STATE:
        return Unverified(code, "the partition was not added to the transaction")
    if code in _UNVERIFIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not support.adds_partitions):
        reason = f"that the partition is in the transaction could not be verified: {code.name}"
        return Unverified(ErrorCode.NOT_ENOUGH_REPLICAS, reason)
    return Unverified(code)
