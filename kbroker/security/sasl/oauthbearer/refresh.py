"""When a provider is asked for its keys: in a rhythm, after a failure, and when a token names a key that is not known.

Anybody can send tokens with any key's name, so those have the provider asked now and then alone.
"""

from __future__ import annotations

from typing import Final

MIN_UNKNOWN_SECONDS: Final = 10.0
"""Seconds between two questions that tokens cause, whoever sends them (Kafka: 60 for each of 16 names)."""


class RefreshTimes:
    """The times of one provider's questions, in seconds of a clock that is never set."""

    def __init__(self, refresh: float, backoff: float, longest_backoff: float) -> None:
        """``refresh`` is between two questions; the backoffs are after one that failed, each the double of the last."""
        self._refresh = refresh
        self._first_backoff = backoff
        self._longest_backoff = longest_backoff
        self._backoff = backoff
        self._asked_for_unknown: float | None = None
        self.next_at = 0.0
        """When the provider is to be asked next."""

    def succeeded(self, now: float) -> None:
        """The provider has answered."""
        self._backoff = self._first_backoff
        self.next_at = now + self._refresh

    def failed(self, now: float) -> None:
        """The provider has not answered, or not with keys."""
        self.next_at = now + self._backoff
        self._backoff = min(2 * self._backoff, self._longest_backoff)

    def may_ask_for_unknown(self, now: float) -> bool:
        """Whether a token with an unknown key has the provider asked now; if so, the next one does not for a while."""
        if self._asked_for_unknown is not None and now < self._asked_for_unknown + MIN_UNKNOWN_SECONDS:
            return False
        self._asked_for_unknown = now
        return True
