"""Members of share groups by hand, and a share coordinator that is a dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.share.requests import StateDeletion, StateInitialization
from kbroker.cores.groups.share_group import ShareGroup
from kbroker.cores.share_state import SharePartitionKey
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.groups.consumer_harness import ConsumerShard
from tests.groups.harness import GROUP


class ShareShard(ConsumerShard):
    """A shard with topics, and the states that it has had made: by share partition, state epoch and start offset."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.states: dict[SharePartitionKey, tuple[int, int]] = {}
        self.state_error = ErrorCode.NONE
        """The share coordinator's answer."""

    def initialize(self) -> list[StateInitialization]:
        """Make the states that are wanted, and have the core hear of it."""
        wanted = self.core.share.take_wanted()
        for each in wanted:
            errors = dict.fromkeys(each.partitions, self.state_error)
            for key, (epoch, start) in each.partitions.items():
                if self.states.get(key, (0, 0))[0] > epoch:
                    errors[key] = ErrorCode.FENCED_STATE_EPOCH
                elif not self.state_error:
                    self.states[key] = epoch, start
            self.run(self.core.share_admin.state_initialized(each, errors))
        return wanted

    def delete(self, request: StateDeletion) -> None:
        """Delete states, and have the core hear of it."""
        for key in request.partitions:
            self.states.pop(key, None)
        topic_ids = {key.topic_id for key in request.partitions}
        self.run(self.core.share_admin.end_deletion(request.group_id, topic_ids))

    def reloaded(self) -> ShareShard:
        """A new coordinator from the log alone; the states are elsewhere."""
        fresh = ShareShard(topics={}, seed=self.seed + 1)
        fresh.settings, fresh.group_config_value = self.settings, self.group_config_value
        fresh.now_ms, fresh.topics, fresh.states = self.now_ms, self.topics, self.states
        fresh.core.on_topics(self.topics, (), False)
        for record in self.log:
            fresh.core.replay(record, fresh.now_ms)
        fresh.core.on_loaded(fresh.now_ms)
        fresh.log = list(self.log)
        return fresh

    @property
    def share_group(self) -> ShareGroup:
        """The share group that the members are in."""
        return self.core.groups.share[GROUP]

    def starts(self, topic: str) -> dict[int, int]:
        """The start offsets that a topic's states were made with, by partition."""
        found = self.topics.by_name(topic)
        assert found is not None
        return {key.partition: start for key, (_, start) in self.states.items() if key.topic_id == found.id}


class ShareMember:
    """A client of a share group. ``heartbeat`` sends one request, and takes what it answers."""

    def __init__(self, shard: ShareShard, member_id: str, topics: Iterable[str] = ("t",)) -> None:
        self.shard = shard
        self.member_id = member_id
        self.topics = list(topics)
        self.epoch = 0
        self.owned: dict[Uuid, set[int]] = {}
        self.error = ErrorCode.NONE
        self.message: str | None = None
        self.interval_ms = 0

    def heartbeat(self, *, full: bool = False, **fields: Any) -> ShareGroupHeartbeatResponse | None:
        """Send a request, with these fields in place of the usual ones; None where it is refused (see ``error``)."""
        values: dict[str, Any] = {"group_id": GROUP, "member_id": self.member_id, "member_epoch": self.epoch}
        if full or self.epoch == 0:
            values["subscribed_topic_names"] = self.topics
        request = ShareGroupHeartbeatRequest(**(values | fields))
        self.error, self.message = ErrorCode.NONE, None
        client = ClientContext("client", "/127.0.0.1", 1)
        try:
            result = self.shard.core.share.heartbeat(request, client, self.shard.now_ms)
        except ApiError as error:
            self.error, self.message = error.code, error.message
            return None
        response = self.shard.run(result)
        assert isinstance(response, ShareGroupHeartbeatResponse)
        self.epoch, self.interval_ms = response.member_epoch, response.heartbeat_interval_ms
        if response.assignment is not None:
            self.owned = {Uuid(each.topic_id): set(each.partitions) for each in response.assignment.topic_partitions}
        return response

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """The partitions that the client reads, by topic name."""
        found = set()
        for owned_id, partitions in self.owned.items():
            topic = self.shard.topics.by_id(owned_id)
            found |= {("?" if topic is None else topic.name, partition) for partition in partitions}
        return found


def settle(shard: ShareShard, members: list[ShareMember], rounds: int = 12) -> None:
    """Let everybody send heartbeats, a second apart, and states be made, until nothing changes."""
    for _ in range(rounds):
        before = [(member.epoch, member.partitions) for member in members]
        for member in members:
            member.heartbeat()
        made = shard.initialize()
        shard.advance(1_000)
        if not made and [(member.epoch, member.partitions) for member in members] == before:
            return
    raise AssertionError("the group does not settle")
