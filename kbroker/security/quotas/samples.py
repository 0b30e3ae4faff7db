"""Units counted in windows of time (Kafka's ``SampledStat``)."""

from __future__ import annotations


class _Sample:
    """The units counted in one window."""

    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_event_ms = now_ms
        self.value: float = 0


class SampledSum:
    """The units of the last ``samples`` windows of ``window_ms``, and of one more that only overlaps them."""

    __slots__ = ("_current", "_expire_ms", "_samples", "_window_ms", "max_samples")

    def __init__(self, samples: int, window_ms: int) -> None:
        self.max_samples = samples + 1
        self._window_ms = window_ms
        self._expire_ms = samples * window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count ``value`` units."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % self.max_samples
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The units that still count, and the milliseconds since the oldest window that does began."""
        total, oldest_ms = 0.0, now_ms
        for sample in self._samples:
            if now_ms - sample.last_event_ms >= self._expire_ms:
                sample.reset(now_ms)
            total += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
        return total, now_ms - oldest_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing that was recorded counts any more."""
        return all(now_ms - sample.last_event_ms >= self._expire_ms for sample in self._samples)
