"""Clients of the consumer group protocol by hand, and topics that can be created, grown and deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.consumer_group import ConsumerGroup
from kbroker.cores.groups.topics import TopicMetadata
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from tests.groups.harness import GROUP, Shard


class FakeTopics:
    """An image of topics; ``changed`` makes the next one."""

    def __init__(self, version: int = 1, topics: Iterable[TopicMetadata] = ()) -> None:
        self.version = version
        self._by_name = {topic.name: topic for topic in topics}
        self._by_id = {topic.id: topic for topic in topics}

    def names(self) -> Iterable[str]:
        return self._by_name

    def by_name(self, name: str) -> TopicMetadata | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: Uuid) -> TopicMetadata | None:
        return self._by_id.get(topic_id)

    def partition_count(self, topic_id: Uuid) -> int:
        topic = self._by_id.get(topic_id)
        return -1 if topic is None else topic.partition_count

    def changed(self, **partition_counts: int) -> FakeTopics:
        """With topics of these numbers of partitions; 0 deletes one."""
        topics = dict(self._by_name)
        for name, count in partition_counts.items():
            if count == 0:
                topics.pop(name, None)
            elif name in topics:
                topics[name] = topics[name]._replace(partition_count=count)
            else:
                topics[name] = TopicMetadata(name, topic_id(name, self.version), count)
        return FakeTopics(self.version + 1, topics.values())


def topic_id(name: str, incarnation: int = 1) -> Uuid:
    """An id that shows the name."""
    return Uuid(name.encode()[:14].ljust(14, b"\0") + incarnation.to_bytes(2))


class ConsumerShard(Shard):
    """A shard with topics."""

    def __init__(self, *, topics: dict[str, int] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.topics = FakeTopics()
        if topics != {}:
            self.set_topics(**(topics or {"t": 6}))

    def set_topics(self, **partition_counts: int) -> None:
        """Create, grow or (with 0) delete topics."""
        has_new = any(self.topics.by_name(name) is None for name in partition_counts)
        self.topics = self.topics.changed(**partition_counts)
        self.core.on_topics(self.topics, set(partition_counts), has_new)

    def reloaded(self) -> ConsumerShard:
        # Another seed: a coordinator that starts anew does not hand out the same member ids again.
        fresh = ConsumerShard(topics={}, seed=self.seed + 1)
        fresh.settings = self.settings
        fresh.group_config_value = self.group_config_value
        fresh.now_ms = self.now_ms
        fresh.topics = self.topics
        fresh.core.on_topics(self.topics, (), False)
        for record in self.log:
            fresh.core.replay(record, fresh.now_ms)
        fresh.core.on_loaded(fresh.now_ms)
        fresh.log = list(self.log)
        fresh.replies = self.replies
        return fresh

    @property
    def group(self) -> ConsumerGroup:
        """The consumer group that the members are in."""
        return self.core.groups.consumer[GROUP]


class Consumer:
    """A client of the consumer group protocol: it revokes when told to, and says what it owns.

    ``heartbeat`` sends one request; what it answers is taken at once, as a client's poll would.
    """

    def __init__(
        self,
        shard: ConsumerShard,
        *,
        member_id: str,
        topics: list[str] | None = None,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 60_000,
        api_version: int = 1,
    ) -> None:
        self.shard = shard
        self.member_id = member_id
        self.topics = ["t"] if topics is None and regex is None else topics
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.api_version = api_version
        self.epoch = 0
        self.owned: dict[Uuid, set[int]] = {}
        self.error: ErrorCode = ErrorCode.NONE
        self.message: str | None = None

    def send(self, *, full: bool = True, **fields: Any) -> ConsumerGroupHeartbeatResponse | None:
        """Send a request, with these fields in place of the usual ones; None where it is refused (see ``error``)."""
        values: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
        }
        if full:
            values |= {
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "subscribed_topic_names": self.topics,
                "subscribed_topic_regex": self.regex,
                "server_assignor": self.assignor,
                "topic_partitions": [
                    HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                    for topic_id, partitions in sorted(self.owned.items())
                    if partitions
                ],
            }
        request = ConsumerGroupHeartbeatRequest(**(values | fields))
        client = ClientContext("client", "/127.0.0.1", self.api_version)
        self.error, self.message = ErrorCode.NONE, None
        try:
            result = self.shard.core.consumer_group_heartbeat(request, client, self.shard.now_ms)
        except ApiError as error:
            self.error, self.message = error.code, error.message
            return None
        response = self.shard.run(result)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def heartbeat(self, *, full: bool = True) -> ConsumerGroupHeartbeatResponse | None:
        """Send a heartbeat and do what it says; fenced, give up everything and come back next time."""
        response = self.send(full=full)
        if response is None:
            if self.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.epoch, self.owned = 0, {}
            return None
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {Uuid(each.topic_id): set(each.partitions) for each in response.assignment.topic_partitions}
        return response

    def leave(self, *, for_a_while: bool = False) -> ConsumerGroupHeartbeatResponse | None:
        """Leave, or with ``for_a_while`` as a static member that comes back."""
        response = self.send(full=False, member_epoch=-2 if for_a_while else -1)
        self.epoch, self.owned = 0, {}
        return response

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """The partitions that the client reads, by topic name."""
        found = set()
        for owned_id, partitions in self.owned.items():
            topic = self.shard.topics.by_id(owned_id)
            name = "?" if topic is None else topic.name
            found |= {(name, partition) for partition in partitions}
        return found


def settle(shard: ConsumerShard, consumers: list[Consumer], rounds: int = 12) -> None:
    """Let everybody send heartbeats, a second apart, until nothing changes."""
    for _ in range(rounds):
        before = [(consumer.epoch, consumer.partitions) for consumer in consumers]
        for consumer in consumers:
            consumer.heartbeat()
        shard.advance(1_000)
        if [(consumer.epoch, consumer.partitions) for consumer in consumers] == before:
            return
    raise AssertionError("the group does not settle")
