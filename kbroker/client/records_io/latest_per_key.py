"""The last record of each key, as if a topic were compacted, within bounds. Pure."""

from __future__ import annotations

from typing import Final

from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record

ENTRY_BYTES: Final = 400
"""Bytes that a record takes besides its key, value and headers, roughly."""


class LatestRecord(NamedTuple):
    """A record with its place."""

    partition: int
    record: Record
    timestamp_type: TimestampType


class LatestPerKey:
    """Takes records, and keeps the last of each key of a partition; a tombstone is one, too.

    Records without a key are counted and left out. The caller stops once it ``is_full``.
    """

    def __init__(self, *, max_keys: int | None = None, max_bytes: int | None = None) -> None:
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._last: dict[tuple[int, bytes], LatestRecord] = {}
        self._bytes = 0
        self.without_key = 0

    def __len__(self) -> int:
        return len(self._last)

    @property
    def is_full(self) -> bool:
        """Whether there is more than is allowed."""
        return (self._max_keys is not None and len(self._last) > self._max_keys) or (
            self._max_bytes is not None and self._bytes > self._max_bytes
        )

    def add(self, partition: int, record: Record, kind: TimestampType) -> None:
        """Take a record, which is later than those of its partition before."""
        if record.key is None:
            self.without_key += 1
            return
        place = (partition, record.key)
        before = self._last.pop(place, None)
        if before is not None:
            self._bytes -= _size(before.record)
        self._last[place] = LatestRecord(partition, record, kind)
        self._bytes += _size(record)

    def kept(self) -> list[LatestRecord]:
        """The records, by partition and offset."""
        return sorted(self._last.values(), key=lambda kept: (kept.partition, kept.record.offset))


def _size(record: Record) -> int:
    _, _, key, value, headers = record
    size = ENTRY_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"")
    return size
