"""Decides where a table goes on in its topic, or why it cannot. Pure.

A table keeps the next offset of each partition in the same commit as the rows. What it keeps is all that is known: a
follower that was killed at any moment has done either all of a commit or nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbroker.errors import FatalError
from kbroker.value_types import NamedTuple


class Refused(FatalError):
    """A table that cannot go on by itself: one line that says why, and how it can."""


class Cut(Refused):
    """A topic that ends before its table: once it is longer, nothing tells any more that it lost records."""


class NotYet(FatalError):
    """A start that has to wait: another try may go on."""


class OffsetRange(NamedTuple):
    """The offsets that a partition has, from ``start`` to before ``end``."""

    start: int
    end: int


class Lost(NamedTuple):
    """Offsets that are gone from a topic before the table had them: from ``first`` to before ``end``."""

    partition: int
    first: int
    end: int

    def __str__(self) -> str:
        return f"partition {self.partition}: offsets {self.first} to {self.end - 1} were gone before the table had them"


@dataclass(frozen=True, slots=True)
class Kept:
    """The state that a table keeps with its rows. ``positions``: partition -> the next offset."""

    topic: str
    topic_id: str
    value_format: str
    positions: Mapping[int, int]
    declared: str = ""
    """The schema of values that was declared, as the user wrote it."""
    layout: Mapping[str, str] = field(default_factory=dict)
    """The properties of the table that say how its rows lie."""
    way: str = ""
    """``upsert`` or ``debezium`` for the latest row of each key; empty if every record is a row."""
    paused: bool = False
    """Whether nobody is to add rows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each partition is read from, and what is lost before that."""

    starts: dict[int, int]
    lost: list[Lost] = field(default_factory=list)


def plan(
    kept: Kept | None,
    where: str,
    topic: str,
    topic_id: str,
    value_format: str | None,
    ranges: Mapping[int, OffsetRange],
    *,
    accept_loss: bool = False,
    new_topic: bool = False,
    way: str = "",
) -> Plan:
    """Returns the starts for a table that keeps ``kept``, of a topic that has ``ranges``; ``Refused``.

    ``accept_loss`` goes on behind what is gone, ``new_topic`` with the topic that was made anew under the same name;
    ``way`` is that which is asked for, empty for the table's own.
    """
    if kept is None:
        return Plan({partition: each.start for partition, each in ranges.items()})
    if kept.topic != topic:
        raise Refused(f"{where} is the table of topic {kept.topic}: name another place for {topic}")
    if value_format not in (None, kept.value_format):
        raise Refused(f"{where} has its values as {kept.value_format}: leave out --value, or name another place")
    if way not in ("", kept.way):
        has = f"is kept by {kept.way}" if kept.way else "has every record as a row"
        raise Refused(f"{where} {has}: leave out --upsert and --changes, or name another place")
    if kept.topic_id != topic_id:
        if not new_topic:
            raise Refused(
                f"topic {topic} was deleted and made anew since {where} was written: name another place, or give"
                " --new-topic to add its records to those of the topic that is gone"
            )
        return Plan({partition: each.start for partition, each in ranges.items()})
    starts: dict[int, int] = {}
    lost: list[Lost] = []
    for partition, (start, end) in sorted(ranges.items()):
        # A partition that the table does not know is one that was added: it began at 0.
        position = kept.positions.get(partition, 0)
        if position > end:
            raise Cut(
                f"{where} has partition {partition} up to offset {position}, but topic {topic} ends at {end}: it lost"
                " records that the table has, and their offsets will be given again; name another place"
            )
        if position < start:
            lost.append(Lost(partition, position, start))
        starts[partition] = max(position, start)
    if lost and not accept_loss:
        raise refused_loss(lost[0])
    return Plan(starts, lost)


def refused_loss(lost: Lost) -> Refused:
    """Returns the refusal to go on behind what is gone."""
    return Refused(f"{lost}; --accept-loss goes on behind them, and notes them beside the table")
