"""The live tail: records as they come, at a pace that a page can show, with a count of what it does not show."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kbroker.client import Client, ClientError, ResponseError
from kbroker.client.patience import patience
from kbroker.client.reader import Reader, Skipped
from kbroker.client.topics import LATEST, list_offsets
from kbroker.tools.console.scan import Found, RecordView
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import BatchHeader

STEP_SECONDS: Final = 0.25
STEP_RECORDS: Final = 50
"""Records that one step shows; what else came in it is counted."""

_PAUSE_SECONDS: Final = 0.05
"""Seconds between two fetches of what is only counted: more comes with each, and the page and the broker have less to
do."""

_CHECK_SECONDS: Final = 1.0
_PATIENCE: Final = 1.5
"""Seconds that leaders are waited for when they are asked for ends: what others have meanwhile is to be seen."""

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

    def __init__(
        self, client: Client, look: RecordView, positions: Mapping[int, int], without: Iterable[int] = ()
    ) -> None:
        """``without``: partitions without a place, followed from their ends once they have leaders."""
        self._client = client
        self._look = look
        self._without = set(without)
        self._leaderless: set[int] = set()
        self._suspected: set[int] = set()
        self._checked = 0.0
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
    def begun(self) -> Step:
        """A step without records that tells where the tail begins, and which partitions have no place yet."""
        notes = [
            f"partition {partition} has no leader: it is followed from its end once it has one"
            for partition in sorted(self._without)
        ]
        return Step(notes=notes, positions=dict(self._reader.positions))

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
            self._checked = time.monotonic()
            self._look_for_leaders(step)
            self._catch_up(step)
        step.positions = dict(self._reader.positions)
        return step

    def _catch_up(self, step: Step) -> None:
        """Jump to the end of partitions that are too far ahead."""
        if not step.seen:
            return
        positions = self._reader.positions
        for partition, end in self._ends(set(positions) - self._leaderless - self._suspected).items():
            behind = end - positions[partition]
            if behind > _MAX_BEHIND:
                step.skip(partition, positions[partition], end - 1, behind)
                self._reader.seek(partition, end)

    def _look_for_leaders(self, step: Step) -> None:
        """Tell which partitions wait for a leader, and follow those that had none, from where they are to begin."""
        gone = {each for each in self._reader.positions if self._client.leader(self._name(each)) is None}
        # One that changes hands has none for a moment: it is told of when it is met again.
        for partition in sorted((gone & self._suspected) - self._leaderless):
            place = self._reader.positions[partition]
            step.notes.append(f"partition {partition} has no leader: its place, offset {place}, is kept")
            self._leaderless.add(partition)
        for partition in sorted(self._leaderless - gone):
            step.notes.append(f"partition {partition} has a leader again, and goes on")
            self._leaderless.remove(partition)
        self._suspected = gone
        for partition, end in sorted(self._ends(self._without).items()):
            step.notes.append(f"partition {partition} has a leader now: followed from offset {end} on")
            self._reader.seek(partition, end)
            self._without.remove(partition)

    def _ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Partition -> its end, of those that can be asked."""
        names = [self._name(each) for each in partitions]
        try:
            with patience(self._client, _PATIENCE):
                if any(self._client.leader(name) is None for name in names):
                    self._client.refresh([self._look.topic])
                    names = [name for name in names if self._client.leader(name) is not None]
                asked = dict.fromkeys(names, LATEST)
                told = list_offsets(self._client, asked, read_committed=self._look.read_committed) if asked else {}
        except ClientError:
            return {}  # a broker that is down, or not up yet: they are asked again
        return {name.partition: each.offset for name, each in told.items() if not isinstance(each, ResponseError)}

    def _name(self, partition: int) -> TopicPartition:
        return TopicPartition(self._look.topic, partition)

    def close(self) -> None:
        """Give up what is under way."""
        self._reader.close()
