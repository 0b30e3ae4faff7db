"""A conversation of two members with a streams group (KIP-1071), had with Apache Kafka 4.4.0 and with the broker under
test. What is answered must be equal, but for the time until the next heartbeat and the choice of tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.brokers import Broker
from compat_tests.coordinators import await_group_coordinators
from compat_tests.wire_differential.configured import configured
from compat_tests.wire_differential.dialogue import Dialogue, differences
from compat_tests.wire_differential.judged import beside_apache_kafka
from kbroker.cores.coordinator.partitioner import partition_for
from kbroker.cores.groups.records import STREAMS_GROUP_RECORD_TYPES
from kbroker.wire.messages import streams_groups as hb
from kbroker.wire.messages.classic_groups import JoinGroupRequest, JoinGroupRequestProtocol
from kbroker.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from kbroker.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from kbroker.wire.records.versioned import decode_group_key, decode_versioned, group_record_classes, read_version
from tests.patience import SHORT, eventually

GROUP = "streams-wd"
SESSION_MS = 600_000
LONG_SESSIONS = f"group.streams.max.session.timeout.ms={SESSION_MS}"
"""Members beat when it is their turn in the conversation, however long the others take."""


def topic(name: str, partitions: int = 0, *, policy: str = "") -> hb.TopicInfo:
    pairs = [hb.KeyValue(key="cleanup.policy", value=policy)] if policy else []
    return hb.TopicInfo(name=name, partitions=partitions, topic_configs=pairs)


def topology(epoch: int = 1, **second: Any) -> hb.HeartbeatTopology:
    """A repartition of a topic of four partitions, whose reader has a store."""
    values: dict[str, Any] = {
        "repartition_source_topics": [topic("sw-r")],
        "state_changelog_topics": [topic("sw-c", policy="compact")],
    }
    return hb.HeartbeatTopology(
        epoch=epoch,
        subtopologies=[
            hb.HeartbeatSubtopology(subtopology_id="0", source_topics=["sw-in"], repartition_sink_topics=["sw-r"]),
            hb.HeartbeatSubtopology(subtopology_id="1", **(values | second)),
        ],
    )


class Member:
    """A member at one broker: it takes the tasks that it is given."""

    def __init__(self, talk: Dialogue, member_id: str, **joining: Any) -> None:
        self.talk = talk
        self.member_id = member_id
        self.joining: dict[str, Any] = {"topology": topology(), "rebalance_timeout_ms": SESSION_MS, **joining}
        self.epoch = 0
        self.tasks: dict[str, list[hb.TaskIds]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}

    def send(self, *, version: int = 1, **fields: Any) -> hb.StreamsGroupHeartbeatResponse:
        """A heartbeat with these fields besides the usual ones."""
        values: dict[str, Any] = {"group_id": GROUP, "member_id": self.member_id, "member_epoch": self.epoch}
        if self.epoch == 0:
            values |= {"process_id": f"process of {self.member_id}", "client_tags": [], **self.joining}
        request = hb.StreamsGroupHeartbeatRequest(**(values | self.tasks | fields))
        answer: hb.StreamsGroupHeartbeatResponse = self.talk.ask(request, version)
        return answer

    def beat(self, **fields: Any) -> hb.StreamsGroupHeartbeatResponse:
        """A heartbeat whose answer is taken."""
        answer = self.send(**fields)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            for name in self.tasks:
                told = getattr(answer, name)
                if told is not None:
                    self.tasks[name] = [
                        hb.TaskIds(subtopology_id=each.subtopology_id, partitions=each.partitions) for each in told
                    ]
        return answer


class Pair(NamedTuple):
    """The broker under test, and Apache Kafka."""

    ours: Dialogue
    theirs: Dialogue


@pytest.fixture(scope="module")
def pair(broker: Broker) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
        talks = [prepared(address) for address in stack.enter_context(beside_apache_kafka(broker, LONG_SESSIONS))]
        for talk in talks:
            stack.callback(talk.close)
        yield Pair(*talks)


def prepared(bootstrap: str) -> Dialogue:
    """A broker with a topic of four partitions, whose streams group makes assignments at once."""
    talk = Dialogue(bootstrap)
    made = CreateTopicsRequest(topics=[CreatableTopic(name="sw-in", num_partitions=4, replication_factor=1)])
    assert talk.ask(made, 7).topics[0].error_code == 0
    wanted = {"initial_rebalance_delay_ms": 0, "assignment_interval_ms": 0, "session_timeout_ms": SESSION_MS}
    configured(talk, GROUP, **{f"streams_{name}": str(value) for name, value in wanted.items()})
    await_group_coordinators(bootstrap)
    return talk


def stored(talk: Dialogue) -> dict[str, Any]:
    """The newest record of each kind and member in the group's partition of ``__consumer_offsets``."""
    consumer = Consumer({"bootstrap.servers": talk.bootstrap, "group.id": "reader", "enable.partition.eof": True})
    partitions = len(consumer.list_topics("__consumer_offsets", SHORT).topics["__consumer_offsets"].partitions)
    consumer.assign([TopicPartition("__consumer_offsets", partition_for(GROUP, partitions), 0)])
    found: dict[str, Any] = {}
    while (message := consumer.poll(60)) is not None and not message.error():
        key, value = message.key() or b"", message.value()
        kind = read_version(key)
        if kind not in STREAMS_GROUP_RECORD_TYPES:
            continue
        named = decode_group_key(key)
        plain = None
        if value is not None:
            plain = talk.plain(decode_versioned(group_record_classes(kind)[1], value)[0])
            plain.update((name, 0) for name in ("metadata_hash", "assignment_timestamp") if name in plain)
            plain.update(
                (name, [len(each["partitions"]) for each in told]) for name, told in plain.items() if "_tasks" in name
            )
        found[f"{kind} {getattr(named, 'member_id', '')}"] = plain
    consumer.close()
    assert found, "no record of the group is there"
    return found


