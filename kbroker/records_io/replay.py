"""Records of one topic into another: read, judged, sent, at a pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from kbroker.client.producer import Producer
from kbroker.client.reader import Chunk, Reader, Skipped
from kbroker.records_io.pace import Pace
from kbroker.records_io.sieve import Sieve

_WAIT_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 0.05
"""Before a pause of this length what waits is sent: a batch may take minutes to fill at a low rate."""

_PARTITION_SHIFT: Final = 64


def source_of(partition: int, offset: int) -> int:
    """The number with which a record is sent, so that a refusal tells where it comes from."""
    return partition << _PARTITION_SHIFT | offset


def place_of(source: int) -> tuple[int, int]:
    """Partition and offset of the number of :func:`source_of`."""
    return source >> _PARTITION_SHIFT, source & (1 << _PARTITION_SHIFT) - 1


class Replay:
    """Copies what a reader gives to a producer. Keys, headers and timestamps stay; values are never those decoded."""

    def __init__(
        self,
        reader: Reader,
        producer: Producer,
        sieve: Sieve,
        *,
        keep_partitions: bool = False,
        per_second: float | None = None,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``per_second`` bounds the records that are sent; ``wait`` pauses, and may raise to end it."""
        self._reader = reader
        self._producer = producer
        self._sieve = sieve
        self._keep_partitions = keep_partitions
        self._wait = wait
        self._clock = clock
        self._pace = None if per_second is None else Pace(per_second, clock())
        self.stopped = False
        """Set it to end after the record at hand."""
        self.looked_at = 0
        self.sent = 0
        self.waiting = False
        """Whether it pauses now, so that an interruption may be raised without harm."""
        self.skipped: list[Skipped] = []
        """Offsets that were gone when they were to be read."""

    def run(self) -> Iterator[None]:
        """Copy to the end, with a step for each chunk; what was sent may still be on its way then. ``ClientError``."""
        while not self._reader.finished and not self.stopped:
            for chunk in self._reader.poll(_WAIT_SECONDS):
                if isinstance(chunk, Skipped):
                    self.skipped.append(chunk)
                else:
                    self._copy(chunk)
                if self.stopped:
                    break
            yield

    def _copy(self, chunk: Chunk) -> None:
        partition = chunk.partition
        for record in chunk.records:
            if self.stopped:
                return
            self.looked_at += 1
            if self._sieve.fits is not None and self._sieve.sift(partition, record) is None:
                continue
            self._slow_down()
            if self.stopped:
                return
            to = partition if self._keep_partitions else None
            self._producer.send(record, source_of(partition, record.offset), to)
            self.sent += 1

    def _slow_down(self) -> None:
        if self._pace is None:
            return
        pause = self._pace.wait_for(1, self._clock())
        if pause >= _FLUSH_SECONDS:
            self._producer.flush()
        if pause > 0:
            # In this order: whoever asks to stop now is either seen here, or sees that it waits.
            self.waiting = True
            if not self.stopped:
                self._wait(pause)
            self.waiting = False
