"""The state of a partition's idempotent and transactional producers.

For each producer id: its epoch, the last five batches (so that a retry of any of the five requests that a
client has in flight is answered with the offsets of the first attempt), and where its open transaction began.
The open transactions give the first unstable offset, which bounds read_committed.

The state lives in memory and is rebuilt from the log. ``<20 digits>.snapshot`` files, in Apache Kafka's own
format, save replaying all of it: one holds the state before the offset in its name. The rules follow Kafka
4.3's ``ProducerStateManager``, ``ProducerAppendInfo`` and ``ProducerStateEntry``, and the transaction checks
of ``UnifiedLog.analyzeAndValidateProducerState``.

Use: ``check`` a batch whose offsets are assigned, write it, then ``update`` with it and
``update_map_end_offset``. When ``update`` tells of a completed transaction, ask ``last_stable_offset``, write
the transaction index if it was aborted, and call ``complete_txn``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.disk import Disk
from kbroker.log.producer_entry import BatchMetadata, ProducerStateEntry, VerificationGuard, VerificationState
from kbroker.log.producer_snapshot import CorruptSnapshot, SnapshotFiles, decode_snapshot, encode_snapshot
from kbroker.log.validation import AppendOrigin
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import CONTROL_FLAG, NO_PRODUCER_EPOCH, NO_SEQUENCE, TRANSACTIONAL_FLAG, BatchHeader
from kbroker.wire.control_batch import EndTxnMarker

__all__ = [
    "BatchMetadata",
    "CompletedTxn",
    "CorruptSnapshot",
    "ProducerStateEntry",
    "ProducerStateManager",
    "decode_snapshot",
    "encode_snapshot",
]

logger = logging.getLogger(__name__)

TV_UNKNOWN = -1
"""The transaction version of a batch that is no marker, or of a marker read from a log."""

_NONE: Any = MappingProxyType({})
"""Stands for a dictionary until it has an entry: most partitions never have a transaction."""
_MAX_INT32 = 2**31 - 1
_MAX_INT16 = 2**15 - 1


class CompletedTxn(NamedTuple):
    """A transaction whose marker was appended; ``last_offset`` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStateManager:
    """The producers of one partition; ``snapshots`` are those in its directory."""

    __slots__ = (
        "_last_snapshot_offset",
        "_map_end_offset",
        "_ongoing",
        "_producers",
        "_unreplicated",
        "_verification",
        "is_from_snapshot",
        "producer_id_expiration_ms",
        "snapshots",
        "topic_partition",
        "transaction_verification",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str | os.PathLike[str],
        disk: Disk,
        *,
        producer_id_expiration_ms: int = 24 * 60 * 60 * 1000,
        transaction_verification: bool = True,
        names: Collection[str] | None = None,
    ) -> None:
        """``names`` are those in the directory, if they were just listed."""
        self.topic_partition = topic_partition
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.transaction_verification = transaction_verification
        self.snapshots = SnapshotFiles(os.fspath(directory), disk, names)
        self._producers: dict[int, ProducerStateEntry] = _NONE
        self._verification: dict[int, VerificationState] = _NONE
        self._ongoing: dict[int, int] = _NONE
        """First offset -> producer id of each open transaction, in the order of first offsets."""
        self._unreplicated: dict[int, int] = _NONE
        """First offset -> offset of the marker, while the marker is above the high watermark."""
        self._map_end_offset = 0
        self._last_snapshot_offset = 0
        self.is_from_snapshot = False
        """Whether producers may have sent batches before those that are known: a snapshot has the last one of each."""

    # What is known

    @property
    def active_producers(self) -> Mapping[int, ProducerStateEntry]:
        """All producers by id; to be read only."""
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        """Neither producers nor transactions."""
        return not self._producers and not self._unreplicated

    @property
    def map_end_offset(self) -> int:
        """Offset up to which (exclusive) the log is reflected here."""
        return self._map_end_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Offset of the earliest transaction that is open, or ended by a marker above the high watermark."""
        if not self._ongoing:
            return min(self._unreplicated) if self._unreplicated else None
        first = next(iter(self._ongoing))
        return min(first, *self._unreplicated) if self._unreplicated else first

    @property
    def first_undecided_offset(self) -> int | None:
        """Offset of the earliest open transaction."""
        return next(iter(self._ongoing)) if self._ongoing else None

    @property
    def first_undecided_producer(self) -> int | None:
        """Id of the producer of the earliest open transaction."""
        return self._ongoing[next(iter(self._ongoing))] if self._ongoing else None

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """This producer has written to the partition in a transaction that is still open."""
        entry = self._producers.get(producer_id)
        return (
            entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch
        )

    # Appending

    def maybe_start_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Before a transaction's first batch here: the guard to ask the coordinator and then to append with.

        None if the transaction is already open here and nobody has to be asked. ``supports_epoch_bump``: the
        client speaks transaction version 2. INVALID_PRODUCER_EPOCH for a fenced producer.
        """
        entry = self._producers.get(producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            raise self._fenced(producer_id, epoch, entry.producer_epoch)
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        state = self._verification.get(producer_id)
        if state is None:
            state = VerificationState(now_ms, sequence, epoch, supports_epoch_bump)
            if not self._verification:
                self._verification = {}
            self._verification[producer_id] = state
        else:
            state.note(sequence, epoch)
        return state.guard

    def take_over_verification(self, other: ProducerStateManager) -> None:
        """The partition's log is another one now: producers that wait for verification go on waiting."""
        self._verification = other._verification

    def recall_batches(self, other: ProducerStateManager) -> None:
        """Take the batches before each producer's last one from another state of the same log. A snapshot has the last
        one alone, and a producer may send all again that it has heard nothing of."""
        for producer_id, entry in self._producers.items():
            known = other._producers.get(producer_id)
            if known is not None and known.producer_epoch == entry.producer_epoch:
                # But for the time: a snapshot has the producer's last one, which may be a marker's.
                if [each[:3] for each in known.batches[-1:]] == [each[:3] for each in entry.batches[-1:]]:
                    entry.batches = known.batches[:]

    def check(
        self,
        header: BatchHeader,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard | None = None,
        marker: EndTxnMarker | None = None,
        transaction_version: int = TV_UNKNOWN,
    ) -> BatchMetadata | None:
        """Judge whether the batch may be appended. Returns the earlier batch that it repeats, or None; changes nothing.

        ``header`` has its final offsets. For a control batch give its ``marker``, and on a leader the
        ``transaction_version`` it was written for. Raises ``ApiError``: INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED. A producer of which
        nothing is known may begin with any sequence number: its batches may have been deleted
        (`kbroker.handlers.services.refused_batches` has the exception). Kafka 4 never answers UNKNOWN_PRODUCER_ID here.
        """
        producer_id = header.producer_id
        if producer_id < 0 or origin is AppendOrigin.REPLICATION:
            return None
        entry = self._producers.get(producer_id)
        epoch = header.producer_epoch
        transactional = header.attributes & TRANSACTIONAL_FLAG
        client = origin is AppendOrigin.CLIENT
        base_sequence = header.base_sequence
        if client and entry is not None and epoch == entry.producer_epoch:
            batches = entry.batches
            if (
                batches
                and base_sequence == batches[-1].last_sequence + 1
                and not transactional
                and entry.current_txn_first_offset is None
                and producer_id not in self._verification
            ):
                return None  # the usual case: the next batch in sequence
            duplicate = entry.find_duplicate(epoch, base_sequence, header.last_sequence)
            if duplicate is not None:
                return duplicate

        if transactional and origin is not AppendOrigin.RAFT_LEADER:
            in_transaction = (
                entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == epoch
            )
            if not in_transaction:
                if entry is not None and epoch < entry.producer_epoch:
                    raise self._fenced(producer_id, epoch, entry.producer_epoch)
                if self.transaction_verification and not header.is_control:
                    state = self._verification.get(producer_id)
                    if verification_guard is None or state is None or state.guard is not verification_guard:
                        raise ApiError(
                            ErrorCode.INVALID_TXN_STATE,
                            f"a batch of producer {producer_id} for {self.topic_partition} is not part of an"
                            " ongoing transaction",
                        )

        if header.is_control:
            if marker is not None:
                self._check_marker(header, entry, marker, transaction_version)
            return None

        if entry is not None and epoch < entry.producer_epoch:
            raise self._fenced(producer_id, epoch, entry.producer_epoch)
        if client:
            self._check_sequence(header, entry)
        if entry is not None and entry.current_txn_first_offset is not None and not transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction in {self.topic_partition} and sent a batch"
                " that is not part of it",
            )
        return None

    def _check_sequence(self, header: BatchHeader, entry: ProducerStateEntry | None) -> None:
        first = header.base_sequence
        state = self._verification.get(header.producer_id)
        if state is not None:
            if state.supports_epoch_bump and first != 0 and (entry is None or not entry.batches):
                raise self._out_of_order(header, "a producer of which nothing is known begins with 0")
            if first > state.lowest_sequence:
                raise self._out_of_order(header, f"{state.lowest_sequence} was tried before and comes first")
        if entry is None or entry.producer_epoch == NO_PRODUCER_EPOCH:
            return
        if header.producer_epoch != entry.producer_epoch:
            if first != 0:
                raise self._out_of_order(
                    header, f"epoch {header.producer_epoch} follows {entry.producer_epoch} and begins with 0"
                )
            return
        last = entry.last_sequence
        if first != last + 1 and not (first == 0 and last == _MAX_INT32):
            raise self._out_of_order(header, f"the last one was {last}")

    def _check_marker(
        self, header: BatchHeader, entry: ProducerStateEntry | None, marker: EndTxnMarker, transaction_version: int
    ) -> None:
        if transaction_version == TV_UNKNOWN:
            raise ValueError("a leader must say for which transaction version it writes a marker")
        if entry is None:
            return
        epoch, current = header.producer_epoch, entry.producer_epoch
        if transaction_version >= 2:
            # Version 2 bumps the epoch for each marker, so an equal one is a late marker; unless the
            # transaction has ended already, and then it is a retry that does no harm (KAFKA-19999).
            retry = epoch == current and (entry.current_txn_first_offset is None or epoch == _MAX_INT16)
            if epoch <= current and not retry:
                raise self._fenced(header.producer_id, epoch, current)
        elif epoch < current:
            raise self._fenced(header.producer_id, epoch, current)
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {header.producer_id} in {self.topic_partition} comes from coordinator"
                f" epoch {marker.coordinator_epoch}, behind {entry.coordinator_epoch}",
            )

    def _fenced(self, producer_id: int, epoch: int, current: int) -> ApiError:
        return ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {epoch} of producer {producer_id} in {self.topic_partition} is behind {current}",
        )

    def _out_of_order(self, header: BatchHeader, why: str) -> ApiError:
        return ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence} to {self.topic_partition}: {why}",
        )

    def update(self, header: BatchHeader, marker: EndTxnMarker | None = None) -> CompletedTxn | None:
        """Take in a batch that the log holds now, checked, replicated or replayed.

        For a control batch give its ``marker`` (None if compaction emptied it). Returns the transaction that
        it ended; one that never wrote to this partition leaves no trace.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        transactional = header.attributes & TRANSACTIONAL_FLAG
        control = header.attributes & CONTROL_FLAG
        if self._verification and transactional:
            state = self._verification.get(producer_id)
            # With version 2 a marker's epoch may be that of the next transaction, which waits for its answer.
            if state is not None and not (
                control and state.supports_epoch_bump and header.producer_epoch == state.epoch
            ):
                del self._verification[producer_id]
        if control and marker is None:
            return None
        entry = self._producers.get(producer_id)
        if entry is None:
            self._producers = self._producers or {}
            entry = self._producers[producer_id] = ProducerStateEntry(producer_id)
        if marker is not None:
            completed = None
            if entry.current_txn_first_offset is not None:
                completed = CompletedTxn(
                    producer_id, entry.current_txn_first_offset, header.base_offset, not marker.commit
                )
            if header.producer_epoch != entry.producer_epoch:
                entry.producer_epoch = header.producer_epoch
                entry.batches.clear()
            entry.coordinator_epoch = marker.coordinator_epoch
            entry.last_timestamp = marker.timestamp
            entry.current_txn_first_offset = None
            return completed
        base_offset = header.base_offset
        delta = header.last_offset_delta
        last_sequence = NO_SEQUENCE if header.base_sequence < 0 else (header.base_sequence + delta) & _MAX_INT32
        entry.add_batch(
            header.producer_epoch, BatchMetadata(last_sequence, base_offset + delta, delta, header.max_timestamp)
        )
        if transactional and entry.current_txn_first_offset is None:
            entry.current_txn_first_offset = base_offset
            if not self._ongoing:
                self._ongoing = {}
            self._ongoing[base_offset] = producer_id
        return None

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """The last stable offset after this transaction, which has ended and is not yet completed here."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete_txn(self, completed: CompletedTxn) -> None:
        """The transaction is over; it bounds the first unstable offset until its marker is replicated."""
        if not self._ongoing or self._ongoing.pop(completed.first_offset, None) is None:
            raise ValueError(f"{completed} in {self.topic_partition} was not begun")
        if not self._unreplicated:
            self._unreplicated = {}
        self._unreplicated[completed.first_offset] = completed.last_offset

    def update_map_end_offset(self, offset: int) -> None:
        """The log up to ``offset`` (exclusive) is reflected; to be said after each append, also by others."""
        self._map_end_offset = offset

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Markers below are replicated, and their transactions stable."""
        if self._unreplicated:
            for first_offset, last_offset in list(self._unreplicated.items()):
                if last_offset < high_watermark:
                    del self._unreplicated[first_offset]

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Records below are gone. Producers are kept: they expire by time alone."""
        self.on_high_watermark_updated(log_start_offset)
        self._map_end_offset = max(self._map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_expired_producers(self, now_ms: int) -> int:
        """Forget producers idle for ``producer.id.expiration.ms`` with no open transaction; how many."""
        expired = [id for id, entry in self._producers.items() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        for producer_id, state in list(self._verification.items()):
            if now_ms - state.timestamp >= self.producer_id_expiration_ms:
                del self._verification[producer_id]
        return len(expired)

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return (
            entry.current_txn_first_offset is None and now_ms - entry.last_timestamp >= self.producer_id_expiration_ms
        )

    # Snapshots

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Write the state at ``map_end_offset`` unless the latest snapshot reaches as far; its path."""
        if self._map_end_offset <= self._last_snapshot_offset:
            return None
        path = self.snapshots.write(self._map_end_offset, encode_snapshot(self._producers.values()), sync=sync)
        self._last_snapshot_offset = self._map_end_offset
        return path

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Make the state fit a log of these bounds, from the latest snapshot in them.

        Afterwards ``map_end_offset`` says from where the log is to be replayed (``update`` with each batch
        that has a producer id). The log end must not be above the high watermark.
        """
        snapshots = self.snapshots
        for offset in snapshots.offsets:
            if offset > log_end_offset or offset <= log_start_offset:
                snapshots.remove(offset)
        if log_end_offset == self._map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self._clear()
        while (latest := snapshots.latest) is not None:
            try:
                entries = decode_snapshot(snapshots.read(latest))
            except (CorruptSnapshot, FileNotFoundError) as error:
                logger.warning("producer snapshot %s is left out: %s", snapshots.path(latest), error)
                snapshots.remove(latest)
                continue
            kept = {entry.producer_id: entry for entry in entries if not self._is_expired(entry, now_ms)}
            self._producers = kept or _NONE
            self.is_from_snapshot = bool(kept)
            open_transactions = [
                (entry.current_txn_first_offset, entry.producer_id)
                for entry in self._producers.values()
                if entry.current_txn_first_offset is not None
            ]
            self._ongoing = dict(sorted(open_transactions)) or _NONE
            self._last_snapshot_offset = self._map_end_offset = latest
            return
        self._last_snapshot_offset = self._map_end_offset = log_start_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """The log is empty now and goes on at ``offset``: no producers, no snapshots."""
        self._clear()
        for snapshot in self.snapshots.offsets:
            self.snapshots.remove(snapshot)
        self._last_snapshot_offset = 0
        self._map_end_offset = offset

    def _clear(self) -> None:
        self.is_from_snapshot = False
        self._producers = self._ongoing = self._unreplicated = _NONE
