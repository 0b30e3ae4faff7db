"""The ``uniform`` assignor: balanced first, sticky second (Kafka's ``UniformAssignor``).

When all members subscribe to the same topics their numbers of partitions differ by one at most, and what moves is the
least that makes it so. Otherwise each topic's partitions go to its least loaded subscribers, and then partitions move
from the most to the least loaded subscriber of a topic, topic by topic, until no move helps.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heapreplace, nsmallest

from kbroker.cores.groups.assignors.spec import GroupSpec, TopicsView, existing_partition_count, usable
from kbroker.types import Uuid

Target = dict[str, dict[Uuid, frozenset[int]]]

MAX_BALANCE_ROUNDS = 16
"""Rounds over the topics after which a group is balanced enough: overlapping subscriptions may take long to settle,
each round roughly halves what is left (Kafka's limit)."""


class UniformAssignor:
    """Equal numbers of partitions for all, with as few moves as that takes."""

    name = "uniform"

    def assign(self, group: GroupSpec, topics: TopicsView) -> Target:
        """See :class:`~kbroker.cores.groups.assignors.spec.Assignor`."""
        if not group.members:
            return {}
        if group.homogeneous:
            return _assign_homogeneous(group, topics)
        return _Heterogeneous(group, topics).assign()


def _assign_homogeneous(group: GroupSpec, topics: TopicsView) -> Target:
    member_ids = sorted(group.members)
    topic_ids = sorted(group.members[member_ids[0]].subscribed_topic_ids)
    counts = {topic_id: existing_partition_count(topics, topic_id) for topic_id in topic_ids}
    taken: dict[Uuid, set[int]] = {topic_id: set() for topic_id in topic_ids}

    # `extra` members get one partition more than `quota`.
    quota, extra = divmod(sum(counts.values()), len(member_ids))
    target: Target = {}
    wanting: list[tuple[str, int]] = []
    for index, member_id in enumerate(member_ids):
        assigned = group.members[member_id].assigned
        room = quota + (extra > 0)
        kept: dict[Uuid, frozenset[int]] = {}
        for topic_id in sorted(assigned.keys() & counts.keys()):
            partitions = usable(assigned[topic_id], counts[topic_id], taken[topic_id])
            if len(partitions) > room:
                partitions = frozenset(sorted(partitions)[:room])
            if partitions:
                kept[topic_id] = partitions
                taken[topic_id] |= partitions
                room -= len(partitions)
        target[member_id] = kept

        if extra > 0:
            # The extra one is left to a member that may have more to keep, unless all that follow must have one.
            if room > 0 and len(member_ids) - index > extra:
                room -= 1
            else:
                extra -= 1
        if room > 0:
            wanting.append((member_id, room))

    _hand_out(counts, taken, wanting, target)
    return target


def _hand_out(
    counts: dict[Uuid, int], taken: dict[Uuid, set[int]], wanting: list[tuple[str, int]], target: Target
) -> None:
    """Give the partitions that are not ``taken`` to ``wanting`` members (id, number of partitions), topic by topic."""
    members = iter(wanting)
    member_id, room = "", 0
    for topic_id, count in counts.items():
        free = sorted(set(range(count)) - taken[topic_id])
        start = 0
        while start < len(free):
            if room == 0:
                member_id, room = next(members)
            given = free[start : start + room]
            start += len(given)
            room -= len(given)
            mine = target[member_id]
            mine[topic_id] = mine.get(topic_id, frozenset()).union(given)


class _Heterogeneous:
    """One assignment for members whose subscriptions differ. Members are known by their place in ``member_ids``."""

    def __init__(self, group: GroupSpec, topics: TopicsView) -> None:
        self.group = group
        self.member_ids = sorted(group.members)
        self.sizes = [0] * len(self.member_ids)
        """The number of partitions that each member has by now."""
        self.subscribers: dict[Uuid, list[int]] = defaultdict(list)
        for member, member_id in enumerate(self.member_ids):
            for topic_id in group.members[member_id].subscribed_topic_ids:
                self.subscribers[topic_id].append(member)
        self.counts = {topic_id: existing_partition_count(topics, topic_id) for topic_id in self.subscribers}
        # Most partitions for each subscriber first, then fewest subscribers: topics with the least choice come first.
        self.topic_ids = sorted(
            self.subscribers,
            key=lambda topic_id: (
                -self.counts[topic_id] / len(self.subscribers[topic_id]),
                len(self.subscribers[topic_id]),
                topic_id,
            ),
        )
        self.owners: dict[Uuid, dict[int, frozenset[int] | set[int]]] = {topic_id: {} for topic_id in self.topic_ids}
        """By topic: the owners and their partitions. A frozen set is one that the member had before."""

    def assign(self) -> Target:
        self._keep_what_is_subscribed()
        for topic_id in self.topic_ids:
            self._place_free_partitions(topic_id)
        self._balance()
        target: Target = {member_id: {} for member_id in self.member_ids}
        for topic_id, owners in self.owners.items():
            for member, partitions in owners.items():
                if partitions:
                    target[self.member_ids[member]][topic_id] = frozenset(partitions)
        return target

    def _keep_what_is_subscribed(self) -> None:
        taken: dict[Uuid, set[int]] = {topic_id: set() for topic_id in self.topic_ids}
        for member, member_id in enumerate(self.member_ids):
            spec = self.group.members[member_id]
            for topic_id, assigned in spec.assigned.items():
                if topic_id not in spec.subscribed_topic_ids:
                    continue
                partitions = usable(assigned, self.counts[topic_id], taken[topic_id])
                if partitions:
                    taken[topic_id] |= partitions
                    self.owners[topic_id][member] = partitions
                    self.sizes[member] += len(partitions)

    def _place_free_partitions(self, topic_id: Uuid) -> None:
        owners = self.owners[topic_id]
        free = set(range(self.counts[topic_id])).difference(*owners.values())
        if not free:
            return
        # As single numbers, load before member; of many subscribers no more than there are partitions get any.
        count = len(self.member_ids)
        sizes = self.sizes
        least_loaded = [sizes[member] * count + member for member in self.subscribers[topic_id]]
        if 4 * len(free) < len(least_loaded):
            least_loaded = nsmallest(len(free), least_loaded)
        heapify(least_loaded)
        for partition in sorted(free):
            load = least_loaded[0]
            self._give(topic_id, partition, load % count)
            heapreplace(least_loaded, load + count)

    def _by_load(self, members: list[int], sign: int) -> list[tuple[int, int]]:
        """A heap of (sign times number of partitions, member)."""
        heap = [(sign * self.sizes[member], member) for member in members]
        heapify(heap)
        return heap

    def _give(self, topic_id: Uuid, partition: int, member: int) -> None:
        self._mutable(topic_id, member).add(partition)
        self.sizes[member] += 1

    def _take(self, topic_id: Uuid, partition: int, member: int) -> None:
        self._mutable(topic_id, member).discard(partition)
        self.sizes[member] -= 1

    def _mutable(self, topic_id: Uuid, member: int) -> set[int]:
        owners = self.owners[topic_id]
        partitions = owners.get(member, ())
        if not isinstance(partitions, set):
            partitions = owners[member] = set(partitions)
        return partitions

    def _balance(self) -> None:
        """Go round the topics until a whole round has changed nothing."""
        topic_ids = [topic_id for topic_id in self.topic_ids if len(self.subscribers[topic_id]) > 1]
        unchanged = 0
        for _ in range(MAX_BALANCE_ROUNDS):
            for topic_id in topic_ids:
                unchanged = 0 if self._balance_topic(topic_id) else unchanged + 1
                if unchanged == len(topic_ids):
                    return

    def _balance_topic(self, topic_id: Uuid) -> bool:
        """Move partitions of one topic from its most loaded owners to its least loaded subscribers; whether any moved.

        A member that gave or got has an old size in the other heap; it does not come to the top there before the
        sizes at both tops differ by less than two, which ends the loop.
        """
        owners, subscribers, sizes = self.owners[topic_id], self.subscribers[topic_id], self.sizes
        lowest = min(map(sizes.__getitem__, subscribers))
        if all(sizes[member] - lowest <= 1 for member in owners):
            return False

        least_loaded = self._by_load(subscribers, sign=1)
        most_loaded = self._by_load([member for member, partitions in owners.items() if partitions], sign=-1)
        spare: dict[int, list[int]] = {}
        moved = False
        while most_loaded:
            low, receiver = least_loaded[0]
            high, giver = -most_loaded[0][0], most_loaded[0][1]
            if high - low <= 1:
                break
            partitions = spare.get(giver)
            if partitions is None:
                partitions = spare[giver] = sorted(owners[giver])
            partition = partitions.pop()
            self._take(topic_id, partition, giver)
            self._give(topic_id, partition, receiver)
            moved = True
            if partitions:
                heapreplace(most_loaded, (1 - high, giver))
            else:
                heappop(most_loaded)
            heapreplace(least_loaded, (low + 1, receiver))
        return moved
