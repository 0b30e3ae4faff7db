"""The records of a topic that are looked at, as the page asks for them: partitions, where to begin, where to end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from kbroker.client import Client
from kbroker.client.log_places import END, START, AtOffset, Place, find, offsets_at
from kbroker.client.records_io.record_filter import BadFilter, parse_filter
from kbroker.client.records_io.times import parse_moment
from kbroker.client.topics import TopicDescription
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.scan import RecordView, ranges
from kbroker.types import TopicPartition

FROM: Final = ("latest", "earliest", "offset")

_MAX_PARTS: Final = 100
_MAX_PARTITIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class RecordRange:
    """``partitions`` is None for all; ``at`` is an offset; ``since`` and ``until`` are times in ms."""

    look: RecordView
    partitions: tuple[int, ...] | None
    begin: str
    at: int = 0
    since: int | None = None
    """Earlier records are left out, in whichever direction the look goes."""

    until: int | None = None
    positions: dict[int, int] = field(default_factory=dict)
    """Where an earlier look ended: this one goes on there."""

    @property
    def place(self) -> Place:
        """The place in each log where the look begins."""
        match self.begin:
            case "latest":
                return END
            case "offset":
                return AtOffset(self.at)
            case _:
                return START


def range_of(call: Call) -> RecordRange:
    """Returns the range that a request asks for; ``RequestRefused`` says what is wrong, or who is to sign in."""
    # Parameters of whoever may not ask are not worked on.
    _ = call.view
    topic = call.text("topic")
    now_ms = time.time_ns() // 1_000_000
    try:
        fits = parse_filter(call.text("filter", ""))
    except BadFilter as error:
        raise RequestRefused(400, f"filter: {error}") from None
    look = RecordView(
        topic, fits, call.console.settings.masking(topic), not call.flag("uncommitted"), call.console.decoder
    )
    begin = call.choice("from", FROM, "latest")
    at = call.number("at", 0) if begin == "offset" else 0
    since, until = (_moment(call, name, now_ms) if call.has(name) else None for name in ("since", "until"))
    partitions = parse_partitions(call.text("partitions", ""))
    return RecordRange(look, partitions, begin, at, since, until, parse_positions(call.text("goon", "")))


def _moment(call: Call, name: str, now_ms: int) -> int:
    try:
        return parse_moment(call.text(name), now_ms)
    except ValueError as error:
        raise RequestRefused(400, str(error)) from None


def parse_partitions(text: str) -> tuple[int, ...] | None:
    """``0,3-5`` as numbers; None for an empty text."""
    if not text.strip():
        return None
    found: set[int] = set()
    parts = text.split(",", _MAX_PARTS)
    if len(parts) > _MAX_PARTS:
        raise RequestRefused(400, f"more than {_MAX_PARTS} partitions and ranges of them cannot be listed")
    try:
        for part in parts:
            first, dash, last = part.strip().partition("-")
            begin, end = int(first), int(last) if dash else int(first)
            if not 0 <= begin <= end < 1_000_000 or end - begin >= _MAX_PARTITIONS:
                raise ValueError
            found.update(range(begin, end + 1))
            if len(found) > _MAX_PARTITIONS:
                raise RequestRefused(400, f"more than {_MAX_PARTITIONS:,} partitions cannot be looked at together")
    except ValueError:
        raise RequestRefused(400, f"{text[:100]!r} are no partitions such as 0 or 0,3-5") from None
    return tuple(sorted(found))


def parse_positions(text: str) -> dict[int, int]:
    """``0:12,1:40`` as partition -> offset."""
    if not text:
        return {}
    try:
        pairs = [part.split(":") for part in text.split(",")]
        positions = {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise RequestRefused(400, f"{text[:100]!r} are no positions such as 0:12,1:40") from None
    if any(partition < 0 or not 0 <= offset < 2**63 for partition, offset in positions.items()):
        raise RequestRefused(400, f"{text[:100]!r} are no positions such as 0:12,1:40")
    return positions


def show_positions(positions: dict[int, int]) -> str:
    """The text that ``parse_positions`` reads."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


@dataclass(frozen=True, slots=True)
class Limits:
    """Partition -> offset: the first that may be read, where to begin, where to end; and what a person has to know."""

    starts: dict[int, int]
    begins: dict[int, int]
    ends: dict[int, int]
    notes: tuple[str, ...] = ()
    firsts: dict[int, int] = field(default_factory=dict)
    """The beginnings of the range as it was asked for, wherever an earlier look has ended."""
    leaderless: tuple[int, ...] = ()
    """Partitions that were asked for, and are left out: they have no leader."""

    def check_whole(self, topic: str, told: str) -> None:
        """``RequestRefused`` where a partition is left out, for what must not seem whole then."""
        if self.leaderless:
            raise RequestRefused(409, f"partition {self.leaderless[0]} of {topic} has no leader now: {told}")


def find_partitions(wanted: RecordRange, topic: TopicDescription) -> list[int]:
    """The partitions of a range; ``RequestRefused`` if the topic lacks one."""
    there = {entry.partition for entry in topic.partitions}
    partitions = sorted(there) if wanted.partitions is None else list(wanted.partitions)
    unknown = [partition for partition in partitions if partition not in there]
    if unknown:
        raise RequestRefused(404, f"topic {topic.name} has no partition {unknown[0]}")
    return partitions


def find_limits(client: Client, wanted: RecordRange, topic: TopicDescription) -> Limits:
    """The offsets that a range means now. ``latest`` begins at the ends, and is read backward."""
    there = {entry.partition: entry.leader for entry in topic.partitions}
    partitions = find_partitions(wanted, topic)
    dead = [partition for partition in partitions if there[partition] is None]
    notes = tuple(f"partition {partition} has no leader, and is left out" for partition in dead)
    led = [partition for partition in partitions if there[partition] is not None]
    limits = ranges(client, topic.name, led, read_committed=wanted.look.read_committed)
    starts = {partition: start for partition, (start, _) in limits.items()}
    ends = {partition: end for partition, (_, end) in limits.items()}
    names = [TopicPartition(topic.name, partition) for partition in led]
    if wanted.until is not None:
        for (_, partition), offset in offsets_at(client, names, wanted.until).items():
            ends[partition] = max(min(offset, ends[partition]), starts[partition])
    if wanted.since is not None:
        found = offsets_at(client, names, wanted.since)
        starts = {each.partition: min(found.get(each, 2**63), ends[each.partition]) for each in names}
    begins = {
        partition: min(find(wanted.place, start, ends[partition]).offset, ends[partition])
        for partition, start in starts.items()
    }
    firsts = starts if wanted.begin == "latest" else dict(begins)
    for partition, offset in wanted.positions.items():
        if partition in begins:
            begins[partition] = offset
    return Limits(starts, begins, ends, notes, firsts, tuple(dead))
