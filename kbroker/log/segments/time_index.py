"""``.timeindex``: from timestamp to offset, written together with the offset index and on a roll."""

from __future__ import annotations

import struct

from kbroker.log.segments.sparse_index import SparseIndex


class TimeIndex(SparseIndex):
    """Entries of 12 bytes: the greatest timestamp so far (int64, milliseconds), and the last offset of the
    batch that has it, relative to the segment's base offset (int32). The last entry of a segment that is no
    longer written holds its greatest timestamp, by which it is retained."""

    __slots__ = ()

    ENTRY = struct.Struct(">qi")
    KEY_TYPE = "q"

    def plausible(self, key: int, value: int) -> bool:
        return key >= 0 and value >= 0

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if its timestamp is greater than the last one's."""
        last = self.last()
        if timestamp >= 0 and (last is None or timestamp > last[0]):
            self.append(timestamp, relative_offset)
