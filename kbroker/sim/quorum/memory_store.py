"""The batches of a metadata log in memory, for tests and simulations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from kbroker.log.damage import Damage
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.raft_metadata.raft.record_store import FlushWork
from kbroker.types import OffsetAndEpoch
from kbroker.wire.batch_header import walk_headers


class MemoryStore:
    """A :class:`RecordStore` without a disk, for tests and simulations. ``crash`` forgets what is not flushed."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.flushed_offset = 0
        self._bases: list[int] = []
        self._ends: list[int] = []
        self._raw: list[bytes] = []
        self._epochs = LeaderEpochs()
        self._generation = 0

    @property
    def log_end_offset(self) -> int:
        return self._ends[-1] if self._ends else self.log_start_offset

    @property
    def last_epoch(self) -> int:
        return max(self._epochs.latest, 0)

    @property
    def damage(self) -> Sequence[Damage]:
        return ()

    def healed(self) -> None:
        """Nothing is noted here."""

    def append(self, data: bytearray) -> None:
        whole = bytes(data)
        for position, header in walk_headers(whole):
            if header.base_offset != self.log_end_offset:
                raise ValueError(f"batch at {header.base_offset} appended at {self.log_end_offset}")
            self._epochs.maybe_assign(header.partition_leader_epoch, header.base_offset)
            self._bases.append(header.base_offset)
            self._ends.append(header.last_offset + 1)
            self._raw.append(whole[position : position + header.size])

    def read(self, offset: int, max_bytes: int) -> bytes:
        first = bisect_right(self._ends, offset)
        size, last = 0, first
        while last < len(self._raw) and (last == first or size + len(self._raw[last]) <= max_bytes):
            size += len(self._raw[last])
            last += 1
        return b"".join(self._raw[first:last])

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def begin_flush(self) -> FlushWork | None:
        return _MemoryFlush(self, self.log_end_offset, self._generation)

    def on_flushed(self, offset: int, generation: int) -> None:
        """All below ``offset`` survives a crash, if nothing was cut since."""
        if generation == self._generation:
            self.flushed_offset = max(self.flushed_offset, offset)

    def crash(self, keep: float = 0.0) -> None:
        """Lose what was not flushed, but for its first part ``keep`` (0 to 1), which then is durable."""
        unflushed = self.log_end_offset - self.flushed_offset
        self.truncate_to(self.flushed_offset + int(unflushed * keep))
        self.flushed_offset = self.log_end_offset

    def truncate_to(self, offset: int) -> None:
        if offset >= self.log_end_offset:
            return
        kept = bisect_right(self._ends, offset)
        del self._bases[kept:], self._ends[kept:], self._raw[kept:]
        self._epochs.truncate_from_end(self.log_end_offset)
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
        self._generation += 1

    def restart_at(self, offset: int) -> None:
        self._bases.clear()
        self._ends.clear()
        self._raw.clear()
        self._epochs.clear()
        self.log_start_offset = self.flushed_offset = offset
        self._generation += 1

    def delete_before(self, offset: int, now_ms: int) -> None:
        gone = bisect_right(self._ends, offset)
        del self._bases[:gone], self._ends[:gone], self._raw[:gone]
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs.truncate_from_start(offset)

    def close(self) -> bool:
        return self.flushed_offset == self.log_end_offset


class _MemoryFlush:
    def __init__(self, store: MemoryStore, offset: int, generation: int) -> None:
        self._store = store
        self._offset = offset
        self._generation = generation

    def run(self) -> None:
        """Memory is durable enough."""

    def end(self) -> None:
        self._store.on_flushed(self._offset, self._generation)
