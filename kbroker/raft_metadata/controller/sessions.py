"""Which brokers have shown lately that they live (KIP-631, Kafka's ``BrokerHeartbeatManager``).

Sessions are not in the log: a new active controller gives every broker a whole session from its start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from kbroker.types import Uuid


class Heartbeat(NamedTuple):
    """What a broker says with a heartbeat. ``cordoned_log_dirs`` None: it does not know yet."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None


class BrokerSessions:
    """The time of the last heartbeat of each unfenced broker. Times are milliseconds of a monotonic clock."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._seen: dict[int, int] = {}

    def start(self, broker_ids: Iterable[int], now_ms: int) -> None:
        """This node begins to decide: all that are unfenced get a session."""
        self._seen = dict.fromkeys(broker_ids, now_ms)

    def touch(self, broker_id: int, now_ms: int) -> None:
        """A heartbeat."""
        self._seen[broker_id] = now_ms

    def end(self, broker_id: int) -> None:
        """The broker is fenced, or gone."""
        self._seen.pop(broker_id, None)

    def is_live(self, broker_id: int, now_ms: int) -> bool:
        """Whether the broker's session is not over."""
        seen = self._seen.get(broker_id)
        return seen is not None and now_ms - seen < self._session_timeout_ms

    def expired(self, now_ms: int) -> list[int]:
        """Whose session is over, in order."""
        return sorted(
            broker_id for broker_id, seen in self._seen.items() if now_ms - seen >= self._session_timeout_ms
        )

    def next_deadline(self) -> float:
        """When the first session ends."""
        return min(self._seen.values(), default=math.inf) + self._session_timeout_ms
