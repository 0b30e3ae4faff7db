"""Counts of what this node does for share groups (Kafka's ``ShareGroupMetrics`` and ``ShareCoordinatorMetrics``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kbroker.observe.metrics.histogram import Histogram

ACKNOWLEDGEMENTS = ("Accept", "Release", "Reject", "Renew")
"""Names of the wire's types 1 to 4. A gap (0) is not counted, as in Kafka."""

MOST_GROUPS = 1000
"""Groups whose fetches are counted. Clients name any, and a count takes some KB: that of the longest ago gives way."""


class ShareTraffic:
    """Counts since the first share group was served here. Whoever does it adds to them."""

    def __init__(self) -> None:
        self.acknowledged: Counter[str] = Counter()
        """Records by the name of what a member has said of them."""
        self.loads = Histogram()
        """Times in which share partitions were loaded."""
        self.fetched: dict[str, Histogram] = {}
        """By group, percent of the partitions of a ShareFetch that were read for it; that of the last fetch last."""
        self.letters: Counter[str] = Counter()
        """By group, records that are in a dead-letter topic."""
        self.letter_requests: Counter[str] = Counter()
        """By group, attempts to write some."""
        self.failed_letter_requests: Counter[str] = Counter()
        """By group, those after which the letters were given up."""
        self.state_writes = Histogram()
        """Times in which requests to keep states of share partitions were done, on the coordinator."""
        self.written_states = 0
        """The states in them."""
        self.evicted_sessions = 0
        """Share sessions that ended with their connection."""

    def acknowledge(self, types: Iterable[int], records: int) -> None:
        """Count a batch that a member has acknowledged: a type for each record, or one for all of them."""
        kinds = tuple(types)
        each = records if len(kinds) == 1 else 1
        for kind in kinds:
            if 1 <= kind <= len(ACKNOWLEDGEMENTS):
                self.acknowledged[ACKNOWLEDGEMENTS[kind - 1]] += each

    def fetch(self, group_id: str, read: int, wanted: int) -> None:
        """Count a ShareFetch of so many partitions, of which some were read."""
        ratios = self.fetched.pop(group_id, None)
        if ratios is None:
            ratios = Histogram()
            if len(self.fetched) >= MOST_GROUPS:
                del self.fetched[next(iter(self.fetched))]
        self.fetched[group_id] = ratios
        ratios.observe(100 * read // wanted)

    def wrote_states(self, count: int, seconds: float) -> None:
        """Count a request to keep so many states."""
        self.written_states += count
        self.state_writes.observe_seconds(seconds)


class SharePartitionTraffic:
    """Counts of one share partition, which last as long as its leader has it in memory (``SharePartitionMetrics``)."""

    def __init__(self) -> None:
        self.expired_locks = 0
        """Records whose members have held them for too long."""
        self.batch_sizes = Histogram()
        """Records that were handed out together."""
