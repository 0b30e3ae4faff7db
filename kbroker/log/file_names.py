"""The names of a log's files, as in Apache Kafka."""

from __future__ import annotations

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
ABORTED_SUFFIX = ".aborted"
"""Of a file without content beside each ``.txnindex``. That one is there only if transactions were aborted, so nothing
else tells that it is lost. Apache Kafka ignores it."""
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
TRUNCATED_SUFFIX = ".truncated"
"""Before ``.deleted``, of a segment that was cut off: another may have its name at once."""
OWN_SUFFIX = ".own"
"""Before ``.deleted``, of the copy of a file that another log has, too; it takes the file's name."""
CLEANED_SUFFIX = ".cleaned"
"""Of files that compaction is writing."""
SWAP_SUFFIX = ".swap"
"""Of files that compaction has written, from the moment on from which they count."""
TEMPORARY_SUFFIX = ".tmp"
SET_ASIDE_SUFFIX = ".set-aside"
"""Of what recovery took out of a log (``segments/segment_recovery.py``)."""

SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, ABORTED_SUFFIX)


def file_name(offset: int) -> str:
    """The 20 digits by which Kafka names the files of a segment, or a snapshot, at ``offset``."""
    return f"{offset:020d}"


def is_offset_name(stem: str) -> bool:
    """Whether a file's stem is the 20 digits of an offset."""
    return len(stem) == 20 and stem.isascii() and stem.isdigit()
