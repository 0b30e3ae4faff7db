"""Topics as a list and as a tree by name: filter, order, part of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kbroker.client.topics import TopicDescription, leaderless, under_replicated

SORTS: Final = ("name", "partitions", "replicas", "size", "bytes_rate")

_SEGMENT: Final = re.compile(r"[^._-]*[._-]?")


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
    words = text.lower().split()
    chosen = [
        topic
        for topic in topics
        if (internal or not topic.internal)
        and all(word in topic.name.lower() for word in words)
        and (not troubled or under_replicated(topic) or leaderless(topic))
    ]
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
    """The next level below a prefix, by name. Names are cut after dots, dashes and underscores.

    A level with one branch only is passed over: below ``shop.`` comes ``shop.eu.orders`` if nothing else is there.
    """
    groups: dict[str, list[TopicDescription]] = {}
    for topic in topics:
        if topic.name.startswith(prefix):
            match = _SEGMENT.match(topic.name, len(prefix))
            end = match.end() if match is not None else len(topic.name)
            groups.setdefault(topic.name[:end], []).append(topic)
    found: list[Branch] = []
    for name, members in groups.items():
        if len(members) == 1:
            found.append(_branch(members[0].name, True, members, sizes))
            continue
        found.append(_branch(_common(name, members), False, members, sizes))
    return sorted(found, key=lambda branch: branch.prefix)


def _common(prefix: str, members: Sequence[TopicDescription]) -> str:
    """The longest run of whole segments that all the members' names begin with, and none of them ends at."""
    shortest, longest = min(each.name for each in members), max(each.name for each in members)
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
