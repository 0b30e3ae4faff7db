"""Groups in every state, made by raw requests, and the answers about them in a form in which two brokers' compare."""

from __future__ import annotations

import dataclasses
import re
import time
import uuid
from dataclasses import dataclass
from typing import Any

from compat_tests.coordinators import await_group_coordinators
from compat_tests.raw_socket import RawSocket
from kbroker.sim.classic_group_clients import subscription
from kbroker.wire.conversation import Conversation
from kbroker.wire.messages.classic_groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kbroker.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from kbroker.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsResponse
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.patience import LONG, SHORT, eventually

CLOSED, SILENT = "closed", f"no answer within {SHORT} s"
"""Outcomes without an answer: the broker closes the connection, or waits for other members."""

GROUP = 32
"""The type of a resource."""

EMPTY_ASSIGNMENT = b"\0\0\0\0\0\0\xff\xff\xff\xff"


class Connection:
    """A connection that is opened again when it was closed. The client id is ``wire``."""

    def __init__(self, bootstrap: str) -> None:
        self._socket = RawSocket(bootstrap, SHORT)
        self._conversation = Conversation("wire", is_exact=True)

    def send(self, request: Any, version: int) -> None:
        """Send without waiting for the response."""
        self._socket.send(b"".join(self._conversation.send(request, version)))

    def receive(self) -> Any:
        """The response to the oldest request that has none. ``ConnectionError`` when the broker has closed."""
        return self._conversation.receive(self._socket.receive())

    def ask(self, request: Any, version: int) -> Any:
        """The response, or CLOSED or SILENT."""
        try:
            self.send(request, version)
            return self.receive()
        except TimeoutError:
            self.close()
            return SILENT
        except ConnectionError:
            self.close()
            return CLOSED

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._socket.close()
        self._conversation.pending.clear()


@dataclass
class Classic:
    """A classic group with one member, and what its requests carry."""

    group: str
    member_id: str
    generation: int = 1


@dataclass
class Modern:
    """A group of KIP-848's protocol with one member."""

    group: str
    member_id: str
    epoch: int
    instance: str | None = None


