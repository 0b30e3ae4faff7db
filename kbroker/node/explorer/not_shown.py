"""Requests that are counted and not shown, by API key and by the reason why they are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from kbroker.observe.explorer.exchange import Skipped

TOO_FAST: Final = "a node spends 2% of a processor on showing requests"
TOO_FAST_OF_OTHERS: Final = f"{TOO_FAST}, of other watchers' clients, too"

MAX_PENDING_BYTES: Final = 16 << 20
"""Bytes of requests that are seen and not answered yet. Others are counted and not seen until some are."""

UNANSWERED: Final = f"{MAX_PENDING_BYTES >> 20} MiB of requests that are to be shown wait for their answers"


class Missed:
    """Those of one kind of listener since the watchers were last told, by the low byte of the API key."""

    __slots__ = ("of_controllers", "too_fast", "unanswered")

    def __init__(self, *, of_controllers: bool) -> None:
        self.of_controllers = of_controllers
        """Whether they came in on listeners of controllers."""
        self.too_fast = [0] * 256
        """For lack of the processor time that may be spent."""
        self.unanswered = [0] * 256
        """While too many that are seen have no answer yet."""

    def clear(self) -> None:
        """Forget them."""
        self.too_fast[:] = self.unanswered[:] = bytes(256)


class Untold:
    """Those of which one watcher has not been told."""

    def __init__(self) -> None:
        self._too_fast: Counter[int] = Counter()
        self._unanswered: Counter[int] = Counter()

    def add(self, missed: Missed) -> None:
        """Add some."""
        for told, counts in ((self._too_fast, missed.too_fast), (self._unanswered, missed.unanswered)):
            if any(counts):
                told.update({key: count for key, count in enumerate(counts) if count})

    def take(self, api_keys: Collection[int] | None, *, of_others: bool) -> list[Skipped]:
        """Tell those of some APIs, or of all, and forget the rest. ``of_others``: some may be of others' clients."""
        why = TOO_FAST_OF_OTHERS if of_others else TOO_FAST
        found = []
        for counts, reason in ((self._too_fast, why), (self._unanswered, UNANSWERED)):
            told = {key: count for key, count in counts.items() if api_keys is None or key in api_keys}
            counts.clear()
            if told:
                found.append(Skipped(told, reason))
        return found
