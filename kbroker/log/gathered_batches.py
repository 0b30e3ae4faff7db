"""Small batches that clients produce in one round of the poller, written together at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.log.validation import validate_and_assign_offsets

if TYPE_CHECKING:
    from kbroker.log.partition_log import PartitionLog
    from kbroker.log.validated_batches import ValidatedBatches


SMALL_BATCH: Final = 16 * 1024
"""Bytes of the largest batch to gather: up to here a copy and its share of a write cost less than a system call."""


class GatheredBatches:
    """Produced batches that have been judged and have their offsets, but are not in the log yet.

    Nothing else may be appended to the log until `write` is done. Each batch is judged as if those before it were in
    the log already, so that only the disk can refuse it afterwards.
    """

    __slots__ = ("_judged", "_leader_epoch", "_log", "_next_offset", "_producers", "size")

    def __init__(self, log: PartitionLog, leader_epoch: int) -> None:
        self._log = log
        self._leader_epoch = leader_epoch
        self._next_offset = log.log_end_offset
        self._judged: list[ValidatedBatches] = []
        self._producers: set[int] = set()
        self.size = 0
        """Bytes of all of them."""

    def add(self, records: bytearray, now_ms: int) -> ValidatedBatches | None:
        """Judge a batch, patch it in place and take it; `write` stores it.

        None, and not taken: the log has it already, or its producer has another one among those that are gathered.
        ``ApiError`` as ``append_as_leader``, and not taken.
        """
        log = self._log
        validated = validate_and_assign_offsets(
            records,
            next_offset=self._next_offset,
            leader_epoch=self._leader_epoch,
            now_ms=now_ms,
            config=log.config,
            topic_partition=log.topic_partition,
        )
        producer_id = validated.batches[0].producer_id
        if producer_id >= 0:
            if producer_id in self._producers or log.producers.check(validated.batches[0]) is not None:
                return None
            self._producers.add(producer_id)
        self._judged.append(validated)
        self._next_offset = validated.last_offset + 1
        self.size += len(validated.records)
        return validated

    @property
    def converted(self) -> int:
        """Records of all of them that were compressed anew."""
        return sum(each.converted for each in self._judged)

    def write(self, now_ms: int) -> None:
        """Write all of them. ``OSError``: the disk refuses, and some of them may be in the log."""
        if self._judged:
            self._log.append_together(self._judged, now_ms)
