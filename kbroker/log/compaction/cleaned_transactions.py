"""Transactions during compaction, as it goes through a log from the start to the end."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kbroker.log.segments.transaction_index import AbortedTxn
from kbroker.wire.batch_header import TRANSACTIONAL_FLAG, BatchHeader
from kbroker.wire.control_batch import ControlRecordType, parse_control_record
from kbroker.wire.record_batch import Record


class CleanedTransactions:
    """Finds batches of aborted transactions, and markers that nothing refers to any more
    (Kafka's ``CleanedTransactionMetadata``)."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._to_come = [(txn.first_offset, txn) for txn in aborted]
        heapq.heapify(self._to_come)
        self._aborted: dict[int, AbortedTxn] = {}
        """Producer id -> its aborted transaction, until the marker."""
        self._observed: set[int] = set()
        """Producers whose aborted transaction still has batches."""
        self._committed: set[int] = set()
        """Producers of whose committed (or not aborted) transaction a batch was seen."""

    def _advance(self, offset: int) -> None:
        to_come = self._to_come
        while to_come and to_come[0][0] <= offset:
            _, txn = heapq.heappop(to_come)
            self._aborted.setdefault(txn.producer_id, txn)

    def on_batch(self, header: BatchHeader) -> bool:
        """Whether a data batch is part of an aborted transaction."""
        if self._to_come:
            self._advance(header.last_offset)
        if not header.attributes & TRANSACTIONAL_FLAG:
            return False
        if header.producer_id in self._aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control_batch(self, header: BatchHeader, record: Record | None) -> tuple[bool, AbortedTxn | None]:
        """Whether nothing that a marker refers to is left; and the entry that the transaction index has to keep.

        ``record`` is the one in the batch, ``None`` if compaction has emptied it before.
        """
        if self._to_come:
            self._advance(header.last_offset)
        if record is None:
            return True, None
        producer_id = header.producer_id
        control_type = parse_control_record(record)
        if control_type == ControlRecordType.ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is not None and producer_id in self._observed:
                self._observed.discard(producer_id)
                return False, aborted
            return True, None
        if control_type == ControlRecordType.COMMIT:
            if producer_id in self._committed:
                self._committed.discard(producer_id)
                return False, None
            return True, None
        return False, None