class World:
    """A topic of two partitions, and groups in the states that are asked for."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = Connection(bootstrap)
        self.bootstrap = bootstrap
        self.mark = uuid.uuid4().hex[:8]
        self.topic = f"topic-{self.mark}"
        self._fresh = self._made = 0
        self._members: dict[str, str] = {}
        self._waiting: list[Connection] = []
        new = CreatableTopic(name=self.topic, num_partitions=2, replication_factor=1)
        made = self.ask(CreateTopicsRequest(topics=[new], timeout_ms=10_000), 5)
        assert made.topics[0].error_code == 0, made
        eventually(self._is_led)
        self.topic_id = self._topic().topic_id
        # Some groups have names that nobody waits for: "", a blank, the longest.
        await_group_coordinators(bootstrap)
        # OffsetCommit to the group "" makes it: what an earlier run left must not be seen.
        self.ask(DeleteGroupsRequest(groups_names=[""]), 1)
        self.ask(DeleteGroupsRequest(groups_names=[""]), 0)
        self.stable = self.new_stable("stable", "inst")
        self.empty = self.new_empty("empty")
        self.kept = self.new_empty("kept")

    def close(self) -> None:
        """Close all connections."""
        for each in [self.connection, *self._waiting]:
            each.close()

    def _topic(self) -> Any:
        return self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)]), 12).topics[0]

    def _is_led(self) -> bool:
        partitions = self._topic().partitions
        return len(partitions) == 2 and all(each.leader_id >= 0 for each in partitions)

    def ask(self, request: Any, version: int) -> Any:
        """The response, or CLOSED or SILENT."""
        return self.connection.ask(request, version)

    def fresh(self) -> str:
        """The id of a group that does not exist; its coordinator is ready."""
        return self.named(None)

    def named(self, prefix: str | None) -> str:
        """A new group id, one that tells what for if there is a `prefix`; those with a prefix are listed.

        Its coordinator is ready: one of the fifty partitions of the offsets topic, that of this very name, is loaded.
        """
        self._fresh += 1
        group = f"{f'{prefix}-' if prefix else ''}fresh-{self.mark}-{self._fresh}"
        ask = DescribeGroupsRequest(groups=[group])
        eventually(lambda: self.ask(ask, 0).groups[0].error_code not in (14, 15, 16))
        return group

    # Classic groups
    def subscription(self) -> list[JoinGroupRequestProtocol]:
        """The protocols with which a consumer of the topic joins."""
        return [JoinGroupRequestProtocol(name="range", metadata=subscription(self.topic))]

    def join_request(self, group: str, **fields: Any) -> JoinGroupRequest:
        """JoinGroup of a consumer with long timeouts, which `fields` change."""
        values: dict[str, Any] = {
            "session_timeout_ms": 600_000,
            "rebalance_timeout_ms": 600_000,
            "protocol_type": "consumer",
            "protocols": self.subscription(),
            **fields,
        }
        return JoinGroupRequest(group_id=group, **values)

    def new_completing(self, prefix: str | None = None, instance: str | None = None, **fields: Any) -> Classic:
        """A group whose only member, its leader, has joined and not yet synced."""
        group = self.named(prefix)
        joined = self.ask(self.join_request(group, group_instance_id=instance, **fields), 5 if instance else 3)
        assert joined.error_code == 0, joined
        self._members[joined.member_id] = "MEMBER"
        return Classic(group, joined.member_id, joined.generation_id)

    def new_stable(self, prefix: str | None = None, instance: str | None = None, **fields: Any) -> Classic:
        """A stable group of one member; static with an `instance`."""
        one = self.new_completing(prefix, instance, **fields)
        self.sync(one)
        return one

    def sync(self, one: Classic, assignment: bytes = EMPTY_ASSIGNMENT) -> None:
        """Let the leader give itself an assignment."""
        mine = SyncGroupRequestAssignment(member_id=one.member_id, assignment=assignment)
        synced = self.ask(
            SyncGroupRequest(
                group_id=one.group, generation_id=one.generation, member_id=one.member_id, assignments=[mine]
            ),
            2,
        )
        assert synced.error_code == 0, synced

    def new_preparing(self, prefix: str | None = None, instance: str | None = None) -> Classic:
        """A group whose member is awaited: another one has begun to join."""
        one = self.new_stable(prefix, instance)
        other = Connection(self.bootstrap)
        self._waiting.append(other)
        other.send(self.join_request(one.group), 3)
        ask = DescribeGroupsRequest(groups=[one.group])
        eventually(lambda: self.ask(ask, 0).groups[0].group_state == "PreparingRebalance")
        return one

    def new_empty(self, prefix: str = "empty") -> str:
        """A group that only has an offset of 5 in partition 0."""
        group = self.named(prefix)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m")
        topic = OffsetCommitRequestTopic(name=self.topic, topic_id=self.topic_id, partitions=[partition])
        commit = OffsetCommitRequest(group_id=group, topics=[topic])
        eventually(lambda: not self.ask(commit, 8).topics[0].partitions[0].error_code)
        return group

    # Groups of KIP-848's protocol
    def beat_request(self, group: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        """A first ConsumerGroupHeartbeat, which `fields` change."""
        values: dict[str, Any] = {
            "member_id": self.new_member_id(),
            "rebalance_timeout_ms": 600_000,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": [],
            **fields,
        }
        return ConsumerGroupHeartbeatRequest(group_id=group, **values)

    def new_member_id(self) -> str:
        """A member id, the same one with each broker: what the assignors do depends on the order of the ids."""
        self._made += 1
        return f"member-{self._made:04}"

    def without_haste(self, group: str) -> str:
        """Configure a group so that the time that its cases take does not show, and return its name.

        Members, which send no heartbeats while others are asked, are missed after ten minutes only, and partitions are
        assigned anew whenever there is reason to.
        """
        wanted = {"consumer.session.timeout.ms": "600000", "consumer.assignment.interval.ms": "0"}
        self._configure(group, wanted)
        # Apache Kafka tells of a change a moment before its coordinators have it, and publishes one after the other.
        self._configure(f"after-{group}", wanted)
        return group

    def _configure(self, group: str, wanted: dict[str, str]) -> None:
        """Set properties of a group, and wait until they are told."""
        configs = [IncrementalAlterableConfig(name=name, value=value) for name, value in wanted.items()]
        resource = IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
        changed = self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert changed.responses[0].error_code == 0, changed
        named = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=list(wanted))
        ask = DescribeConfigsRequest(resources=[named])
        eventually(lambda: {each.name: each.value for each in self.ask(ask, 4).results[0].configs} == wanted)

    def new_modern(self, prefix: str | None = None, instance: str | None = None, **fields: Any) -> Modern:
        """A group of the consumer protocol with one member, which has both partitions."""
        group = self.named(prefix)
        self.without_haste(group)
        asked = self.beat_request(group, instance_id=instance, **fields)
        told = self.ask(asked, 1)
        deadline = time.monotonic() + LONG
        while told.error_code in (14, 15, 16) and time.monotonic() < deadline:
            told = self.ask(asked, 1)
        assert told.error_code == 0, told
        one = Modern(group, told.member_id, told.member_epoch, instance)
        owned: list[HeartbeatTopicPartitions] = []

        def settled() -> bool:
            nonlocal told, owned
            if told.assignment is not None:
                owned = [
                    HeartbeatTopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                    for each in told.assignment.topic_partitions
                ]
            one.epoch = told.member_epoch
            described = self.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0]
            if described.group_state == "Stable" and sum(len(each.partitions) for each in owned) == 2:
                return True
            told = self.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=group,
                    member_id=one.member_id,
                    member_epoch=one.epoch,
                    instance_id=instance,
                    topic_partitions=owned,
                ),
                1,
            )
            assert told.error_code == 0, told
            return False

        eventually(settled)
        return one

    # Comparing
    def normal(self, response: Any) -> Any:
        """A response as JSON can hold it, without the names and times that differ from run to run."""
        if isinstance(response, ListGroupsResponse):
            # Of all groups only those of the world that have a name of their own, in an order.
            listed = [each for each in response.groups if self.mark in each.group_id and each.group_id[0] not in "fg"]
            response = dataclasses.replace(response, groups=listed)
        return self._walk(plain(response), "")

    def _walk(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {key: self._walk(each, key) for key, each in value.items()}
        if isinstance(value, list):
            walked = [self._walk(each, name) for each in value]
            # Groups come in the order of the shards, members in that of a hash map.
            return sorted(walked, key=str) if name in ("results", "groups", "members") else walked
        if name == "port" and value > 0:
            return "PORT"
        if name == "error_message":
            return self._text(value)
        if not isinstance(value, str):
            return value
        for known, shown in (
            *self._members.items(),
            (self.topic_id.hex(), "TOPIC_ID"),
            (self.mark, "*"),
            (self.mark.encode().hex(), "MARK"),
        ):
            value = value.replace(known, shown)
        value = re.sub(r"g{300,}", "LONG", re.sub(r"fresh-\*-\d+", "FRESH", value))
        if name in ("member_id", "leader"):
            # What a coordinator makes up: the client or instance id and a UUID, or a UUID in base64.
            return re.sub(r"[0-9a-f-]{36}$|^[\w-]{22}$", "NEW", value)
        return value

    def _text(self, value: str | None) -> str | None:
        """Whether there is a text; what it says is the broker's own, except where clients show it to people."""
        if not value:
            return value
        if not value.startswith(("Group ", "NONE")):
            return "TEXT"
        return re.sub(r"g{300,}", "LONG", re.sub(r"fresh-\*-\d+", "FRESH", value.replace(self.mark, "*")))


def plain(value: Any) -> Any:
    """A response without throttle times, of what JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
        named.pop("throttle_time_ms", None)
        return named
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, (bytes, memoryview, bytearray)):
        return bytes(value).hex()
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
