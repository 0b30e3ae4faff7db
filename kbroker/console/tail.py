"""The live tail: records as they come, at a pace that a page can show, with a count of what it does not show."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kbroker.client import Client
from kbroker.client.reader import Reader, Skipped
from kbroker.console.scan import Found, Look, ranges
from kbroker.wire.batch_header import BatchHeader

STEP_SECONDS: Final = 0.25
STEP_RECORDS: Final = 50
"""Records that one step shows; what else came in it is counted."""

_PAUSE_SECONDS: Final = 0.05
"""Seconds between two fetches of what is only counted: more comes with each, and the page and the broker have less to
do."""

_CHECK_SECONDS: Final = 1.0
_MAX_BEHIND: Final = 100_000
"""Offsets that a partition may be ahead; then the tail jumps to its end, and counts them as not shown."""


@dataclass(slots=True)
class NotShown:
    """Offsets of a partition between ``first`` and ``last`` of which ``count`` records are not shown."""

    first: int
    last: int
    count: int


@dataclass(slots=True)
class Step:
    """The records of a step. ``positions``: where the tail goes on, exactly, if it is interrupted now."""

    records: list[Found] = field(default_factory=list)
    not_shown: dict[int, NotShown] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    seen: int = 0
    """Records that came, whether they fit or not."""

    def skip(self, partition: int, first: int, last: int, count: int) -> None:
        """Count records that are not shown."""
        known = self.not_shown.get(partition)
        if known is None:
            self.not_shown[partition] = NotShown(first, last, count)
        else:
            known.first, known.last, known.count = min(known.first, first), max(known.last, last), known.count + count


class Tail:
    """Follows partitions of a topic; each ``step`` blocks for about a quarter of a second."""

    def __init__(self, client: Client, look: Look, positions: Mapping[int, int]) -> None:
        self._client = client
        self._look = look
        self._checked = time.monotonic()
        self._step = Step()
        self._coming = 0
        """Records of this step that are cut out of their batches."""
        self._reader = Reader(
            client,
            look.topic,
            positions,
            read_committed=look.read_committed,
            partition_bytes=512 << 10,
            max_bytes=8 << 20,
            max_wait_ms=int(STEP_SECONDS * 1000),
            wants=self._wants,
        )

    @property
    def _is_full(self) -> bool:
        """Whether all records of this step that will be shown are there; a filter has to see each of them."""
        return self._coming >= STEP_RECORDS and self._look.fits is None

    def _wants(self, partition: int, header: BatchHeader) -> bool:
        """Whether a batch may be shown. Otherwise its header says how many records are not."""
        if not self._is_full:
            self._coming += header.records_count
            return True
        self._step.seen += header.records_count
        self._step.skip(partition, header.base_offset, header.last_offset, header.records_count)
        return False

    def step(self) -> Step:
        """The records since the last step; ``ClientError`` if the cluster cannot be asked for long."""
        step = self._step = Step()
        self._coming = 0
        until = time.monotonic() + STEP_SECONDS
        while (left := until - time.monotonic()) > 0:
            if is_full := self._is_full:
                time.sleep(min(left, _PAUSE_SECONDS))
            for chunk in self._reader.poll(0 if is_full else left):
                if isinstance(chunk, Skipped):
                    step.notes.append(
                        f"partition {chunk.partition}: offsets {chunk.wanted} to {chunk.start - 1} are gone"
                    )
                    continue
                step.seen += len(chunk.records)
                for index, record in enumerate(chunk.records):
                    if len(step.records) >= STEP_RECORDS and self._look.fits is None:
                        # Nobody sees it: it need not be judged.
                        last = chunk.records[-1].offset
                        step.skip(chunk.partition, record.offset, last, len(chunk.records) - index)
                        break
                    found = self._look.sift(chunk.partition, record, chunk.timestamp_type)
                    if found is None:
                        continue
                    if len(step.records) < STEP_RECORDS:
                        step.records.append(found)
                    else:
                        step.skip(chunk.partition, record.offset, record.offset, 1)
        if time.monotonic() - self._checked >= _CHECK_SECONDS:
            self._catch_up(step)
        step.positions = dict(self._reader.positions)
        return step

    def _catch_up(self, step: Step) -> None:
        """Jump to the end of partitions that are too far ahead."""
        self._checked = time.monotonic()
        if not step.seen:
            return
        positions = self._reader.positions
        ends = ranges(self._client, self._look.topic, list(positions), read_committed=self._look.read_committed)
        for partition, (_, end) in ends.items():
            behind = end - positions[partition]
            if behind > _MAX_BEHIND:
                step.skip(partition, positions[partition], end - 1, behind)
                positions[partition] = end

    def close(self) -> None:
        """Give up what is under way."""
        self._reader.close()
