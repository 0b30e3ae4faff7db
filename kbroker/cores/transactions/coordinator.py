"""The transaction coordinator's shard: the transactional ids of one partition of ``__transaction_state``.

Pure: every method takes the time and returns a `CoordinatorResult`, or raises `ApiError` with the client's
error. The driver in ``kbroker.node`` appends the records, replays them *once they are committed*, writes the markers
that `take_markers` hands out and reports them to `on_markers_written`.

While a change of an id awaits its record, every other change of it is refused with CONCURRENT_TRANSACTIONS, and
readers see the state before: a partition must not be taken for added while that could still be lost.

The rules are those of Kafka 4.3's ``TransactionCoordinator`` and ``TransactionStateManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from kbroker.cores.coordinator.deadlines import DeadlineQueue
from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult, Token
from kbroker.cores.transactions import ending
from kbroker.cores.transactions.records import read_key, read_value, transaction_record, transaction_tombstone
from kbroker.cores.transactions.settings import TransactionSettings
from kbroker.cores.transactions.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TV_2,
    Transaction,
    TransactionState,
    is_epoch_exhausted,
)
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple

R = TypeVar("R")
_S = TransactionState
_PREPARED = (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)
_COMPLETE = (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)

logger = logging.getLogger(__name__)


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class MarkersToWrite(NamedTuple):
    """The markers that end a transaction, for the partitions that have not got theirs yet."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    transaction_version: int
    """By which the partitions judge the marker's epoch."""
    partitions: tuple[TopicPartition, ...]


