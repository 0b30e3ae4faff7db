"""Produce in a transaction: before its first batch in a partition, the transaction's coordinator is asked.

A client of transaction version 1 has added the partition before, which is verified; one of version 2 (Produce 12 and
later) leaves that to the broker (KIP-890). Where the coordinator is on this node and at rest, all happens at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import CloseConnection, DelayedResponse, RequestContext, Services
from kbroker.handlers.transactions import ClientSupport, begin_verification, verification_errors
from kbroker.log.producer_state import VerificationGuard
from kbroker.transactions.coordinator import ProducerIdAndEpoch
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import BatchHeader, parse_header
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.messages.produce import ProduceRequest, ProduceResponse

logger = logging.getLogger(__name__)

Verified = Mapping[tuple[str, int], Any]
"""By partition: the guard to append with, or the `ApiError` that it is refused with."""
Response = ProduceResponse | DelayedResponse | None
Append = Callable[[ProduceRequest, RequestContext, Verified], Response]

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


def handle_transactional(request: ProduceRequest, ctx: RequestContext, append: Append) -> Response:
    """Verify, then ``append``; with a `DelayedResponse` where that takes time."""
    headers = _transactional_batches(request, ctx)
    producers = {ProducerIdAndEpoch(header.producer_id, header.producer_epoch) for header in headers.values()}
    if not headers:
        return append(request, ctx, {})
    if len(producers) > 1:
        mixed = Unverified(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return append(request, ctx, dict.fromkeys(_all_partitions(request, ctx), mixed))
    verification = _Verification(request, ctx, append, headers, producers.pop())
    verification.begin()
    return verification.outcome()


def verified_at_once(
    services: Services, transactional_id: str | None, partition: Any, records: memoryview, version: int
) -> VerificationGuard | None:
    """The guard to append one partition's batch with, where all that is asked is known here; None if none is needed.

    `ApiError` where it has to be asked elsewhere, waited for, added first, or where it is refused. What has happened by
    then may happen again.
    """
    try:
        header = parse_header(records)
    except CorruptRecord as error:
        raise Unverified(ErrorCode.CORRUPT_MESSAGE) from error
    producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
    transactions, support = services.transactions, _support_of(version)
    if transactional_id is None or not header.has_producer_id or transactions.is_retrying(producer.producer_id):
        raise Unverified(ErrorCode.INVALID_TXN_STATE)
    guard, is_asked = begin_verification(services, partition, producer, header.base_sequence, support)
    if not is_asked:
        return guard
    if support.adds_partitions or not transactions.knows(transactional_id, producer, partition.topic_partition):
        raise Unverified(ErrorCode.INVALID_TXN_STATE)
    return guard


def _support_of(version: int) -> ClientSupport:
    """What a client that sends Produce of this version understands."""
    if version > 11:
        return ClientSupport.ADD_PARTITIONS
    return ClientSupport.ABORTABLE_ERRORS if version > 10 else ClientSupport.VERIFY


def _transactional_batches(request: ProduceRequest, ctx: RequestContext) -> dict[TopicPartition, BatchHeader]:
    found = {}
    name_of = ctx.services.replica_manager.topic_name
    for topic in request.topic_data:
        name = name_of(topic.topic_id) if ctx.api_version >= 13 else topic.name
        for data in topic.partition_data:
            try:
                header = parse_header(data.records or b"")
            except CorruptRecord:
                continue  # The log says what is wrong with it.
            if header.is_transactional and header.has_producer_id and name is not None:
                found[TopicPartition(name, data.index)] = header
    return found


def _all_partitions(request: ProduceRequest, ctx: RequestContext) -> list[tuple[str, int]]:
    name_of = ctx.services.replica_manager.topic_name
    by_id = ctx.api_version >= 13
    return [
        ((name_of(topic.topic_id) or "") if by_id else topic.name, data.index)
        for topic in request.topic_data
        for data in topic.partition_data
    ]


class _Verification:
    """One request's way through the coordinator."""

    def __init__(
        self,
        request: ProduceRequest,
        ctx: RequestContext,
        append: Append,
        headers: Mapping[TopicPartition, BatchHeader],
        producer: ProducerIdAndEpoch,
    ) -> None:
        self._request = request
        self._ctx = ctx
        self._append = append
        self._headers = headers
        self._producer = producer
        self._support = _support_of(ctx.api_version)
        services = ctx.services
        backoff_ms = min(
            services.transactions.settings.add_partitions_retry_backoff_max_ms, services.config.request_timeout_ms
        )
        self._retry_until = services.env.now() + backoff_ms / 1000
        self._response: Response = None
        self._appended = False
        self._again = False
        self._asking = False
        self._delayed: DelayedResponse | None = None

    def outcome(self) -> Response:
        """The response, or what stands for it until it is there."""
        if self._appended:
            return self._response
        self._delayed = DelayedResponse()
        return None if self._request.acks == 0 else self._delayed

    def begin(self) -> None:
        """Ask the coordinator, unless an earlier request of the producer waits: they keep their order."""
        driver = self._ctx.services.transactions
        if driver.is_retrying(self._producer.producer_id) or not self._attempt():
            driver.retry(self._producer.producer_id, self._attempt)

    def _attempt(self) -> bool:
        """Ask the coordinator where it has to be asked, and append when it has answered; false to try again."""
        self._again = False
        self._asking = True
        self._ask()
        self._asking = False
        return not self._again

    def _ask(self) -> None:
        verified: dict[tuple[str, int], Any] = {}
        unknown: list[TopicPartition] = []
        services = self._ctx.services
        for key, header in self._headers.items():
            try:
                partition = services.replica_manager.get_partition(*key)
                sequence = header.base_sequence
                guard, is_asked = begin_verification(services, partition, self._producer, sequence, self._support)
            except ApiError as error:
                verified[key] = Unverified(error.code)
                continue
            if guard is not None:
                verified[key] = guard
            if is_asked:
                unknown.append(key)
        if not unknown:
            self._finish(verified)
            return

        def answered(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            failed = verification_errors(errors, self._support)
            if (
                self._support.adds_partitions
                and ErrorCode.CONCURRENT_TRANSACTIONS in failed.values()
                and services.env.now() < self._retry_until
            ):
                # The producer's last transaction is about to be complete.
                self._again = True
                if not self._asking:
                    services.transactions.retry(self._producer.producer_id, self._attempt)
                return
            for key, code in failed.items():
                verified[key] = _for_client(code, self._support)
            self._finish(verified)

        services.transactions.add_or_verify(
            self._request.transactional_id, self._producer, unknown, self._support.adds_partitions, answered
        )

    def _finish(self, verified: Verified) -> None:
        delayed = self._delayed
        if delayed is None:
            self._response, self._appended = self._append(self._request, self._ctx, verified), True
            return
        try:
            response = self._append(self._request, self._ctx, verified)
        except CloseConnection as error:
            logger.info("%s", error)
            self._ctx.connection.scope.cancel()
            return
        if isinstance(response, DelayedResponse):
            response.on_complete(lambda: delayed.complete(response.response))
        else:
            delayed.complete(response)


def _for_client(code: ErrorCode, support: ClientSupport) -> Unverified:
    """What could pass, as an error that every client answers with another try and nothing else."""
    if code is ErrorCode.INVALID_TXN_STATE:
        return Unverified(code, "the partition was not added to the transaction")
    if code in _UNVERIFIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not support.adds_partitions):
        reason = f"that the partition is in the transaction could not be verified: {code.name}"
        return Unverified(ErrorCode.NOT_ENOUGH_REPLICAS, reason)
    return Unverified(code)