class Conversation:
    """Both conversations at once; what differs is noted."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.found: list[str] = []

    def member(self, member_id: str, **joining: Any) -> tuple[Member, Member]:
        return Member(self.pair.ours, member_id, **joining), Member(self.pair.theirs, member_id, **joining)

    def beat(self, what: str, members: tuple[Member, Member], *, chooses: bool = False, **fields: Any) -> None:
        """A heartbeat to both. With ``chooses`` the tasks themselves may differ, but not how many there are."""
        answers = []
        for member in members:
            answer = member.beat(**fields)
            answer.heartbeat_interval_ms = 0
            if chooses:
                for name in member.tasks:
                    told = getattr(answer, name)
                    setattr(answer, name, None if told is None else [])
            plain = member.talk.plain(answer)
            plain["counts"] = [sum(len(each.partitions) for each in tasks) for tasks in member.tasks.values()]
            for name in member.tasks:
                plain[name] = plain[name] and sorted(plain[name], key=lambda each: str(each["subtopology_id"]))
            answers.append(plain)
        self._compare(what, *answers)

    def ask(self, what: str, request: Any, version: int) -> None:
        """A request to both."""
        self._compare(what, *(talk.plain(talk.ask(request, version)) for talk in self.pair))

    def compare_records(self, what: str) -> None:
        """The stored records of the group, but for hashes over topics' ids, times and tasks."""
        self._compare(f"records: {what}", *(stored(talk) for talk in self.pair))

    def _compare(self, what: str, mine: Any, other: Any) -> None:
        self.found += [
            f"{what}: {path or 'answer'}: kbroker {us!r:.300}, Apache {them!r:.300}"
            for path, us, them in differences(mine, other)
        ]


