"""The settings of share groups by which their records are delivered (``share.*`` of a group, ``group.share.*``)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class SharePartitionSettings(NamedTuple):
    """Configs ``share.*`` of the group, or else of the broker."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    renew_enabled: bool = True
    has_dead_letter_queue: bool = False


class ResetTo(Enum):
    """The start of a share partition that has no start offset yet (``share.auto.offset.reset``)."""

    LATEST = "latest"
    EARLIEST = "earliest"
    BY_DURATION = "by_duration"


class AutoOffsetReset(NamedTuple):
    """``share.auto.offset.reset``, parsed. ``duration_ms`` counts back from now, for BY_DURATION."""

    to: ResetTo = ResetTo.LATEST
    duration_ms: int = 0


class ShareGroupSettings(NamedTuple):
    """All settings of a share group that the leaders of partitions ask for."""

    delivery: SharePartitionSettings = SharePartitionSettings()
    auto_offset_reset: AutoOffsetReset = AutoOffsetReset()
    read_committed: bool = False
    """``share.isolation.level``."""
