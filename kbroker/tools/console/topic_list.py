"""Topics as a list and as a tree by name: filter, order, part of it. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kbroker.client.topics import TopicDescription, leaderless, under_replicated

SORTS: Final = ("name", "partitions", "replicas", "size", "bytes_rate")

_SEPARATORS: Final = "._-"
_SEGMENT: Final = re.compile(r"[^._-]*[._-]?")
_AFTER_ALL: Final = "\uffff"
"""Sorts after whatever may be in a name."""


def choose(
    topics: Sequence[TopicDescription],
    *,
    text: str = "",
    internal: bool = False,
    troubled: bool = False,
    sort: str = "name",
    descending: bool = False,
    sizes: Mapping[str, int] | None = None,
    growth: Mapping[str, float] | None = None,
) -> list[TopicDescription]:
    """The topics whose names have every word of ``text`` in them, in order; ``topics`` are by name already."""
    chosen = list(topics) if internal else [topic for topic in topics if not topic.internal]
    for word in text.lower().split():
        chosen = [topic for topic in chosen if word in topic.name.lower()]
    if troubled:
        chosen = [topic for topic in chosen if under_replicated(topic) or leaderless(topic)]
    match sort:
        case "partitions":
            chosen.sort(key=lambda topic: len(topic.partitions), reverse=descending)
        case "replicas":
            chosen.sort(key=lambda topic: topic.replication_factor, reverse=descending)
        case "size":
            known = sizes or {}
            chosen.sort(key=lambda topic: known.get(topic.name, 0), reverse=descending)
        case "bytes_rate":
            rates = growth or {}
            chosen.sort(key=lambda topic: rates.get(topic.name, 0), reverse=descending)
        case _:
            if descending:
                chosen.reverse()
    return chosen


class Branch(NamedTuple):
    """A level of the tree: topics whose names begin with ``prefix``; a topic itself where ``topic`` is true."""

    prefix: str
    topic: bool
    topics: int
    partitions: int
    size: int | None


def branches(
    topics: Sequence[TopicDescription], prefix: str, *, sizes: Mapping[str, int] | None = None
) -> list[Branch]:
    """The next level below a prefix, by name; ``topics`` are by name already. Names are cut after dots, dashes and
    underscores.

    A level with one branch only is passed over: below ``shop.`` comes ``shop.eu.orders`` if nothing else is there.
    """
    found: list[Branch] = []
    at, end = _run(topics, prefix, 0)
    while at < end:
        name = topics[at].name
        match = _SEGMENT.match(name, len(prefix))
        segment = name[: match.end()] if match is not None else name
        # Without a separator at its end the segment is the rest of a name, and so it is where nothing is left of one.
        goes_on = segment != prefix and segment[-1] in _SEPARATORS
        last = _run(topics, segment, at)[1] if goes_on else at + 1
        members = topics[at:last]
        if len(members) == 1:
            found.append(_branch(name, True, members, sizes))
        else:
            found.append(_branch(_common(segment, members), False, members, sizes))
        at = last
    return found


def _run(topics: Sequence[TopicDescription], prefix: str, least: int) -> tuple[int, int]:
    """The places between which the names begin with a prefix, from a place on."""
    begin = bisect_left(topics, prefix, least, key=_name)
    return begin, bisect_left(topics, prefix + _AFTER_ALL, begin, key=_name)


def _name(topic: TopicDescription) -> str:
    return topic.name


def _common(prefix: str, members: Sequence[TopicDescription]) -> str:
    """The longest run of whole segments that all the members' names begin with, and none of them ends at."""
    shortest, longest = members[0].name, members[-1].name
    while True:
        match = _SEGMENT.match(shortest, len(prefix))
        end = match.end() if match is not None else len(shortest)
        if end == len(prefix) or end >= len(shortest) or not longest.startswith(shortest[:end]):
            return prefix
        prefix = shortest[:end]


def _branch(
    prefix: str, is_topic: bool, members: Sequence[TopicDescription], sizes: Mapping[str, int] | None
) -> Branch:
    return Branch(
        prefix,
        is_topic,
        len(members),
        sum(len(topic.partitions) for topic in members),
        None if sizes is None else sum(sizes.get(topic.name, 0) for topic in members),
    )
