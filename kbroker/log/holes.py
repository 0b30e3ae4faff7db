"""Takes damage that was found in an open log out of it: its bytes are set aside, and the log has a hole there.

Begun and ended by the log's owner (`PartitionLog.begin_holes`), run in any thread: the segments are sealed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from kbroker.log.damage import Damage
from kbroker.log.disk import Disk
from kbroker.log.segments.batch_walk import Damaged, walk
from kbroker.log.segments.cleaned_segment import CleanedSegment, discard_cleaned
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.segment_recovery import keep_bytes, open_bounds_of, write_around


class HolesTask:
    """Segments that are written anew, as in a compaction, without what is damaged in them."""

    def __init__(
        self,
        disk: Disk,
        segments: Sequence[tuple[Segment, int]],
        index_interval: int,
        now_ms: int,
        end: Callable[[HolesTask], None],
    ) -> None:
        """``segments``: each with the base offset of the next one."""
        self._disk = disk
        self._segments = segments
        self._index_interval = index_interval
        self._now_ms = now_ms
        self._end = end
        self.found: list[Damage] = []
        """The damage, with the names under which its bytes are set aside."""
        self.cleaned: list[CleanedSegment] = []
        self.left = {os.path.basename(segment.path) for segment, _ in segments}
        """Segments that were not looked at yet."""

    def run(self) -> None:
        """Set the damaged bytes aside and write the segments, durably; nothing of the log is changed. ``OSError``."""
        for segment, following in self._segments:
            found, name = [], os.path.basename(segment.path)
            damaged = [
                item
                for item in walk(segment.log_file(), segment.size, open_bounds_of(segment, following))
                if isinstance(item, Damaged)
            ]
            for each in damaged:
                offsets = each.start_offset, following if each.end_offset is None else each.end_offset
                place = each.position, each.end
                aside = keep_bytes(self._disk, segment, *place, offsets, each.reason, self._now_ms, lambda: None)
                size = 0 if aside is None else each.end - each.position
                if offsets[0] < offsets[1]:  # or nothing is missing, but for bytes that were none of the log's
                    found.append(Damage(*offsets, name, each.position, size, each.reason, self._now_ms, aside))
            if damaged:
                self.cleaned.append(
                    write_around(self._disk, segment, damaged, self._index_interval, lambda: None, end_offset=following)
                )
            self.found += found
            self.left.discard(name)

    def end(self) -> None:
        """Put the new segments in place; to be called whether or not :meth:`run` succeeded. ``OSError``."""
        self._end(self)

    def discard(self) -> None:
        """Remove what was written: the log is another by now."""
        for segment, _ in self._segments:
            discard_cleaned(self._disk, os.path.dirname(segment.path), [segment.base_offset])
