"""Reports about compaction: what transactions and tombstones leave of a compacted log."""

from __future__ import annotations

import time

from compat_tests.brokers import Broker
from compat_tests.reports.asked import LATEST, Asked
from compat_tests.transactions.wire_world import Producer
from tests.patience import eventually

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
        self._now = int(time.time() * 1000)
        self._sequences: dict[int, int] = {}

    def put(self, key: bytes, value: bytes | None, producer: Producer | None = None) -> int:
        """Write a record; its offset."""
        self._now += 10_000
        if producer is None:
            return self.asked.write(self.topic, self._now, key=key, value=value)
        sequence = self._sequences.get(producer.epoch << 48 | producer.producer_id, 0)
        self._sequences[producer.epoch << 48 | producer.producer_id] = sequence + 1
        how = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": sequence}
        return self.asked.write(self.topic, self._now, key=key, value=value, name=producer.transactional_id, **how)

    def transaction(self, producer: Producer, commit: bool, **records: str | None) -> None:
        """Write records in a transaction, and end it."""
        self.asked.add(producer, topic=self.topic)
        for key, value in records.items():
            self.put(key.encode(), None if value is None else value.encode(), producer)
        self.asked.end(producer, commit)

    def left(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of the records, markers and tombstones included."""
        return [
            (each.offset, each.key, each.value) for _, records in self.asked.batches(self.topic) for each in records
        ]


def test_transactions_in_a_compacted_log(asked: Asked, broker: Broker) -> None:
    log = Keyed(asked)
    mine, other, empty = asked.init(), asked.init(), Keyed(asked)
    log.transaction(mine, True, k1="a", k2="b")
    log.transaction(other, False, k1="wrong", k3="wrong")
    log.transaction(mine, True, k2=None)
    log.transaction(mine, False, k4="wrong")
    log.put(b"k1", b"last")
    empty.transaction(other, False, k4="wrong")
    empty.put(b"k", b"1")
    empty.put(b"k", b"2")

    def compacted(keyed: Keyed, keys: list[tuple[int, bytes]]) -> bool:
        keyed.put(b"roll", b"next")
        wanted = [each for each in keyed.left() if each[1] not in (b"roll", b"k")]
        return [(offset, key) for offset, key, _ in wanted] == keys

    commit, abort = b"\0\0\0\1", b"\0\0\0\0"
    kept = [(2, commit), (5, abort), (7, commit), (9, abort), (10, b"k1")]
    eventually(lambda: compacted(log, kept))
    eventually(lambda: compacted(empty, [(1, abort)]))
    holes = [header.base_offset for header, records in asked.batches(log.topic) if not records]
    assert holes == [4, 8]  # the last batch of each producer, for its sequence
    for _ in range(2):
        assert [offset for offset, epoch in asked.seen(log.topic) if epoch >= 0 or offset <= 10] == [10]
        assert asked.offset(log.topic, LATEST, committed=True) == asked.offset(log.topic, LATEST)
        asked.again(broker, crash=True)
    log.transaction(other, True, k3="right")
    log.transaction(mine, True, k2="again")
    found = {key: value for _, key, value in log.left()}
    assert (found[b"k1"], found[b"k2"], found[b"k3"]) == (b"last", b"again", b"right")
