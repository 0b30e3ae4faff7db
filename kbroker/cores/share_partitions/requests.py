"""The question of a share group's member for records, and the answer to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from kbroker.cores.share_partitions.partition import Acquired
from kbroker.errors import ErrorCode
from kbroker.types import FileRegion, Uuid


class TopicIdPartition(NamedTuple):
    """A partition as share groups name it."""

    topic_id: Uuid
    partition: int


Denied = Callable[[Sequence[TopicIdPartition]], Collection[TopicIdPartition]]
"""Those of the partitions that a member may not read."""


class ShareFetchParams(NamedTuple):
    """The limits of one ShareFetch. Times are milliseconds, sizes bytes."""

    group_id: str
    member_id: str
    session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    exact: bool
    """``max_records`` holds to the record (share.acquire.mode ``record_limit``)."""


class ShareFetched(NamedTuple):
    """A partition's part of an answer: stored batches, and the offsets in them that are the member's now."""

    records: FileRegion | bytes = b""
    acquired: tuple[Acquired, ...] = ()
    error: ErrorCode | None = None

    @property
    def is_news(self) -> bool:
        """Whether a member that waits is to hear of it at once."""
        return bool(self.acquired) or self.error is not None
