"""Asks the replicas of a partition of which none is known to have everything what they have, before one is elected.

That is so when all in-sync replicas ended uncleanly, or the last of them found its log damaged. KIP-966 has a request
for this in its second part (GetReplicaLogInfo), which Apache Kafka 4.4 has not: it elects the last leader. Here each
broker that sees such a partition among its own says in its heartbeats what it has.

As volatile as sessions: a new active controller is told anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from kbroker.raft_metadata.image import EMPTY_IMAGE, NO_LEADER, MetadataDelta, MetadataImage, PartitionImage
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple

Key = tuple[Uuid, int]

TIMES_FOR_A_WHOLE_COPY = 30
"""Where all that have answered are damaged, the wait for another one is so many times as long. It has no end where they
have lost everything: whoever follows an empty log is emptied."""

WORTH_TELLING_MS = 1000
"""Most brokers say what they have as soon as they are unfenced."""


class LogEnd(NamedTuple):
    """The end of a replica's log, as its broker says."""

    leader_epoch: int
    """Of its last record; -1 without records."""
    epoch_start_offset: int
    """The offset at which that epoch began."""
    end_offset: int
    """The end of the log, or the end that it had before it was damaged."""
    missing: int = 0
    """Offsets below the end that damage took."""

    @property
    def has_lost_all(self) -> bool:
        """Whether damage took everything that there was."""
        return 0 < self.end_offset <= self.missing


def most_complete(ends: Mapping[int, LogEnd], order: Iterable[int]) -> int:
    """Returns the replica with which the fewest offsets are lost; of equal ones, the first in ``order``.

    The log that went furthest, by leader epoch and end, is what all are measured by: another one lacks what is behind
    its own end, and whatever an epoch wrote that it has not heard of. So without damage the log that went furthest
    wins (Raft's rule), and a damaged one loses to a whole one unless that one is further behind than the damage is
    large.
    """
    furthest = max(ends.values())

    def rank(broker_id: int) -> tuple[int, int, int]:
        end = ends[broker_id]
        shared = end.end_offset
        if end.leader_epoch < furthest.leader_epoch:
            shared = min(shared, furthest.epoch_start_offset)
        lost = end.missing + max(furthest.end_offset - shared, 0)
        return -lost, end.leader_epoch, end.end_offset

    return max((broker_id for broker_id in order if broker_id in ends), key=rank)


def is_asked_for(partition: PartitionImage) -> bool:
    """Whether brokers are to tell what they have: there is no leader, no replica is known to have everything, and there
    is a choice."""
    is_choice = len(partition.replicas) > 1  # a node may have ten thousand partitions without
    return is_choice and partition.leader == NO_LEADER and not partition.isr and not partition.elr


