"""A share partition under test: its members' requests in one line each, over a log of its own."""

from __future__ import annotations

from typing import Any

from kbroker.cores.share_partitions.acknowledging import AcknowledgementBatch
from kbroker.cores.share_partitions.partition import Acquired, OffsetRange, SharePartition, Write
from kbroker.cores.share_partitions.settings import SharePartitionSettings
from kbroker.cores.share_state import SharePartitionState

LOADED = SharePartitionState(state_epoch=1, leader_epoch=2, start_offset=0, delivery_complete_count=0)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Fixture:
    """A share partition, the time, and the log it is read from: stored batches of ten records, up to offset 99."""

    def __init__(self, loaded: SharePartitionState = LOADED, **changed: Any) -> None:
        self.settings = SharePartitionSettings()._replace(**changed)
        self.log = [OffsetRange(first, first + 9) for first in range(0, 100, 10)]
        self.now_ms = 1000
        self.partition = SharePartition(loaded, loaded.start_offset, lambda: self.settings)

    def fetch(
        self, member: str = "a", max_records: int = 500, *, exact: bool = False, batch_size: int = 500
    ) -> list[Acquired]:
        offset = self.partition.next_fetch_offset()
        return self.partition.acquire(
            member,
            [each for each in self.log if each.last_offset >= offset],
            fetch_offset=offset,
            max_records=max_records,
            batch_size=batch_size,
            exact=exact,
            now_ms=self.now_ms,
        )

    def acknowledge(self, member: str, first: int, last: int, *types: int) -> Write | None:
        return self.partition.acknowledge(member, [AcknowledgementBatch(first, last, types)], self.now_ms)

    def done(self, member: str, first: int, last: int, *types: int) -> SharePartitionState:
        """Acknowledge, and have it kept."""
        write = self.acknowledge(member, first, last, *types)
        assert write is not None
        self.partition.finish(write, None, self.now_ms)
        return write.state
