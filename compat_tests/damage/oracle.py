"""Says for each try what may be lost, from the bytes that were damaged, and judges what the clients have read.

It shares no code with the broker: a batch is found by its length alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compat_tests.damage.damaging import Damage

AFTERWARDS = "after"
"""Values that are written after the damage begin so."""

MAY_REFUSE_ALONE = ("metadata log", "metadata snapshot", "quorum-state", "meta.properties", "bootstrap.checkpoint")
"""Kinds without which a node that is alone may refuse to start, by a line that says what is damaged."""
MAY_REFUSE = ("meta.properties",)
"""The same of a node of three."""


@dataclass(frozen=True)
class Batch:
    """A batch of a log file: bytes `start` to `end`, with the offsets from `first` to `last`."""

    start: int
    end: int
    first: int
    last: int
    producer_id: int
    is_control: bool
    data: bytes


def batches(data: bytes) -> Iterator[Batch]:
    """Returns the batches of a log file that is whole."""
    position = 0
    while position + 61 <= len(data):
        first, length = struct.unpack_from(">qi", data, position)
        if length <= 0:
            return  # zeros
        attributes, last_delta = struct.unpack_from(">hi", data, position + 21)
        (producer_id,) = struct.unpack_from(">q", data, position + 43)
        end = position + 12 + length
        yield Batch(position, end, first, first + last_delta, producer_id, bool(attributes & 0x20), data[position:end])
        position = end


@dataclass
class Content:
    """All that clients were promised before the damage. A partition is `topic-N`."""

    records: dict[str, dict[int, str]] = field(default_factory=dict)
    aborted: dict[str, dict[int, str]] = field(default_factory=dict)
    offsets: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """Group -> partition -> what was committed, in its order."""
    topics: dict[str, int] = field(default_factory=dict)


@dataclass
class Losses:
    """Records that the damage may take: offsets of partitions, and groups whose last commit may be gone."""

    offsets: dict[str, set[int]] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    refusal: str | None = None
    """The path that a node may name when it refuses to start."""


def losses(damages: Sequence[Damage], content: Content, nodes: int, snapshot_end: int = 0) -> Losses:
    """Returns what may be lost: of three nodes one has a whole copy, so nothing; of one what stood in these bytes.

    Of the metadata log nothing is below `snapshot_end`, the end of the newest snapshot.
    """
    found = Losses()
    for damage in damages:
        everything = list(batches(damage.before))
        hit = [each for each in everything if any(each.start < end and start < each.end for start, end in damage.lost)]
        is_in_snapshot = damage.kind == "metadata log" and all(each.last < snapshot_end for each in hit)
        if damage.lost and damage.kind in (MAY_REFUSE_ALONE if nodes == 1 else MAY_REFUSE) and not is_in_snapshot:
            found.refusal = damage.path
        if nodes > 1:
            continue
        partition = damage.path.split("/")[0]
        if damage.kind == "log":
            lost = found.offsets.setdefault(partition, set())
            for each in hit:
                lost.update(range(each.first, each.last + 1))
                if each.is_control:  # what its transaction has written cannot be told from what is aborted
                    own = [other for other in everything if other.producer_id == each.producer_id]
                    before = [other.first for other in own if other.is_control and other.first < each.first]
                    begin = max(before, default=-1)
                    for other in own:
                        if begin < other.first < each.first:
                            lost.update(range(other.first, other.last + 1))
        elif damage.kind == "log of offsets":
            for group in content.offsets:
                commits = [each for each in everything if group.encode() in each.data and b"plain" in each.data]
                if commits and any(each is commits[-1] or each.is_control for each in hit):
                    found.groups.add(group)
    return found


def judge(content: Content, seen: Mapping[str, Any], may: Losses) -> dict[str, list[str]]:
    """Returns what is wrong with what was read, by its case: "lost", "wrong", "unread", "late" or "not in sync"."""
    found: dict[str, list[str]] = {}

    def tell(case: str, what: str) -> None:
        found.setdefault(case, []).append(what)

    for topic, count in content.topics.items():
        if seen["topics"].get(topic) != count:
            tell("lost" if seen["topics"] else "unread", f"topic {topic} of {count} partitions")
    for partition, records in content.records.items():
        state = seen["partitions"].get(partition, {"records": [], "position": -1, "end": -1, "told": []})
        got = {int(offset): value for offset, value in state["records"]}
        may_lose = may.offsets.get(partition, set())
        missing = sorted(records.keys() - got.keys() - may_lose)
        gone = [each for each in missing if each < state["position"] or 0 <= state["end"] <= each]
        if gone:
            tell("lost", f"{len(gone)} of {len(records)} records of {partition}, from {gone[0]} to {gone[-1]}")
        if len(gone) < len(missing):
            rest = sorted(set(missing) - set(gone))
            where = f"position {state['position']}, end {state['end']}, {sorted(set(state['told']))}"
            tell("unread", f"{len(rest)} of {len(records)} records of {partition}, from {rest[0]}; {where}")
        for offset, value in got.items():
            is_right = records.get(offset) == value
            is_new = value.startswith(AFTERWARDS) and (offset not in records or offset in may_lose)
            if not is_right and not is_new:
                what = "aborted" if value in content.aborted.get(partition, {}).values() else "wrong"
                tell("wrong", f"{partition}@{offset} is {what}: {value[:30]!r}")
    for group, partitions in content.offsets.items():
        for partition, commits in partitions.items():
            answer = seen["offsets"].get(group, {}).get(partition, "nobody answers")
            if isinstance(answer, str):
                tell("unread", f"offsets of group {group}: {answer}")
            elif answer != commits[-1] and not (group in may.groups and (answer in commits or answer < 0)):
                tell("lost", f"offset {commits[-1]} of group {group} in {partition}: {answer}")
    for what in seen["errors"]:
        tell("unread", what)
    for case in ("late", "not in sync"):
        for what in seen[case]:
            tell(case, what)
    return found