class LogEnds:
    """The partitions in question, and what brokers say of them. Times are milliseconds of a monotonic clock."""

    def __init__(self, timeout_ms: int = 0) -> None:
        """``timeout_ms``: a broker is waited for no longer, unless it verifies its logs or has more to tell."""
        self.timeout_ms = timeout_ms
        self._image = EMPTY_IMAGE
        self._now_ms = 0
        self._since: dict[Key, int] = {}
        """When each partition came into question."""
        self._ends: dict[int, tuple[int, dict[Key, LogEnd]]] = {}
        """The epoch of each broker when it last said something, and what it said."""
        self._mute: dict[int, int] = {}
        """The epochs of brokers that are ready and do not answer: they are not ours."""
        self._at_work: dict[int, int] = {}
        """When brokers were last heard of that verify their logs, or told something new: there may be more to come."""

    # --- what happens -------------------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        """Ask anew: this node has become the active controller."""
        self._now_ms = now_ms
        self._since = dict.fromkeys(self._since, now_ms)
        for known in (self._ends, self._mute, self._at_work):
            known.clear()

    def restart(self, image: MetadataImage) -> None:
        """Follow the metadata from an image on."""
        self._image = image
        self._since.clear()
        for topic_id, topic in image.topics.by_id.items():
            for index, partition in topic.partitions.items():
                if is_asked_for(partition):
                    self._since[topic_id, index] = self._now_ms

    def on_change(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the metadata."""
        self._image = image
        if self._since:
            for key in [key for key in self._since if key[0] in delta.deleted_topics]:
                self._settle(key)
        for topic, partition_id, partition in delta.partitions_in(image):
            key = topic.id, partition_id
            if is_asked_for(partition):
                self._since.setdefault(key, self._now_ms)
            elif key in self._since:
                self._settle(key)

    def _settle(self, key: Key) -> None:
        """End a question. If it comes up again, the answers may be from before damage was found."""
        del self._since[key]
        for _, ends in self._ends.values():
            ends.pop(key, None)

    def heard(
        self, broker_id: int, broker_epoch: int, ends: Mapping[Key, LogEnd] | None, now_ms: int, *, recovers: bool
    ) -> list[Key]:
        """Take in a heartbeat; the partitions of which it may decide an election.

        ``ends`` is None from a broker that does not know the question. One that ``recovers`` cannot answer yet. Each
        heartbeat may tell of some partitions only.
        """
        self._now_ms = now_ms
        if recovers:
            self._at_work[broker_id] = now_ms
            return []
        if ends is None:
            is_news = self._mute.get(broker_id) != broker_epoch
            self._mute[broker_id] = broker_epoch
            return list(self._since) if is_news else []
        self._mute.pop(broker_id, None)
        if self._ends.get(broker_id, (-1,))[0] != broker_epoch:
            self._ends[broker_id] = broker_epoch, {}
        said = self._ends[broker_id][1]
        news = [key for key in ends if key in self._since]
        if not said.keys() >= set(news):
            self._at_work[broker_id] = now_ms
        said.update((key, ends[key]) for key in news)
        return news

    def passed(self, now_ms: int) -> bool:
        """Let time pass; whether a partition is in question."""
        self._now_ms = now_ms
        return bool(self._since)

    # --- what follows from it -----------------------------------------------------------------------------------

    def asked(self, keys: Iterable[Key] | None = None) -> Iterator[tuple[Key, PartitionImage]]:
        """Returns the partitions in question, or those of some that are."""
        for key in self._since if keys is None else filter(self._since.__contains__, keys):
            yield key, self._image.topics.by_id[key[0]].partitions[key[1]]

    def of(self, key: Key, candidates: Collection[int]) -> dict[int, LogEnd]:
        """Returns what those of the ``candidates`` have that have said so in their present lives."""
        found = {}
        for broker_id in candidates:
            epoch, ends = self._ends.get(broker_id, (-1, {}))
            broker = self._image.brokers.get(broker_id)
            if broker is not None and broker.epoch == epoch and key in ends:
                found[broker_id] = ends[key]
        return found

    def awaited(
        self,
        key: Key,
        partition: PartitionImage,
        known: Mapping[int, LogEnd] | None = None,
        candidates: Collection[int] = (),
    ) -> list[int]:
        """Returns the brokers that may still say what they have of a partition, beside those that are ``known``.

        One of the ``candidates`` is awaited also if the image has its directory still for lost.
        """
        if known is None:
            known = self.of(key, partition.replicas)
        limit: float = self.timeout_ms
        if known and all(end.has_lost_all for end in known.values()):
            limit = math.inf
        elif known and all(end.missing for end in known.values()):
            limit = self.timeout_ms * TIMES_FOR_A_WHOLE_COPY
        return [
            broker_id
            for broker_id in partition.replicas
            if broker_id not in known and self._may_answer(broker_id, key, partition, limit, broker_id in candidates)
        ]

    def is_early(self, key: Key, partition: PartitionImage) -> bool:
        """Whether a partition is in question, and a broker is waited for whatever others have said or may say."""
        known = self.of(key, partition.replicas)
        return key in self._since and any(
            broker_id not in known and self._may_answer(broker_id, key, partition, self.timeout_ms)
            for broker_id in partition.replicas
        )

    def _may_answer(
        self, broker_id: int, key: Key, partition: PartitionImage, limit: float, is_candidate: bool = False
    ) -> bool:
        """Whether a broker that has said nothing of a partition may do so within the ``limit``, in milliseconds."""
        broker = self._image.brokers.get(broker_id)
        since = self._since.get(key, self._now_ms)
        return (
            broker is not None
            and self._mute.get(broker_id) != broker.epoch
            and (is_candidate or broker.has_online_dir(partition.directory(broker_id)))
            and self._now_ms < max(since, self._at_work.get(broker_id, since)) + limit
        )

    def missed(self) -> dict[int, int]:
        """Returns the brokers that have been waited for long enough to be told of, and for how many partitions."""
        late = (each for each in self.asked() if self._since[each[0]] + WORTH_TELLING_MS <= self._now_ms)
        return Counter(broker_id for key, partition in late for broker_id in self.awaited(key, partition))

    def next_deadline(self) -> float:
        """The time at which the wait for a partition may be over, or has lasted for long enough to be told of."""
        if not self._since:
            return math.inf
        oldest = min(self._since.values())
        begun = {*self._since.values(), *self._at_work.values()}  # most came into question together
        times = [begin + self.timeout_ms * factor for begin in begun for factor in (1, TIMES_FOR_A_WHOLE_COPY)]
        times.append(oldest + WORTH_TELLING_MS)
        return min((time for time in times if time > self._now_ms), default=math.inf)
