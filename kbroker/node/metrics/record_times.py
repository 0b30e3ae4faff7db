"""Timestamps of records by their offsets, as a scrape needs them: how old is what a group has not read.

A batch's header has them, at the place that the log's index tells. Each is looked up once; a scrape does a bounded part
of the work, in slices between which everybody else has a turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from kbroker.errors import ApiError
from kbroker.node.metrics.figures import STRIDE
from kbroker.wire.batch_header import BatchHeader, TimestampType

if TYPE_CHECKING:
    from kbroker.node.replicas.partition import Partition
    from kbroker.runtime.env import Env

SLICE_SECONDS: Final = 0.002
"""Length of a slice; a look-up that has to wait for the disk may make it longer, as a Fetch does."""
SCRAPE_SECONDS: Final = 0.1
"""Work of one scrape. What is not looked up then is unknown until the next one, which begins there."""

NO_TIMESTAMP: Final = -1
"""Of a batch that has none."""


class LogPosition(NamedTuple):
    """A place of a log."""

    partition: Partition
    offset: int


class RecordTimes:
    """The timestamps that scrapes have found. ``look_up`` replaces them; then ask."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._known: dict[tuple[str, int, int], int] = {}
        self._next = 0
        """Where the next scrape begins among what is wanted, if this one could not do all."""

    def age_seconds(self, partition: Partition, offset: int) -> float | None:
        """Seconds since the timestamp of the batch that holds ``offset``, or of the first one after it."""
        timestamp = self._known.get((*partition.topic_partition, offset), NO_TIMESTAMP)
        if timestamp < 0:
            return None
        return max(0, self._env.wall_clock_ms() - timestamp) / 1000

    async def look_up(self, wanted: Iterable[LogPosition | None]) -> None:
        """Find the timestamps of all that is wanted, as far as the time allows; forget all others.

        At None others have a turn.
        """
        places = {}
        for each in wanted:
            if each is None:
                await trio.lowlevel.checkpoint()
            else:
                places[*each.partition.topic_partition, each.offset] = each
        before, self._known = self._known, {}
        missing = []
        for number, (key, place) in enumerate(places.items(), 1):
            if not number % STRIDE:
                await trio.lowlevel.checkpoint()
            if before.get(key, NO_TIMESTAMP) >= 0:
                self._known[key] = before[key]
            else:
                missing.append((key, place))
        begin = self._next % len(missing) if missing else 0
        self._next = 0
        spent, now = 0.0, self._env.now
        slice_began = now()
        for number, (key, place) in enumerate(missing[begin:] + missing[:begin]):
            self._known[key] = _timestamp(place)
            if now() - slice_began < SLICE_SECONDS:
                continue
            spent += now() - slice_began
            if spent >= SCRAPE_SECONDS:
                self._next = begin + number + 1
                return
            await trio.lowlevel.checkpoint()
            slice_began = now()


def _timestamp(place: LogPosition) -> int:
    """The `_batch_time` at a place; -1 if there is none."""
    partition = place.partition
    if not partition.has_log or partition.offline:
        return NO_TIMESTAMP
    log = partition.log
    try:
        info = log.read(place.offset, 1)
        for _, header in log.batches(info):
            return _batch_time(header)
    except (ApiError, OSError):
        pass  # whoever reads there is told; here it is unknown
    return NO_TIMESTAMP


def _batch_time(header: BatchHeader) -> int:
    """The base timestamp of a batch, in ms; its only one with log append time; -1 if there is none."""
    # In a compacted batch the base timestamp may have given its place to the horizon of its tombstones.
    is_base = header.timestamp_type is TimestampType.CREATE_TIME and header.delete_horizon_ms is None
    return header.base_timestamp if is_base else header.max_timestamp