WRONG: dict[str, dict[str, Any]] = {
    "no member id": {"member_id": ""},
    "blank group": {"group_id": " "},
    "blank instance": {"instance_id": ""},
    "no rebalance timeout": {"rebalance_timeout_ms": -1},
    "no topology": {"topology": None},
    "tasks while joining": {"active_tasks": [hb.TaskIds(subtopology_id="0", partitions=[0])]},
    "no tasks while joining": {"standby_tasks": None},
    "epoch of an unknown member": {"member_epoch": 5, "topology": None},
    "topology while not joining": {"member_epoch": 5},
    "negative epoch": {"member_epoch": -3, "topology": None},
    "static member without instance": {"member_epoch": -2, "topology": None},
    "internal topic": {"topology": topology(repartition_sink_topics=["__consumer_offsets"])},
    "bad topic name": {"topology": topology(repartition_sink_topics=["a b"])},
    "regular expression": {"topology": topology(source_topic_regex=["a.*"])},
    "changelog with partitions": {"topology": topology(state_changelog_topics=[topic("sw-c", 3)])},
    "no sources": {"topology": topology(repartition_source_topics=[])},
    "a loop": {"topology": topology(repartition_source_topics=[topic("sw-q")], repartition_sink_topics=["sw-q"])},
    "a repartition topic that nobody writes": {
        "topology": topology(repartition_source_topics=[topic("sw-r"), topic("sw-z")])
    },
    "another group": {"group_id": "nobody", "member_epoch": 1, "topology": None},
}


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "a streams group of two members")
def test_a_streams_group(pair: Pair) -> None:
    talk = Conversation(pair)
    a, b = talk.member("a"), talk.member("b")
    for what, fields in WRONG.items():
        talk.beat(what, talk.member("x"), version=1, **fields)
    missing = topology(source_topics=["sw-not-there"])
    talk.beat("a source topic that is missing", talk.member("m", topology=missing), group_id="streams-missing")
    wide = topology(repartition_source_topics=[topic("sw-wide", 3)], state_changelog_topics=[topic("sw-in")])
    talk.beat("topics of another width", talk.member("w", topology=wide), group_id="streams-wide")

    talk.beat("the first member", a)
    for member in a:
        # Apache Kafka creates topics after its answer, and its coordinator hears of them later still.
        eventually(lambda member=member: member.beat().status == [], "the internal topics")  # type: ignore[misc]
    talk.beat("the topics are there", a)
    talk.compare_records("the first member")
    for version in (0, 1):
        for group in (GROUP, "nobody", ""):
            talk.ask(f"described {group!r}", StreamsGroupDescribeRequest(group_ids=[group]), version)
    asked = StreamsGroupDescribeRequest(
        group_ids=[GROUP], include_topology_description=True, include_authorized_operations=True
    )
    talk.ask("described with its topology", asked, 1)
    talk.ask("listed", ListGroupsRequest(types_filter=["Streams"], states_filter=["stable"]), 5)
    talk.ask("described as a classic group", DescribeGroupsRequest(groups=[GROUP]), 6)
    talk.ask("deleted with members", DeleteGroupsRequest(groups_names=[GROUP]), 3)
    description = StreamsGroupTopologyDescriptionUpdateRequest(group_id=GROUP, member_id="a", topology_epoch=1)
    talk.ask("the description of a topology", description, 0)
    joining = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="c", rebalance_timeout_ms=1, subscribed_topic_names=["sw-in"], topic_partitions=[]
    )
    talk.ask("a consumer", joining, 1)
    classic = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    talk.ask("a classic consumer", classic, 3)

    for epoch in (-1, 0, 1, 2, 9):
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        commit = OffsetCommitRequest(
            group_id=GROUP,
            member_id="a",
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name="sw-in", partitions=partitions)],
        )
        for version in (8, 9):
            talk.ask(f"a commit of epoch {epoch} in version {version}", commit, version)

    talk.beat("another topology", talk.member("y", topology=topology(repartition_sink_topics=["sw-s"])))
    talk.beat("a newer epoch of another topology", talk.member("y", topology=topology(2)))
    talk.beat("an epoch ahead", a, member_epoch=77)
    talk.beat("an epoch behind", a, member_epoch=1)
    talk.beat("an unknown subtopology", a, active_tasks=[hb.TaskIds(subtopology_id="7", partitions=[0])])
    talk.beat("an unknown task", a, active_tasks=[hb.TaskIds(subtopology_id="0", partitions=[4])])
    talk.beat("one list of tasks", a, standby_tasks=None)
    offset = hb.TaskOffset(subtopology_id="0", partition=0, offset=5)
    talk.beat("offsets that are told twice", a, task_offsets=[offset, offset])
    talk.beat("offsets", a, task_offsets=[offset], task_end_offsets=[])

    talk.beat("the second member", b, chooses=True)
    talk.beat("the first must give up", a, chooses=True)
    talk.beat("the second waits", b, chooses=True)
    talk.compare_records("the first must give up, the second waits")
    talk.beat("the first has given up", a, chooses=True)
    talk.beat("the second gets tasks", b, chooses=True)
    talk.beat("the first hears nothing", a, chooses=True)
    talk.beat("the second leaves", b, member_epoch=-1, active_tasks=None, standby_tasks=None, warmup_tasks=None)
    talk.beat("the first gets all", a)

    static = talk.member("s1", instance_id="i")
    talk.beat("a static member", static, chooses=True)
    talk.beat("its double", talk.member("s2", instance_id="i"))
    nothing: dict[str, Any] = {"active_tasks": None, "standby_tasks": None, "warmup_tasks": None}
    talk.beat("it goes for a while", static, instance_id="i", member_epoch=-2, **nothing)
    talk.compare_records("a static member that is away")
    talk.beat("it is back", again := talk.member("s3", instance_id="i"), chooses=True)
    talk.beat("who it was", static, member_epoch=3, instance_id="i", **nothing)
    talk.beat("it leaves", again, member_epoch=-1, instance_id="i", **nothing)
    talk.beat("an unknown instance", talk.member("s4"), member_epoch=3, topology=None, instance_id="j")

    talk.beat("the application is to end", a, chooses=True, shutdown_application=True)
    talk.beat("the last member leaves", a, member_epoch=-1, **nothing)
    talk.ask("described when empty", StreamsGroupDescribeRequest(group_ids=[GROUP]), 1)
    talk.ask("deleted", DeleteGroupsRequest(groups_names=[GROUP]), 3)
    talk.compare_records("deleted")
    talk.ask("described when gone", StreamsGroupDescribeRequest(group_ids=[GROUP]), 1)
    assert not talk.found, "\n".join(talk.found)