class TransactionCoordinator:
    """The core of a shard. ``settings`` and ``transaction_version`` (finalized by the cluster) are asked at each use.

    ``take_producer_id`` gives a new producer id; it may raise `ApiError` when there is none at hand. ``lacks_marker``
    tells of a partition, and of a decision, whether the partition is led here and has not got the marker.
    """

    replay_alike: Final = None

    def __init__(
        self,
        settings: Callable[[], TransactionSettings],
        transaction_version: Callable[[], int],
        take_producer_id: Callable[[], int],
        lacks_marker: Callable[[TopicPartition, Transaction], Generator[None, None, bool]],
        clock_ahead_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """``lacks_marker`` looks in steps whether a partition has lost the marker of a decision.

        ``clock_ahead_ms``: the next coordinator's time is so far ahead of the times that this one is given.
        """
        self._settings = settings
        self._transaction_version = transaction_version
        self._take_producer_id = take_producer_id
        self._lacks_marker = lacks_marker
        self._clock_ahead_ms = clock_ahead_ms
        self._decided: dict[str, Transaction] | None = {}
        """By id, while the log is replayed: the last decision, which names the partitions."""
        self._transactions: dict[str, Transaction] = {}
        self._pending: dict[str, Transaction | None] = {}
        """By id: its next value when the record is committed (None: it is forgotten). No other change until then."""
        self._unwritten: dict[str, set[TopicPartition]] = {}
        """By id in PREPARE_*: the partitions that await their marker."""
        self._markers: list[MarkersToWrite] = []
        self._retries: DeadlineQueue[str] = DeadlineQueue()
        """When to try again to write the markers of an id, or that it is complete."""
        self._ongoing: dict[str, None] = {}
        self._timed_out: list[str] = []
        self._next_timeout_check_ms: int | None = None
        self._next_expiry_check_ms: int | None = None

    def __len__(self) -> int:
        return len(self._transactions)

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """Every transactional id; to be read only."""
        return self._transactions

    # -- producers -----------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int
    ) -> CoordinatorResult[ProducerIdAndEpoch]:
        """InitProducerId with a transactional id: fence the producer before, abort its open transaction.

        ``expected`` is the identity that a producer in recovery claims (KIP-360).
        """
        self._refuse_pending(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, self._take_producer_id(), last_update_ms=now_ms)
        if expected is not None and not _may_recover(transaction, expected):
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        if transaction.state in _PREPARED:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is _S.ONGOING:
            # The client tries again and gets an epoch of its own once the abort is through.
            error = ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
            return self._fence_and_abort(transaction, NO_PRODUCER, now_ms, error)
        expected_epoch = None if expected is None else expected.producer_epoch
        if transaction.is_epoch_exhausted and expected_epoch in (None, transaction.producer_epoch):
            initialized = transaction.with_new_producer_id(
                self._take_producer_id(), timeout_ms, keep_last_epoch=expected is not None, now_ms=now_ms
            )
        else:
            initialized = transaction.with_next_epoch(timeout_ms, expected_epoch, now_ms)
        return self._change(initialized, ProducerIdAndEpoch(initialized.producer_id, initialized.producer_epoch))

    # -- partitions ----------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> CoordinatorResult[None]:
        """AddPartitionsToTxn and AddOffsetsToTxn, which Produce and TxnOffsetCommit of version 2 imply."""
        transaction = self._find(transactional_id)
        self._refuse_pending(transactional_id)
        _check_producer(transaction, producer)
        if transaction.state in _PREPARED:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is _S.ONGOING and transaction.partitions.issuperset(partitions):
            return CoordinatorResult(None)
        return self._change(transaction.with_partitions(partitions, client_version, now_ms), None)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions are in the open transaction; their leaders ask before they append (KIP-890)."""
        transaction = self._find(transactional_id)
        _check_producer(transaction, producer)
        if transaction.state in _PREPARED:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return {
            partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    # -- the end -------------------------------------------------------------------------------

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, commit: bool, client_version: int, now_ms: int
    ) -> CoordinatorResult[ProducerIdAndEpoch]:
        """EndTxn. The response is the producer's id and epoch from now on; they change from version 2 on."""
        transaction = self._find(transactional_id)
        if client_version < TV_2:
            _check_producer(transaction, producer)
        self._refuse_pending(transactional_id)
        decide = ending.decide_v2 if client_version >= TV_2 else ending.decide_v1
        if decide(transaction, *producer, commit) is ending.Decision.DONE:
            known = client_version >= TV_2
            return CoordinatorResult(_producer_of(transaction) if known else NO_PRODUCER)
        exhausted = client_version >= TV_2 and transaction.is_epoch_exhausted
        prepared = transaction.prepared(
            commit=commit,
            client_version=client_version,
            next_producer_id=self._take_producer_id() if exhausted else NO_PRODUCER_ID,
            now_ms=now_ms,
        )
        response = _producer_of(prepared.completed(now_ms)) if client_version >= TV_2 else NO_PRODUCER
        return self._prepare(prepared, response)

    def _fence_and_abort(
        self, transaction: Transaction, response: R, now_ms: int, error: ApiError | None = None
    ) -> CoordinatorResult[R]:
        """Abort an open transaction that its producer did not end, and keep that producer from going on with it."""
        version = self._transaction_version()
        if version >= TV_2:
            next_producer_id = self._take_producer_id() if transaction.is_epoch_exhausted else NO_PRODUCER_ID
            prepared = transaction.prepared(
                commit=False, client_version=version, next_producer_id=next_producer_id, now_ms=now_ms
            )
        else:
            prepared = transaction.aborted_with_bumped_epoch(now_ms)
        return self._prepare(prepared, response, error)

    def _prepare(self, prepared: Transaction, response: R, error: ApiError | None = None) -> CoordinatorResult[R]:
        def decided(now_ms: int) -> CoordinatorResult[None]:
            return self._begin_markers(prepared.transactional_id, now_ms)

        return self._change(prepared, response, decided, error)

    def _begin_markers(self, transactional_id: str, now_ms: int) -> CoordinatorResult[None]:
        """The decision is committed: markers go out, and the transaction is complete when all are written."""
        transaction = self._transactions[transactional_id]
        self._unwritten[transactional_id] = set(transaction.partitions)
        if not transaction.partitions:
            return self._complete(transactional_id, now_ms)
        self._send_markers(transaction)
        return CoordinatorResult(None)

    def _send_markers(self, transaction: Transaction) -> None:
        self._markers.append(
            MarkersToWrite(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                commit=transaction.state is _S.PREPARE_COMMIT,
                transaction_version=transaction.client_version,
                partitions=tuple(sorted(self._unwritten[transaction.transactional_id])),
            )
        )

    def take_markers(self) -> list[MarkersToWrite]:
        """Hand out the markers to write now; each is reported to `on_markers_written`."""
        markers, self._markers = self._markers, []
        return markers

    def on_markers_written(
        self, markers: MarkersToWrite, errors: Mapping[TopicPartition, ErrorCode], now_ms: int
    ) -> CoordinatorResult[None]:
        """``errors`` are by partition; one that says that there is no marker yet is tried again later."""
        transactional_id = markers.transactional_id
        unwritten = self._unwritten.get(transactional_id)
        if unwritten is None:
            return CoordinatorResult(None)
        for partition, error in errors.items():
            if error in ending.FINAL_MARKER_ANSWERS:
                unwritten.discard(partition)
        if unwritten:
            self._retry_later(transactional_id, now_ms)
            return CoordinatorResult(None)
        return self._complete(transactional_id, now_ms)

    def _complete(self, transactional_id: str, now_ms: int) -> CoordinatorResult[None]:
        def failed(now_ms: int) -> None:
            self._unwritten[transactional_id] = set()
            self._retry_later(transactional_id, now_ms)

        del self._unwritten[transactional_id]
        self._retries.cancel(transactional_id)
        completed = self._transactions[transactional_id].completed(now_ms)
        return self._change(completed, None, failed=failed)

    def _retry_later(self, transactional_id: str, now_ms: int) -> None:
        self._retries.schedule(transactional_id, now_ms + self._settings().marker_retry_backoff_ms)

    # -- changes -------------------------------------------------------------------------------

    def _find(self, transactional_id: str) -> Transaction:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def _refuse_pending(self, transactional_id: str) -> None:
        if self.is_busy(transactional_id):
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _change(
        self,
        changed: Transaction,
        response: R,
        stored: Callable[[int], CoordinatorResult[None]] | None = None,
        error: ApiError | None = None,
        failed: Callable[[int], None] | None = None,
    ) -> CoordinatorResult[R]:
        """Have the record of a change stored. The client gets ``error``, if given, also when it is stored."""
        transactional_id = changed.transactional_id
        self._pending[transactional_id] = changed

        def on_stored(append_error: ErrorCode | None, now_ms: int) -> CoordinatorResult[None]:
            self._pending.pop(transactional_id, None)
            if append_error is not None:
                if failed is not None:
                    failed(now_ms)
                return CoordinatorResult(None)
            return CoordinatorResult(None) if stored is None else stored(now_ms)

        record = transaction_record(changed, self._transaction_version(), self._clock_ahead_ms())
        return CoordinatorResult(response, [record], on_stored=on_stored, error=error)

    def is_busy(self, transactional_id: str) -> bool:
        """Whether a change of the id awaits its record, or its last transaction its markers."""
        return transactional_id in self._pending or transactional_id in self._unwritten

    # -- questions -----------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Transaction:
        """DescribeTransactions of one id. `ApiError` TRANSACTIONAL_ID_NOT_FOUND."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction

    # -- time ----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `on_deadline` is next due, in ms since the epoch; None if never."""
        due = [self._retries.next_deadline()]
        if self._ongoing:
            due.append(self._next_timeout_check_ms)
        if self._transactions:
            due.append(self._next_expiry_check_ms)
        return min((deadline for deadline in due if deadline is not None), default=None)

    def on_deadline(self, now_ms: int) -> CoordinatorResult[None] | None:
        """Handle one thing whose time has come; None when there is none (left)."""
        for transactional_id in self._retries.pop_due(now_ms):
            if self._unwritten[transactional_id]:
                self._send_markers(self._transactions[transactional_id])
                return CoordinatorResult(None)
            return self._complete(transactional_id, now_ms)
        return self._abort_timed_out(now_ms) or self._forget_expired(now_ms)

    def _abort_timed_out(self, now_ms: int) -> CoordinatorResult[None] | None:
        if self._next_timeout_check_ms is not None and now_ms >= self._next_timeout_check_ms:
            self._next_timeout_check_ms = now_ms + self._settings().abort_timed_out_interval_ms
            self._timed_out = [
                transactional_id
                for transactional_id in self._ongoing
                if self._transactions[transactional_id].is_timed_out(now_ms)
            ]
        while self._timed_out:
            transactional_id = self._timed_out.pop()
            transaction = self._transactions.get(transactional_id)
            if transactional_id in self._pending or transaction is None or not transaction.is_timed_out(now_ms):
                continue
            try:
                return self._fence_and_abort(transaction, None, now_ms)
            except ApiError:
                continue  # No producer id is at hand; the next look tries again.
        return None

    def _forget_expired(self, now_ms: int) -> CoordinatorResult[None] | None:
        if self._next_expiry_check_ms is None or now_ms < self._next_expiry_check_ms:
            return None
        settings = self._settings()
        self._next_expiry_check_ms = now_ms + settings.remove_expired_interval_ms
        expired = [
            transactional_id
            for transactional_id, transaction in self._transactions.items()
            if transactional_id not in self._pending
            and transaction.is_expired(now_ms, settings.transactional_id_expiration_ms)
        ]
        self._pending.update(dict.fromkeys(expired))

        def on_stored(append_error: ErrorCode | None, now_ms: int) -> CoordinatorResult[None]:
            for transactional_id in expired:
                self._pending.pop(transactional_id, None)
            return CoordinatorResult(None)

        return CoordinatorResult(None, [transaction_tombstone(each) for each in expired], on_stored=on_stored)

    # -- loading and leaving -------------------------------------------------------------------

    def replay(
        self, record: CoordinatorRecord, now_ms: int, *, offset: int = -1, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record of the partition, in log order. `WireError` for one that cannot be read."""
        transactional_id = read_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self._transactions.pop(transactional_id, None)
            self._ongoing.pop(transactional_id, None)
            return
        # The pending value has fields that a record does not hold, and need not be decoded.
        transaction = self._pending.get(transactional_id) or read_value(transactional_id, record.value)
        if transaction is None:
            return
        self._transactions[transactional_id] = transaction
        if self._decided is not None and transaction.state in _PREPARED:
            self._decided[transactional_id] = transaction
        if transaction.state is _S.ONGOING:
            self._ongoing[transactional_id] = None
        else:
            self._ongoing.pop(transactional_id, None)

    def replay_end_transaction(self, producer_id: int, commit: bool) -> None:
        """Nothing in this topic is written in a transaction."""

    def on_loaded(self, now_ms: int) -> None:
        """Begin to count time, and carry out the decisions: all records are replayed."""
        settings = self._settings()
        self._next_timeout_check_ms = now_ms + settings.abort_timed_out_interval_ms
        self._next_expiry_check_ms = now_ms + settings.remove_expired_interval_ms
        for transactional_id, transaction in self._transactions.items():
            if transaction.state in _PREPARED:
                self._unwritten[transactional_id] = set(transaction.partitions)
                self._retries.schedule(transactional_id, now_ms)
            elif transaction.state is _S.ONGOING and transaction.start_ms > now_ms:
                # By the clock of another coordinator, which was ahead: it would be timed out as much later.
                self._transactions[transactional_id] = transaction._replace(start_ms=now_ms)

    def find_lost_markers(self) -> Iterator[None]:
        """Have a decision carried out once more where a partition has lost the marker with the end of its log.

        In steps, once all records are replayed and before `on_loaded`.
        """
        decided, self._decided = self._decided or {}, None
        for transactional_id, prepared in decided.items():
            transaction = self._transactions.get(transactional_id)
            if transaction is None or transaction.state not in _COMPLETE:
                continue
            lost = set()
            for each in prepared.partitions:
                if (yield from self._lacks_marker(each, prepared)):
                    lost.add(each)
            if lost:
                logger.warning(
                    "the last transaction of %r is over, and its marker is missing in %s: it is written again",
                    transactional_id,
                    ", ".join(map(str, sorted(lost))),
                )
                self._transactions[transactional_id] = prepared._replace(partitions=frozenset(lost))

    def on_unloaded(self) -> list[tuple[Token, object]]:
        """Stop being the coordinator; no request waits here for a later step."""
        return []


def _producer_of(transaction: Transaction) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)


def _check_producer(transaction: Transaction, producer: ProducerIdAndEpoch) -> None:
    if producer.producer_id != transaction.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer.producer_epoch != transaction.producer_epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)


def _may_recover(transaction: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Whether a producer that claims an identity may get a new epoch; the claim itself is checked later.

    One with the previous producer id may have missed the answer that gave it the next.
    """
    return (
        transaction.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == transaction.producer_id
        or (expected.producer_id == transaction.previous_producer_id and is_epoch_exhausted(expected.producer_epoch))
    )
