"""A follower's incremental fetch session with one leader (KIP-227): the entries there, and the next request.

The leader remembers the entries; a request names those that have changed. `leader_bounds` asks for the bounds of logs,
where a follower's end lies outside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cores.replication.fetch_session import next_epoch
from kbroker.types import Uuid
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kbroker.wire.primitives import MAX_ELEMENTS

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.node.replicas.partition import Partition

Key = tuple[str, int]

_MOST_OF_A_KEY = 4
"""Elements of a request for one key: a topic and a partition that are asked for, and as many that are forgotten."""


class Followed:
    """A partition that is followed in one leader epoch."""

    __slots__ = (
        "accepted",
        "attempts",
        "begun",
        "cut_to",
        "doubts",
        "heals",
        "in_sync",
        "key",
        "leader_epoch",
        "partition",
        "retry_at",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = partition.topic_partition
        self.leader_epoch = partition.state.leader_epoch
        self.begun = False
        self.accepted = False
        """The leader's last answer was no error: it knows the partition, and may hold a request until there is news."""
        self.in_sync = False
        """By the leader's last answer it has all that is committed (``PartitionFetchState.isReplicaInSync``)."""
        self.heals = False
        """It was damaged and is cut back, which the leader does not know yet."""
        self.doubts = False
        """The leader's last answer had a batch that cannot be right."""
        self.cut_to: int | None = None
        """The lowest offset to which its log was cut back, where it parted from the leader's."""
        self.attempts = 0
        self.retry_at = 0.0
        """Time of the next fetch, while it backs off (``Env.now``)."""


class Position(NamedTuple):
    """A partition's entry in the leader's fetch session."""

    followed: Followed
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    is_doubted: bool


class LeaderSession:
    """The session with one leader."""

    def __init__(self, config: BrokerConfig, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._config = config
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._id = 0
        self._epoch = 0
        self.entries: dict[Key, Position] = {}
        """As the leader knows them."""
        self.changed: dict[Key, None] = {}
        """Partitions whose entry may be out of date; looked at before the next request."""

    def reset(self, keys: Iterable[Key]) -> None:
        """Begin another session with the next request, of these partitions."""
        self._id = self._epoch = 0
        self.entries.clear()
        self.changed = dict.fromkeys(keys)

    def answered(self, session_id: int) -> None:
        """The leader has taken the latest request; with id 0 it keeps no session."""
        self._id = session_id
        self._epoch = next_epoch(self._epoch)

    @property
    def is_kept(self) -> bool:
        """Whether the leader keeps the session."""
        return bool(self._id)

    def request(
        self, version: int, position_of: Callable[[Key], Position | None], max_wait_ms: Callable[[], int]
    ) -> FetchRequest:
        """The next request: the entries that have changed.

        ``position_of`` gives a partition's entry, None if it is not to be fetched now; ``max_wait_ms``, asked after
        all entries, for how long the leader may hold the request.
        """
        asked: dict[Uuid, FetchTopic] = {}
        forgotten: dict[Uuid, ForgottenTopic] = {}
        session = self.entries
        max_bytes = self._config.replica_fetch_max_bytes
        may_be_held, named = True, 0
        for key in list(self.changed):
            if len(asked) + len(forgotten) + named > MAX_ELEMENTS - _MOST_OF_A_KEY:
                may_be_held = False  # the leader would refuse more, and hears of the others with the next request
                break
            del self.changed[key]
            name, index = key
            known = session.get(key)
            position = position_of(key)
            if known is not None and (
                position is None or known.followed.partition.topic_id != position.followed.partition.topic_id
            ):
                topic_id = known.followed.partition.topic_id
                topic = forgotten.setdefault(topic_id, ForgottenTopic(topic=name, topic_id=topic_id, partitions=[]))
                topic.partitions.append(index)
                named += 1
                del session[key]
            if position is None:
                continue
            if not position.followed.accepted:
                # A leader that has not heard of the topic yet may hold the request for the sake of other partitions
                # (``KafkaApis.handleFetchRequest``), and would go on to do so once it has heard of it.
                may_be_held = False
            if position == known:
                continue
            session[key] = position
            named += 1
            topic_id = position.followed.partition.topic_id
            asked.setdefault(topic_id, FetchTopic(topic=name, topic_id=topic_id, partitions=[])).partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.followed.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=max_bytes,
                    is_doubted=position.is_doubted,
                )
            )
        config = self._config
        request = FetchRequest(
            max_wait_ms=max_wait_ms() if may_be_held else 0,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(asked.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        if version >= 15:
            request.replica_state = ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch())
        else:
            request.replica_id = self._node_id
        return request


_LATEST, _EARLIEST = -1, -2

Ask = Callable[[type[ListOffsetsRequest], Callable[[int], ListOffsetsRequest]], Awaitable[ListOffsetsResponse | None]]
"""Asks the leader; None if it does not answer."""


async def leader_bounds(ask: Ask, node_id: int, asked: Collection[Followed]) -> dict[Key, tuple[int, int]] | None:
    """The first offset and the end of each log, of those that the leader tells; None if it does not answer."""
    bounds: list[dict[Key, int]] = []
    for timestamp in (_EARLIEST, _LATEST):
        response = await ask(ListOffsetsRequest, partial(_request, node_id, asked, timestamp))
        if response is None:
            return None
        bounds.append(
            {
                (topic.name, answer.partition_index): answer.offset
                for topic in response.topics
                for answer in topic.partitions
                if not answer.error_code
            }
        )
    earliest, latest = bounds
    return {key: (earliest[key], latest[key]) for key in earliest if key in latest}


def _request(node_id: int, asked: Collection[Followed], timestamp: int, version: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for followed in asked:
        name, index = followed.key
        topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[])).partitions.append(
            ListOffsetsPartition(partition_index=index, current_leader_epoch=followed.leader_epoch, timestamp=timestamp)
        )
    return ListOffsetsRequest(replica_id=node_id, topics=list(topics.values()))
