"""A log as it is once it was opened, and the facts about it that the last process left beside it.

``recovery`` makes the one of the other, and of the directory.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.log.damage import Damage
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.segments.segment import Segment
from kbroker.value_types import NamedTuple, dataclass


@dataclass(slots=True)
class LoadedLog:
    """A log as it is after recovery."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    indexed: int
    """Offset (exclusive) up to which the indexes of segments are as durable as the batches."""
    leader_epochs: LeaderEpochs
    cuts: Sequence[str] = ()
    """The places at which something was taken out or is missing, and why; for a person to read."""
    has_holes: bool = False
    """Whether offsets are missing between batches that were verified."""
    damage: tuple[Damage, ...] = ()
    """The offsets that are missing, and have not come back from others."""


class Known(NamedTuple):
    """Facts about a log that the last process left beside it."""

    clean_shutdown: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    clean_offset: int = 0
    """Up to where the log may have been compacted, so that offsets may be missing between its segments there."""
    high_watermark: int = 0
    holes_below: int = -1
    """Damage that ends at this offset or before leaves a hole; the log is cut at the first other."""
