"""The times for which no member of a group is asked for the description of its topology (KIP-1331).

Kafka's ``StreamsGroupTopologyDescriptionBackoff`` (4.4).
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from kbroker.base.exponential_backoff import exponential_backoff

INITIAL_BACKOFF_MS: Final = 30_000
MAX_BACKOFF_MS: Final = 3_600_000
_JITTER: Final = 0.2


class _Window(NamedTuple):
    topology_epoch: int
    attempts: int
    until_ms: int


class Backoff:
    """When members of a group are asked for a description again, by group; not stored."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._windows: dict[str, _Window] = {}

    def begin(self, group_id: str, topology_epoch: int, now_ms: int) -> bool:
        """Begin a time of silence, unless there is one for the epoch; whether it has begun."""
        window = self._windows.get(group_id)
        if window is not None and window.topology_epoch == topology_epoch and now_ms < window.until_ms:
            return False
        self._windows[group_id] = self._next(window, topology_epoch, now_ms)
        return True

    def extend(self, group_id: str, topology_epoch: int, now_ms: int) -> None:
        """Begin a time of silence, or a longer one; nothing if there is one for a later epoch."""
        window = self._windows.get(group_id)
        if window is None or window.topology_epoch <= topology_epoch:
            self._windows[group_id] = self._next(window, topology_epoch, now_ms)

    def is_silent(self, group_id: str, topology_epoch: int, now_ms: int) -> bool:
        """Whether there is a time of silence for the epoch."""
        window = self._windows.get(group_id)
        return window is not None and window.topology_epoch == topology_epoch and now_ms < window.until_ms

    def end(self, group_id: str, topology_epoch: int | None = None) -> None:
        """Forget the group; with an epoch only a time of silence for it."""
        window = self._windows.get(group_id)
        if window is not None and topology_epoch in (None, window.topology_epoch):
            del self._windows[group_id]

    def _next(self, window: _Window | None, topology_epoch: int, now_ms: int) -> _Window:
        attempts = 0
        if window is not None and window.topology_epoch == topology_epoch:
            attempts = window.attempts + 1
        regular = exponential_backoff(INITIAL_BACKOFF_MS, attempts, MAX_BACKOFF_MS)
        delay = min(regular * self._rng.uniform(1 - _JITTER, 1 + _JITTER), MAX_BACKOFF_MS)
        return _Window(topology_epoch, attempts, now_ms + int(delay))
