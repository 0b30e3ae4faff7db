"""Bounds of replication in bytes a second: the throttles of reassignments (KIP-73) and of moves between log dirs.

Pure: the time is an argument. Rules: Kafka's ``ReplicationQuotaManager``, whose rate is a ``SimpleRate`` over samples.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.security.quotas.samples import SampledSum

UNLIMITED = 2**63 - 1
"""The rate of a throttle that is not set (``QuotaConfig.QUOTA_BYTES_PER_SECOND_DEFAULT``)."""


class SimpleRate:
    """Units a second since the oldest sample that still counts, which is taken to be one window old at least.

    ``samples`` windows of ``window_ms`` count, and one more that only overlaps them.
    """

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = SampledSum(samples, window_ms)
        self._window_ms = window_ms

    def record(self, value: int, now_ms: int) -> None:
        """Count ``value`` units."""
        self._samples.record(value, now_ms)

    def measure(self, now_ms: int) -> tuple[int, int]:
        """The units counted, and the milliseconds that they are spread over."""
        total, elapsed_ms = self._samples.measure(now_ms)
        return int(total), max(elapsed_ms, self._window_ms)


class ReplicationQuota:
    """One kind of traffic of this broker: what it serves to followers, what it fetches, or what it moves.

    All traffic of throttled partitions counts. Replicas in sync are never held back: callers check
    :meth:`is_throttled` and :meth:`is_exceeded` for replicas that are not in sync only.
    """

    def __init__(self, samples: int, window_seconds: int) -> None:
        self._rate = SimpleRate(samples, window_seconds * 1000)
        self._throttled: dict[str, frozenset[int] | None] = {}
        self.bound = UNLIMITED
        """Bytes a second."""

    @property
    def is_active(self) -> bool:
        """Whether any partition is throttled."""
        return bool(self._throttled)

    def throttle(self, topic: str, partitions: Iterable[int] | None) -> None:
        """Throttle these partitions of a topic, and no others of it; None: all."""
        self._throttled[topic] = None if partitions is None else frozenset(partitions)

    def unthrottle(self, topic: str) -> None:
        """Throttle no partition of the topic any more."""
        self._throttled.pop(topic, None)

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether a partition is throttled: its traffic counts."""
        if topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or partition in partitions

    def record(self, size: int, now_ms: int) -> None:
        """Count ``size`` bytes of traffic, also beyond the bound."""
        self._rate.record(size, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether the rate is above the bound."""
        if self.bound == UNLIMITED:
            return False
        total, elapsed_ms = self._rate.measure(now_ms)
        return total * 1000 > self.bound * elapsed_ms

    def wait_ms(self, now_ms: int, at_most_ms: int) -> int:
        """Milliseconds until the rate is within its bound if nothing is added, at most ``at_most_ms``; 0 if it is."""
        if not self.is_exceeded(now_ms):
            return 0
        total, elapsed_ms = self._rate.measure(now_ms)
        if not self.bound:
            return at_most_ms
        return min(max(-(-total * 1000 // self.bound) - elapsed_ms, 1), at_most_ms)


def parse_throttled_replicas(text: str, broker_id: int) -> frozenset[int] | None:
    """The partitions that ``leader.`` or ``follower.replication.throttled.replicas`` names for a broker; None: all.

    Entries that are no ``partition:broker`` are skipped: an earlier release accepted them.
    """
    if text.strip() == "*":
        return None
    found = set()
    for entry in text.split(","):
        partition, _, broker = entry.strip().partition(":")
        if partition.isdecimal() and broker.isdecimal() and int(broker) == broker_id:
            found.add(int(partition))
    return frozenset(found)
