"""The places of a log that are not whole: ``damage.json`` in the partition's directory.

A place is noted, durably, before the log is changed for it, and stays noted until other replicas have given back what
is missing (`PartitionLog.healed`), or the log starts behind it. No log of Apache Kafka opens the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from kbroker.log.disk import Disk, write_atomically
from kbroker.value_types import NamedTuple

FILE_NAME = "damage.json"
_VERSION = 0
UNKNOWN_END = 2**63 - 1
"""The end of damage of which nobody knows how far it goes."""


class Damage(NamedTuple):
    """A place of a log that is not whole."""

    start_offset: int
    end_offset: int
    """The offsets from ``start_offset`` on and below this one are missing. Of a lost tail this is the end that was
    known."""
    segment: str
    """Name of the file in which the bytes stood."""
    position: int
    size: int
    """Bytes that are damaged from ``position`` on; 0 if they are simply gone."""
    reason: str
    time_ms: int
    set_aside: str | None = None
    """Name of the file beside the log that has the bytes, if they were taken out and are not blank."""

    @property
    def is_in_log(self) -> bool:
        """Whether the damaged bytes still stand in the log, where readers come upon them."""
        return self.size > 0 and self.set_aside is None

    def path(self, directory: str) -> str:
        """The path of the file in which the bytes stood."""
        return os.path.join(directory, self.segment)

    def __str__(self) -> str:
        """For a person: what is missing, and why."""
        if self.start_offset >= self.end_offset:
            return f"nothing is missing before offset {self.end_offset}, but bytes there do not belong: {self.reason}"
        return f"offsets {self.start_offset} to {self.end_offset - 1} are missing: {self.reason}"


def read_damage(disk: Disk, directory: str) -> tuple[Damage, ...]:
    """Returns what is noted of a partition's directory, by offset.

    Of a file that cannot be read nobody knows what it said: the whole log counts as damaged.
    """
    path = os.path.join(directory, FILE_NAME)
    try:
        content = json.loads(disk.read_bytes(path))
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']}")
        return tuple(sorted(_damage(entry) for entry in content["damage"]))
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return (Damage(0, UNKNOWN_END, FILE_NAME, 0, 0, f"{path} cannot be read: {error!r}", 0),)


def _damage(entry: dict[str, object]) -> Damage:
    start, end, position, size, time_ms = (
        int(entry[name])  # type: ignore[call-overload]
        for name in ("start_offset", "end_offset", "position", "size", "time_ms")
    )
    set_aside = entry["set_aside"]
    return Damage(
        start,
        end,
        str(entry["segment"]),
        position,
        size,
        str(entry["reason"]),
        time_ms,
        None if set_aside is None else str(set_aside),
    )


def note(disk: Disk, directory: str, damage: Iterable[Damage]) -> tuple[Damage, ...]:
    """Have ``damage`` be all that is noted of a directory, durably; returns it by offset. ``OSError``."""
    entries = tuple(sorted(damage))
    path = os.path.join(directory, FILE_NAME)
    if entries:
        content = {"version": _VERSION, "damage": [entry._asdict() for entry in entries]}
        write_atomically(disk, path, json.dumps(content, indent=1).encode() + b"\n")
    elif disk.exists(path):
        disk.remove(path)
        disk.sync_dir(directory)
    return entries


def covers(damage: Iterable[Damage], start_offset: int, end_offset: int) -> bool:
    """Whether one of the places has all offsets from ``start_offset`` on and below ``end_offset``."""
    return any(each.start_offset <= start_offset and end_offset <= each.end_offset for each in damage)
