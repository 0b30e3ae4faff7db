"""The ``simple`` assignor of share groups: members read partitions together (Kafka's ``SimpleAssignor``, 4.4).

With members that subscribe to the same topics, all partitions are dealt out in one go, otherwise those of each topic
for itself. As many members read each partition as are needed to give every member one, and no member has many more
than another. Within that, members keep what they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbroker.cores.groups.assignors.spec import Assignment, GroupSpec
from kbroker.types import Uuid

_Share = tuple[Uuid, int]


class SimpleAssignor:
    """Deals out the partitions that have a state."""

    name = "simple"

    def assign(self, group: GroupSpec, assignable: Mapping[Uuid, frozenset[int]]) -> dict[str, Assignment]:
        """Partitions for every member (an empty dict for one that gets none), of those that are ``assignable``."""
        members = list(group.members.values())
        shares: dict[str, list[_Share]] = {member.member_id: [] for member in members}
        topic_ids = sorted({topic_id for member in members for topic_id in member.subscribed_topic_ids})
        for topics in [topic_ids] if group.homogeneous else [[topic_id] for topic_id in topic_ids]:
            partitions = [(topic_id, each) for topic_id in topics for each in sorted(assignable.get(topic_id, ()))]
            readers = [member for member in members if member.subscribed_topic_ids.issuperset(topics)]
            had = [[each for each in partitions if each[1] in member.assigned.get(each[0], ())] for member in readers]
            for member, share in zip(readers, _dealt(partitions, had), strict=True):
                shares[member.member_id] += share
        return {member_id: _by_topic(share) for member_id, share in shares.items()}


def _dealt(partitions: Sequence[_Share], had: Sequence[Sequence[_Share]]) -> list[list[_Share]]:
    """The partitions of each reader; ``had`` are those of before."""
    count = len(had)
    if not partitions or not count:
        return [[] for _ in had]
    readers_of_each = -(-count // len(partitions))
    total = readers_of_each * len(partitions)
    wanted = [-(-total * (index + 1) // count) - -(-total * index // count) for index in range(count)]
    shares: list[list[_Share]] = []
    readers: dict[_Share, set[int]] = {each: set() for each in partitions}
    for index, before in enumerate(had):
        kept = [each for each in before if len(readers[each]) < readers_of_each][: wanted[index]]
        shares.append(kept)
        for each in kept:
            readers[each].add(index)
    unfilled = [index for index, share in enumerate(shares) if len(share) < wanted[index]]
    for partition, has in readers.items():
        while len(has) < readers_of_each:
            taker = next((index for index in unfilled if index not in has), None)
            if taker is None:
                break
            has.add(taker)
            shares[taker].append(partition)
            unfilled.remove(taker)
            if len(shares[taker]) < wanted[taker]:
                unfilled.append(taker)  # in turns, so that nobody gets neighbours alone
    return shares


def _by_topic(share: Sequence[_Share]) -> Assignment:
    topics: dict[Uuid, set[int]] = {}
    for topic_id, partition in share:
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
