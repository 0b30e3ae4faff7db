"""A broker that a sequence of requests is sent to: what it has given out, and its answers in a comparable form."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compat_tests.wire_differential.configured import GROUP, configure
from compat_tests.wire_differential.dialogue import Dialogue
from kbroker.types import Uuid
from kbroker.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kbroker.wire.messages.described_transactions import DescribeTransactionsRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import struct_spec
from tests.node.api_cases import build
from tests.patience import SHORT, eventually

Told = Mapping[str, Any]

_RECENT = 1_750_000_000_000
_PASSING = frozenset({14, 15, 16, 51})
"""Errors that pass by themselves: the coordinator loads, or the last transaction is being completed."""
_UNKNOWN_ID = Uuid(b"no topic has me!")
API_KEY = {api.name: key for key, api in API_KEYS.items()}
_PAUSE = threading.Event()
_BARRIER = "barrier"
"""The name of a group and a topic of which no sequence knows."""


@dataclass(eq=False)
class World:
    """A broker of the pair: the conversation with it, and what it has given out."""

    talk: Dialogue
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By transactional id, or by a label for one that is only idempotent: producer id and epoch."""
    members: dict[str, str] = field(default_factory=dict)
    """By group: the member id that was given last."""
    generations: dict[str, int] = field(default_factory=dict)
    barriers: int = 0

    def topic_id(self, name: str) -> Uuid:
        """The id of a topic of this broker; one that no topic has, if there is none."""
        return Uuid(self.talk.topic_ids.get(name, _UNKNOWN_ID))

    def joined(self, group: str, member_id: str, generation: int) -> None:
        """A member of a group has this id, and this generation."""
        self.members[group], self.generations[group] = member_id, generation
        self.talk.labels.setdefault(member_id, f"member {len(self.talk.labels)}")

    def settle(self) -> None:
        """Wait until the broker goes by the last change of metadata.

        Apache Kafka tells of a change a moment before all its parts have it, and publishes one after the other: when
        the next change is told of, all of them have this one.
        """
        self.barriers += 1
        value = str(5000 + self.barriers % 10_000)
        answer = self.talk.ask(configure(GROUP, _BARRIER, consumer_heartbeat_interval_ms=value), 1)
        assert not answer.responses[0].error_code, answer
        asked = DescribeConfigsResource(
            resource_type=GROUP, resource_name=_BARRIER, configuration_keys=["consumer.heartbeat.interval.ms"]
        )

        def known() -> bool:
            told = self.talk.ask(DescribeConfigsRequest(resources=[asked]), 4).results[0]
            return bool(told.configs) and told.configs[0].value == value

        _await(known)

    def make_barriers(self) -> None:
        """Make the topic that `settle_groups` commits an offset for."""
        topic = CreatableTopic(name=_BARRIER, num_partitions=1, replication_factor=1)
        assert not self.talk.ask(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code
        self.await_leader(_BARRIER, 1)

    def settle_groups(self) -> None:
        """Commit an offset: Apache Kafka tells of a group without a record only when others have written some."""
        partition = OffsetCommitRequestPartition(partition_index=0)
        topics = [OffsetCommitRequestTopic(name=_BARRIER, partitions=[partition])]
        answer = self.talk.ask(OffsetCommitRequest(group_id=_BARRIER, topics=topics), 8)
        assert not answer.topics[0].partitions[0].error_code, answer

    def await_leader(self, name: str, partitions: int) -> None:
        """Wait until the broker leads the partitions of a topic."""
        parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts)])
        _await(lambda: not any(each.error_code for each in self.talk.ask(request, 7).topics[0].partitions))

    def await_end(self, transactional_id: str) -> None:
        """Wait until the markers of a transaction that was ended are written."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        _await(lambda: not self.talk.ask(request, 0).transaction_states[0].transaction_state.startswith("Prepare"))

    def plain(self, answer: Any) -> Any:
        """An answer in a form that can be compared, its lists in an order of their own."""
        return _ordered(self.talk.plain(answer))


def _await(condition: Callable[[], bool]) -> None:
    eventually(condition, "a change is known")


@dataclass
class Step:
    """A request of a sequence."""

    api: str
    version: int
    told: Callable[[World], Told]
    learn: Callable[[World, Any], None] = lambda world, answer: None
    changes_metadata: bool = False
    changes_groups: bool = False
    ends_transaction: str = ""

    def ask(self, world: World) -> Any:
        """The broker's answer, once it is none that passes, in a form that can be compared."""
        api = API_KEYS[API_KEY[self.api]]
        deadline = time.monotonic() + SHORT
        while True:
            answer = world.talk.ask(build(api.request, self.version, self.told(world)), self.version)
            if isinstance(answer, str):
                return answer
            if not _codes(answer) & _PASSING or time.monotonic() > deadline:
                break
            _PAUSE.wait(0.02)
        if self.changes_metadata:
            world.settle()
        if self.changes_groups:
            world.settle_groups()
        if self.ends_transaction:
            world.await_end(self.ends_transaction)
        self.learn(world, answer)
        return world.plain(answer)


def _codes(value: Any) -> set[int]:
    """All error codes in an answer."""
    if isinstance(value, list):
        return set().union(*(_codes(each) for each in value))
    if not hasattr(value, "__kafka__"):
        return set()
    names = [spec.name for spec in struct_spec(type(value)).fields]
    own = {int(getattr(value, name)) for name in names if name.endswith("error_code")}
    return own.union(*(_codes(getattr(value, name)) for name in names))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(inner) for name, inner in value.items()}
    if isinstance(value, list):
        inner = [_ordered(each) for each in value]
        return sorted(inner, key=json.dumps) if inner and isinstance(inner[0], dict | int) else inner
    return "TIME" if isinstance(value, int) and _RECENT < value < _RECENT * 2 else value


def only_of(value: Any, prefix: str) -> Any:
    """The answer without list entries that have no name of a sequence: others' groups, transactions and so on."""
    if isinstance(value, dict):
        return {name: only_of(inner, prefix) for name, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [each for each in value if prefix in json.dumps(each)]
    return value
