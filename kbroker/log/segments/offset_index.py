"""``.index``: from offset to position in the segment file, one entry for each ``index.interval.bytes``."""

from __future__ import annotations

import struct

from kbroker.log.segments.sparse_index import SparseIndex


class OffsetIndex(SparseIndex):
    """Entries of 8 bytes: last offset of a batch, relative to the segment's base offset (int32), and the
    position at which that batch begins (int32)."""

    __slots__ = ()

    ENTRY = struct.Struct(">ii")
    KEY_TYPE = "i"

    def plausible(self, key: int, value: int) -> bool:
        # The first entry comes after index.interval.bytes of batches, so position 0 is never in it: a zero
        # entry is the padding of a preallocated file.
        return key >= 0 and value > 0
