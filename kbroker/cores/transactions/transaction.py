"""One transactional id's state, and every change that it can go through.

A `Transaction` is a value. Its methods give the next value, or raise; ``coordinator.py`` decides which of them a
request asks for. The rules are those of Kafka 4.3's ``TransactionMetadata`` and ``TransactionState``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_EPOCH = 2**15 - 1
NO_TIMESTAMP = -1
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a producer in two-phase commit: its transactions are never aborted by time."""

TV_0 = 0
"""Transaction version 0: the original protocol. 1 changes only the format of the records."""
TV_2 = 2
"""Transaction version 2 (KIP-890): the epoch is bumped at the end of each transaction."""


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction, as its coordinator decided it."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    """A marker of an older coordinator is refused."""
    transaction_version: int
    """The rule for judging the epoch: from 2 on each transaction has an epoch of its own."""


class TransactionState(IntEnum):
    """The states, with the numbers that records hold."""

    EMPTY = 0
    """No transaction yet. AddPartitionsToTxn, AddOffsetsToTxn => ONGOING; abort by EndTxn v5 => PREPARE_ABORT."""
    ONGOING = 1
    """Begun. More partitions => ONGOING; EndTxn => PREPARE_COMMIT or PREPARE_ABORT; timeout, InitProducerId =>
    PREPARE_ABORT with a bumped epoch."""
    PREPARE_COMMIT = 2
    """Decided: the markers are on their way, and nothing can stop it. All written => COMPLETE_COMMIT."""
    PREPARE_ABORT = 3
    """Decided. All markers written => COMPLETE_ABORT."""
    COMPLETE_COMMIT = 4
    """Over. The transitions from EMPTY lead from this as well; InitProducerId => EMPTY."""
    COMPLETE_ABORT = 5
    """Over, as COMPLETE_COMMIT."""
    DEAD = 6
    """The id is about to be forgotten. Never stored: a tombstone is."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka's name for the step from ONGOING to PREPARE_ABORT with a bumped epoch. Never stored."""

    @property
    def state_name(self) -> str:
        """Kafka's spelling, as DescribeTransactions and ListTransactions give it."""
        return _NAMES[self]


_S = TransactionState
_IDLE = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
_NAMES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in _S}
STATES_BY_NAME: Mapping[str, TransactionState] = MappingProxyType({name: state for state, name in _NAMES.items()})

VALID_PREVIOUS_STATES: Mapping[TransactionState, frozenset[TransactionState]] = MappingProxyType(
    {
        _S.EMPTY: _IDLE,
        _S.ONGOING: _IDLE | {_S.ONGOING},
        _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
        _S.PREPARE_ABORT: _IDLE | {_S.ONGOING},
        _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
        _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
        _S.DEAD: _IDLE,
        _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
    }
)


NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class IllegalTransition(Exception):
    """A bug: the coordinator asked for a change that a transaction cannot go through."""


def is_epoch_exhausted(epoch: int) -> bool:
    """The last epoch that a client may have. One more is left, so that it can always be fenced."""
    return epoch >= MAX_EPOCH - 1


class Transaction(NamedTuple):
    """The state of a transactional id. Times are ms since the epoch.

    It is a tuple: each of the three changes of every transaction makes a new one, and tuples are made fastest.
    """

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change. It shows a retry after the epochs of an id were used up."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id that the producer goes on with, as the epochs of this one are used up; set in PREPARE_* alone."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump that its producer asked for. Not stored, as in Kafka: after a restart a retry
    of InitProducerId is fenced."""
    timeout_ms: int = 0
    state: TransactionState = _S.EMPTY
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    """Partitions that await a marker when the transaction ends."""
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP
    client_version: int = TV_0
    """The transaction version that its client speaks, by which the markers are judged."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer needs a new id before its next transaction."""
        return is_epoch_exhausted(self.producer_epoch)

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether the open transaction has lasted for longer than its producer allowed."""
        return (
            self.state is _S.ONGOING and self.timeout_ms != NO_TIMEOUT_MS and self.start_ms + self.timeout_ms < now_ms
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id was idle for so long that it can be forgotten."""
        return self.state in _IDLE and self.last_update_ms <= now_ms - expiration_ms

    def _next(self, state: TransactionState, **changes: Any) -> Transaction:
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise IllegalTransition(f"{self.transactional_id}: {self.state.name} cannot become {state.name}")
        changed = self._replace(state=state, previous_producer_id=self.producer_id, **changes)
        if changed.producer_id < 0 or not 0 <= changed.producer_epoch <= MAX_EPOCH:
            raise IllegalTransition(f"{self.transactional_id}: no such producer: {changed}")
        return changed

    def with_next_epoch(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transaction:
        """InitProducerId: a bumped epoch, which fences the producer before.

        ``expected_epoch`` is the producer's own in a recovery (KIP-360): the same answer to a retry, and `ApiError`
        PRODUCER_FENCED when another producer has been initialized since.
        """
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch == NO_PRODUCER_EPOCH or expected_epoch == self.producer_epoch:
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise ApiError(ErrorCode.PRODUCER_FENCED)
        if epoch == MAX_EPOCH:
            raise IllegalTransition(f"{self.transactional_id}: the epochs of {self.producer_id} are used up")
        return self._initialized(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def with_new_producer_id(
        self, producer_id: int, timeout_ms: int, *, keep_last_epoch: bool, now_ms: int
    ) -> Transaction:
        """InitProducerId after the last epoch: another producer id, with epoch 0."""
        last_epoch = self.producer_epoch if keep_last_epoch else NO_PRODUCER_EPOCH
        return self._initialized(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _initialized(self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        return self._next(
            _S.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
        )

    def with_partitions(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        """The transaction begins, or goes on, with more partitions."""
        return self._next(
            _S.ONGOING,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if self.state is _S.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, *, commit: bool, client_version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> Transaction:
        """EndTxn. From version 2 on the markers bear a bumped epoch, so that no late record of it can be taken."""
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version >= TV_2:
            last_epoch = epoch
            if epoch < MAX_EPOCH or commit:
                epoch += 1
        return self._prepared(commit, epoch, last_epoch, client_version, next_producer_id, now_ms)

    def aborted_with_bumped_epoch(self, now_ms: int) -> Transaction:
        """Abort the open transaction and fence its producer, by version 0 and 1."""
        epoch = min(self.producer_epoch + 1, MAX_EPOCH)
        return self._prepared(False, epoch, NO_PRODUCER_EPOCH, TV_0, NO_PRODUCER_ID, now_ms)

    def _prepared(
        self, commit: bool, epoch: int, last_epoch: int, client_version: int, next_producer_id: int, now_ms: int
    ) -> Transaction:
        return self._next(
            _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            # A client of version 2 that does not know whether its transaction has begun may abort it anyway.
            start_ms=self.start_ms if self.state is _S.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        producer_id, epoch = self.producer_id, self.producer_epoch
        if self.client_version >= TV_2 and self.next_producer_id != NO_PRODUCER_ID:
            producer_id, epoch = self.next_producer_id, 0
        return self._next(
            _S.COMPLETE_COMMIT if self.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Partitions by topic, both in order."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic
