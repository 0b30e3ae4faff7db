"""Reports about compaction: what transactions and tombstones leave of a compacted log."""

from __future__ import annotations

from compat_tests.brokers import Broker
from compat_tests.reports.asked import LATEST, Asked
from compat_tests.transactions.wire_world import Producer

COMPACTED = {
    "cleanup_policy": "compact",
    "delete_retention_ms": "0",
    "min_cleanable_dirty_ratio": "0.001",
    "segment_ms": "1000",
}


class Keyed:
    """A compacted log that is written in steps, each in a segment of its own."""

    def __init__(self, asked: Asked, **configs: str) -> None:
        self.asked = asked
        self.topic = asked.topic_with(**{**COMPACTED, **configs})
        self._now = 1_700_000_000_000
        self._sequences: dict[int, int] = {}

    def put(self, key: bytes, value: bytes | None, producer: Producer | None = None) -> int:
        """Write a record; its offset."""
        self._now += 10_000
        if producer is None:
            return self.asked.write(self.topic, self._now, key=key, value=value)
        sequence = self._sequences.get(producer.epoch << 48 | producer.producer_id, 0)
        self._sequences[producer.epoch << 48 | producer.producer_id] = sequence + 1
        how = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": sequence}
        return self.asked.write(self.topic, self._now, key=key, value=value, is_transactional=True, **how)

    def transaction(self, producer: Producer, commit: bool, **records: str | None) -> None:
        """Write records in a transaction, and end it."""
        self.asked.add(producer, topic=self.topic)
        for key, value in records.items():
            self.put(key.encode(), None if value is None else value.encode(), producer)
        self.asked.end(producer, commit)

    def left(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of the records, markers and tombstones included."""
        return [(each.offset, each.key, each.value) for _, records in self.asked.batches(self.topic) for each in records]
