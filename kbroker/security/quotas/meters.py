"""The measures of quotas: a rate over windows (KIP-13), or a bucket of tokens (KIP-599)."""

from __future__ import annotations

from math import floor

from kbroker.security.quotas.samples import SampledSum

MAX_THROTTLE_MS = 2**31 - 1
"""The most that an answer can tell."""


class QuotaRate:
    """Units a second, over windows of which all but the last are always taken to be whole (Kafka's ``Rate``)."""

    __slots__ = ("_samples", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = SampledSum(samples, window_ms)
        self._window_ms = window_ms

    def record(self, value: float, now_ms: int) -> None:
        """Count ``value`` units; fewer than 0 to take back what was counted."""
        self._samples.record(value, now_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Milliseconds until the rate is ``bound`` units a second again if nothing is added; 0 if it is no more.

        The rule is that of Kafka's ``QuotaUtils.throttleTime``.
        """
        total, elapsed_ms = self._samples.measure(now_ms)
        missing = self._samples.max_samples - 2 - elapsed_ms // self._window_ms
        elapsed_ms = max(elapsed_ms + max(missing, 0) * self._window_ms, 1)
        rate = total * 1000 / elapsed_ms
        if not rate > bound:
            return 0
        return MAX_THROTTLE_MS if bound <= 0 else _milliseconds((rate - bound) / bound * elapsed_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is as good as new."""
        return self._samples.is_idle(now_ms)


class TokenBucket:
    """Tokens that come at a rate of ``bound`` a second, and are kept for ``samples`` windows; it may go below 0.

    It is full at first. The rate is an argument each time, as it may change (Kafka's ``TokenBucket``).
    """

    __slots__ = ("_kept_s", "_tokens", "_updated_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._kept_s = samples * window_ms / 1000
        self._tokens: float | None = None
        self._updated_ms = 0

    def _refill(self, bound: float, now_ms: int) -> float:
        full = self._kept_s * bound
        tokens = full
        if self._tokens is not None:
            tokens = min(full, self._tokens + bound * (now_ms - self._updated_ms) / 1000)
        self._tokens, self._updated_ms = tokens, now_ms
        return tokens

    def take(self, tokens: float, bound: float, now_ms: int) -> None:
        """Take tokens, whether there are that many or not."""
        self._tokens = self._refill(bound, now_ms) - tokens

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Milliseconds until it is not below 0 any more; 0 if it is not."""
        tokens = self._refill(bound, now_ms)
        if tokens >= 0:
            return 0
        return MAX_THROTTLE_MS if bound <= 0 else _milliseconds(-tokens / bound * 1000)

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is as good as new: it would be full with any rate."""
        return self._tokens is None or (self._tokens >= 0 and now_ms - self._updated_ms >= self._kept_s * 1000)


def _milliseconds(value: float) -> int:
    return MAX_THROTTLE_MS if value >= MAX_THROTTLE_MS else floor(value + 0.5)
