"""The segments of a log, oldest first: added, replaced, and dropped with their files."""

from __future__ import annotations

import os
from bisect import bisect_right

from kbroker.log.disk import Disk
from kbroker.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TRUNCATED_SUFFIX,
    file_name,
)
from kbroker.log.segments.cleaned_segment import CleanedSegment
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.segment_files import remove_files


class SegmentList:
    """``segments`` and ``bases`` run parallel, are changed here alone, and stay the same two lists."""

    __slots__ = ("_doomed", "bases", "directory", "disk", "files", "index_interval", "segments")

    def __init__(
        self, disk: Disk, files: OpenFiles, directory: str, segments: list[Segment], index_interval: int
    ) -> None:
        self.disk = disk
        self.files = files
        self.directory = directory
        self.index_interval = index_interval
        self.segments = segments
        """Never empty but in the middle of a change; the last one is the active one."""
        self.bases = [segment.base_offset for segment in segments]
        self._doomed: list[tuple[int, list[str]]] | None = None
        """Due times of files that were renamed for removal, and their paths."""

    def index_of(self, offset: int) -> int:
        """Number of the segment that holds ``offset``, if there is one."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def make(self, base_offset: int, now_ms: int, *, size: int = 0, exists: bool = False) -> Segment:
        """A segment of this log that is not in the list."""
        return Segment(
            self.disk,
            self.files,
            self.directory,
            base_offset,
            index_interval=self.index_interval,
            size=size,
            created_ms=now_ms,
            exists=exists,
        )

    def add(self, base_offset: int, now_ms: int) -> None:
        """A new active segment. Its files exist from now on: an empty log remembers its offset by their name."""
        segment = self.make(base_offset, now_ms)
        try:
            segment.create_files()
        except OSError:
            remove_files(self.disk, segment)  # the log may grow beyond there before it has its next segment
            raise
        self.segments.append(segment)
        self.bases.append(base_offset)

    def pop(self) -> Segment:
        """Take the active segment out; its files stay."""
        self.bases.pop()
        return self.segments.pop()

    def clear(self) -> list[Segment]:
        """Take all out; a new active one is to follow."""
        old = self.segments[:]
        self.segments.clear()
        self.bases.clear()
        return old

    def restore(self, segment: Segment) -> None:
        """Put one back that was taken out."""
        self.segments.append(segment)
        self.bases.append(segment.base_offset)

    def discard(self, segment: Segment) -> None:
        """Remove the files of a segment that is not in the list any more; the log itself, which may be large, later.

        Its name is not that of a segment which retention or compaction deletes (``segment_files.just_replaced``).
        """
        self.files.forget(segment.path)
        segment.offset_index.reset()
        segment.time_index.reset()
        stem = segment.path[: -len(LOG_SUFFIX)]
        for suffix in reversed(SEGMENT_SUFFIXES):  # the log last: indexes without one are those of a log that was lost
            if suffix != LOG_SUFFIX:
                self.disk.remove(stem + suffix)
            elif self.disk.exists(segment.path):
                doomed = segment.path + TRUNCATED_SUFFIX + DELETED_SUFFIX
                self.disk.rename(segment.path, doomed)
                self.delete_later([doomed], 0)

    def release(self) -> None:
        """Drop open files; regions that readers hold stay valid."""
        for segment in self.segments:
            segment.close_files()

    # -- removal and replacement

    def take_first(self, count: int) -> list[Segment]:
        """Take the first ones out; their files are for the caller to rename."""
        gone = self.segments[:count]
        del self.segments[:count], self.bases[:count]
        return gone

    def find_replaced(self, cleaned: CleanedSegment) -> list[Segment] | None:
        """The segments that a cleaned one stands for; ``None`` if they are not what they were."""
        first = bisect_right(self.bases, cleaned.base_offset) - 1
        old = self.segments[first : first + len(cleaned.replaces)]
        if [segment.base_offset for segment in old] != cleaned.replaces or old[-1] is self.segments[-1]:
            return None
        return old

    def replace(self, old: list[Segment], cleaned: CleanedSegment, now_ms: int) -> list[str]:
        """Put the segment that compaction wrote in the place of ``old``; answer the paths of the old files.

        The names change in an order that leaves, wherever the power fails, the old segments or the new one
        (``recovery``).
        """
        disk = self.disk
        stem = os.path.join(self.directory, file_name(cleaned.base_offset))
        present = [stem + suffix for suffix in SEGMENT_SUFFIXES if disk.exists(stem + suffix + CLEANED_SUFFIX)]
        for path in present:
            disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        paths: list[str] = []
        for segment in old:
            paths += segment.rename_to_deleted()
        for path in present:
            disk.rename(path + SWAP_SUFFIX, path)
        new = self.make(cleaned.base_offset, now_ms, size=cleaned.size, exists=True)
        new.unverified = 0
        first = self.bases.index(cleaned.base_offset)
        self.segments[first : first + len(old)] = [new]
        self.bases[first : first + len(old)] = [cleaned.base_offset]
        return paths

    def delete_later(self, paths: list[str], due_ms: int) -> None:
        """Have files removed that were renamed for it."""
        if self._doomed is None:
            self._doomed = []
        self._doomed.append((due_ms, paths))

    def take_expired(self, now_ms: int) -> tuple[list[str], bool]:
        """Files that are due, for the caller to remove; and whether others still wait."""
        doomed = self._doomed
        paths: list[str] = []
        if not doomed:
            return paths, False
        while doomed and doomed[0][0] <= now_ms:
            paths += doomed.pop(0)[1]
        return paths, bool(doomed)
