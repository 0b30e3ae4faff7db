"""Records of one topic into another: read, judged, sent, at a pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from kbroker.client.producer import Producer
from kbroker.client.reader import Chunk, Reader, Skipped
from kbroker.client.records_io.copy_position import CopyProgress, source_of
from kbroker.client.records_io.sieve import Sieve

_WAIT_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 0.05
"""Before a pause of this length what waits is sent: a batch may take minutes to fill at a low rate."""


class Pace:
    """Tells how long to wait. Time that was not used is not made up for beyond a tenth of a second."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._next = now

    def wait_for(self, count: int, now: float) -> float:
        """Seconds to wait before the next ``count`` records."""
        self._next = max(self._next, now - 0.1)
        wait = max(0.0, self._next - now)
        self._next += count / self._per_second
        return wait


class Replay:
    """Copies what a reader gives to a producer. Keys, headers and timestamps stay; values are never those decoded.

    Reader and producer have a client each: they would take each other's answers.
    """

    def __init__(
        self,
        reader: Reader,
        producer: Producer,
        sieve: Sieve,
        *,
        keep_partitions: bool = False,
        per_second: float | None = None,
        course: CopyProgress | None = None,
        again: Reader | None = None,
        caught_up: Callable[[], None] = lambda: None,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``per_second`` bounds the records that are sent; ``wait`` pauses, and may raise to end it.

        ``again`` reads, before all others, what an earlier replay has left; of that, what ``course`` wants is sent.
        ``caught_up`` is called after that.
        """
        self._reader = reader
        self._again = again
        self._caught_up = caught_up
        self._course = CopyProgress() if course is None else course
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
        self.is_catching_up = again is not None
        """Whether it is at what an earlier replay has left."""
        self.skipped: list[Skipped] = []
        """Offsets that were gone when they were to be read."""

    def run(self) -> Iterator[None]:
        """Copy to the end, with a step for each chunk; what was sent may still be on its way then. ``ClientError``."""
        if self._again is not None:
            yield from self._read(self._again, self._course.wants)
            self._again.close()  # an answer that it waits for is none of the other reader's
        if not self.stopped:
            self._caught_up()
            self.is_catching_up = False
        yield from self._read(self._reader, None)

    @property
    def is_whole(self) -> bool:
        """Whether all was looked at."""
        return self._reader.finished and not self.stopped

    def _read(self, reader: Reader, wants: Callable[[int], bool] | None) -> Iterator[None]:
        while not reader.finished and not self.stopped:
            for chunk in reader.poll(_WAIT_SECONDS):
                if isinstance(chunk, Skipped):
                    self.skipped.append(chunk)
                else:
                    self._copy(chunk, wants)
                if self.stopped:
                    break
            yield

    def _copy(self, chunk: Chunk, wants: Callable[[int], bool] | None) -> None:
        partition, seen = chunk.partition, -1
        try:
            for record in chunk.records:
                if self.stopped:
                    return
                source = source_of(partition, record.offset)
                if wants is not None and not wants(source):
                    continue
                self.looked_at += 1
                if self._sieve.fits is not None and self._sieve.sift(partition, record) is None:
                    seen = record.offset
                    continue
                self._slow_down()
                if self.stopped:
                    return
                seen = record.offset
                if wants is not None:
                    self._course.given(source)
                self._producer.send(record, source, partition if self._keep_partitions else None)
                self.sent += 1
        finally:
            self._course.passed(partition, seen + 1)

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
