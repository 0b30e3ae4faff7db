"""Records and bytes in and out by topic (``BrokerTopicStats``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kbroker.observe.metrics.share_traffic import ShareTraffic


class PartitionRead(Protocol):
    """A partition's part of a Fetch response."""

    error_code: Any
    records: Any


class TopicTraffic:
    """Counts of one topic since this node started. Whoever appends or reads adds to them."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "conversions",
        "failed_fetches",
        "failed_produces",
        "failed_share_acknowledgements",
        "failed_share_fetches",
        "fetches",
        "messages_in",
        "produces",
        "share_acknowledgements",
        "share_fetches",
    )

    def __init__(self) -> None:
        self.bytes_in = self.messages_in = self.produces = self.failed_produces = 0
        self.conversions = 0
        """Records that were compressed anew."""
        self.bytes_out = self.fetches = self.failed_fetches = 0
        self.share_fetches = self.failed_share_fetches = 0
        self.share_acknowledgements = self.failed_share_acknowledgements = 0

    def appended(self, size: int, messages: int, batches: int = 1) -> None:
        """Count an append of ``size`` bytes as leader."""
        self.produces += batches
        self.bytes_in += size
        self.messages_in += messages


class Traffic:
    """The topics' counts, and those of all topics together, which outlive a topic."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self._gone = TopicTraffic()
        self.replication_bytes_in = self.replication_bytes_out = 0
        self.reassignment_bytes_in = self.reassignment_bytes_out = 0
        """Those of replicas that a reassignment adds; they are replication's, too (KIP-352)."""
        self._shares: ShareTraffic | None = None

    @property
    def shares(self) -> ShareTraffic:
        """The counts of share groups, made when the first is served."""
        if self._shares is None:
            from kbroker.observe.metrics.share_traffic import ShareTraffic

            self._shares = ShareTraffic()
        return self._shares

    def of(self, topic: str) -> TopicTraffic:
        """The counts of a topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def sent(self, names: Iterable[str | None], results: Iterable[PartitionRead]) -> None:
        """Count what a consumer gets; the two run parallel."""
        for name, data in zip(names, results, strict=True):
            if name is None:
                continue
            size = len(data.records or ())
            if size:
                topic = self.of(name)
                topic.fetches += 1
                topic.bytes_out += size
            elif data.error_code and name in self.topics:
                self.topics[name].failed_fetches += 1

    def shared(self, topic: str, size: int, *, failed: bool) -> None:
        """Count what a member of a share group gets of a partition."""
        counts = self.of(topic)
        counts.share_fetches += 1
        counts.bytes_out += size
        counts.failed_share_fetches += failed

    def acknowledged(self, topic: str, *, failed: bool) -> None:
        """Count what a member of a share group says of a partition's records."""
        counts = self.of(topic)
        counts.share_acknowledgements += 1
        counts.failed_share_acknowledgements += failed

    def replicated(self, results: Iterable[PartitionRead]) -> None:
        """Count what a follower gets."""
        self.replication_bytes_out += sum(len(data.records or ()) for data in results)

    def forget(self, topic: str) -> None:
        """A topic is deleted: its counts stay in those of all topics."""
        gone = self.topics.pop(topic, None)
        if gone is not None:
            for name in TopicTraffic.__slots__:
                setattr(self._gone, name, getattr(self._gone, name) + getattr(gone, name))

    def total(self, name: str) -> int:
        """A count over all topics, those that are gone included."""
        total: int = sum(getattr(counts, name) for counts in (self._gone, *self.topics.values()))
        return total
