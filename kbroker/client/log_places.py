"""Places in the log of a partition, and the offsets that they mean there: where reading begins, where a group is put.

An offset that is found lies within the log: below its start it becomes the start, beyond the end the end, and a note
says so. A time after the last record is the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kbroker.client.cluster import Client
from kbroker.client.errors import known
from kbroker.types import TopicPartition


@dataclass(frozen=True, slots=True)
class AtStart:
    """The start of the log."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """An offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """A number of offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time in ms."""

    timestamp: int


Place = AtStart | AtOffset | BeforeEnd | AtTime
START: Final = AtStart()
END: Final = BeforeEnd(0)


class Found(NamedTuple):
    """The offset of a place. ``note`` says what was done to one that the log does not have."""

    offset: int
    note: str = ""


def find(place: Place, start: int, end: int, at_time: int | None = None) -> Found:
    """A place in a log from ``start`` to ``end``; ``at_time``: the first record at or after the time, if any."""
    match place:
        case AtStart():
            return Found(start)
        case BeforeEnd(count):
            return Found(max(end - count, start))
        case AtTime():
            if at_time is None:
                return Found(end, "no record after this time: the end")
            return Found(max(at_time, start))
        case AtOffset(offset):
            if offset < start:
                return Found(start, f"{offset} is before the start")
            if offset > end:
                return Found(end, f"{offset} is beyond the end")
            return Found(offset)


def offsets_at(client: Client, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    """Partition -> the first offset at or after a time in ms, for those that have one. ``ResponseError``."""
    from kbroker.client.topics import list_offsets

    found = known(list_offsets(client, dict.fromkeys(partitions, timestamp)))
    return {partition: listed.offset for partition, listed in found.items() if listed.offset >= 0}


def offsets_at_time(client: Client, partitions: Iterable[TopicPartition], place: object) -> dict[TopicPartition, int]:
    """The ``offsets_at`` a place that is a time; nothing for any other place. ``ResponseError``."""
    return offsets_at(client, partitions, place.timestamp) if isinstance(place, AtTime) else {}
