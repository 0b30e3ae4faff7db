"""Batches that clients produce at the same time, so that they can be written together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.log.validation import validate_and_assign_offsets

if TYPE_CHECKING:
    from kbroker.log.partition_log import PartitionLog
    from kbroker.log.validated_batches import ValidatedBatches


class GatheredBatches:
    """Produced batches that have been judged and have their offsets, but are not in the log yet.

    Nothing else may be appended to the log until `write` is done. Each is judged as if those before it were in the
    log already, so that only the disk can refuse them any more.
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
        """Judge a batch, which is patched in place; it is stored when `write` has succeeded.

        None: what becomes of it depends on what is not written yet, or it is in the log already. ``ApiError`` as
        ``append_as_leader``. In both cases it is not one of those that will be written.
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

    def write(self, now_ms: int) -> None:
        """Write them all. ``OSError``: the disk refuses, and some of them may be in the log."""
        if self._judged:
            self._log.append_together(self._judged, now_ms)
