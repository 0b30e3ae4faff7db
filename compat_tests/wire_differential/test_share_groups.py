"""Share groups (KIP-932), had with Apache Kafka 4.4.0 and with the broker under test: members, sessions and locks of a
leader, states of a share coordinator, and dead letters (KIP-1191), rightly and wrongly asked for. What is answered must
be equal, but for the time until the next heartbeat."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from compat_tests.api_versions import served_apis
from compat_tests.brokers import Broker
from compat_tests.coordinators import await_group_coordinators, await_share_coordinators
from compat_tests.wire_differential.configured import configure, configured
from compat_tests.wire_differential.dialogue import Dialogue, differences
from compat_tests.wire_differential.generator import id_marker
from compat_tests.wire_differential.judged import beside_apache_kafka
from kbroker.types import Uuid
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages import share_fetch, share_group_offsets
from kbroker.wire.messages import share_group_state as wire
from kbroker.wire.messages import update_features as features
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kbroker.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kbroker.wire.record_batch import Record, build_batch, iter_records
from tests.patience import eventually

GROUP = "share-wd"
TOPIC = "wd-filled"
DLQ = "dlq.wd"
SHARE_APIS = (76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92)
UNSUPPORTED_VERSION = 35
RECORDS = 10
PATIENT: dict[str, Any] = {"max_wait_ms": 50_000, "min_bytes": 1}
"""For a ShareFetch that gets records: Apache Kafka unlocks a share partition a moment after its answer to the one
before, and tells who does not wait that there is nothing."""
LONG_LOCKS = (
    "group.share.max.record.lock.duration.ms=600000",
    "group.share.record.lock.duration.ms=600000",
    "group.share.max.session.timeout.ms=600000",
    "group.share.session.timeout.ms=600000",
)
"""Nothing ends by itself, however long the conversation takes."""


class Pair(NamedTuple):
    """The broker under test, and Apache Kafka."""

    ours: Dialogue
    theirs: Dialogue


@pytest.fixture(scope="module")
def pair(broker: Broker) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
        talks = [prepared(address) for address in stack.enter_context(beside_apache_kafka(broker, *LONG_LOCKS))]
        for talk in talks:
            stack.callback(talk.close)
        yield Pair(*talks)


def prepared(bootstrap: str) -> Dialogue:
    """A broker with a topic of three partitions, of which the first has ten records, each in a batch of its own."""
    talk = Dialogue(bootstrap)
    enabled = CreatableTopicConfig(name="errors.deadletterqueue.group.enable", value="true")
    kept = CreatableTopicConfig(name="retention.ms", value="-1")
    made = talk.ask(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=1, configs=[kept]),
                CreatableTopic(name=DLQ, num_partitions=1, replication_factor=1, configs=[enabled]),
            ]
        ),
        7,
    )
    talk.topic_ids.update((topic.name, bytes(topic.topic_id)) for topic in made.topics)
    for number in range(RECORDS):
        records = build_batch([Record(0, 1_717_000_000_000, b"k%d" % number, b"v%d" % number, (("h", b"x"),))])
        data = PartitionProduceData(index=0, records=memoryview(bytearray(records)))
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        produce = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])
        eventually(
            lambda produce=produce: not talk.ask(produce, 9).responses[0].partition_responses[0].error_code,  # type: ignore[misc]
            "a record",
        )
    wanted = {
        "share_assignment_interval_ms": "0",
        "share_auto_offset_reset": "earliest",
        "share_delivery_count_limit": "2",
    }
    configured(talk, GROUP, **wanted)
    await_group_coordinators(bootstrap)
    await_share_coordinators(bootstrap, Uuid(talk.topic_ids[TOPIC]))
    return talk


def first(answer: Any) -> Any:
    return answer.results[0].partitions[0]


def done(answer: Any) -> int:
    """The number of records from the first on that are done with: those before the start, and those completed."""
    return int(first(answer).start_offset + first(answer).delivery_complete_count)


_STATE_REQUESTS: dict[str, tuple[Any, Any, Any]] = {
    "initialize": (wire.InitializeShareGroupStateRequest, wire.InitializeStateData, wire.InitializePartitionData),
    "read": (wire.ReadShareGroupStateRequest, wire.ReadStateData, wire.PartitionData),
    "write": (wire.WriteShareGroupStateRequest, wire.WriteStateData, wire.WritePartitionData),
    "delete": (wire.DeleteShareGroupStateRequest, wire.DeleteStateData, wire.DeletePartitionData),
    "read summary": (wire.ReadShareGroupStateSummaryRequest, wire.ReadStateSummaryData, wire.PartitionData),
}


def state(doing: str, group: str, partition: int = 0, topic_id: Uuid | None = None, **fields: Any) -> Any:
    """A request to the share coordinator about one share partition."""
    request, data, part = _STATE_REQUESTS[doing]
    parts = [part(partition=partition, **fields)]
    topic = data(topic_id=id_marker(TOPIC) if topic_id is None else topic_id, partitions=parts)
    return request(group_id=group, topics=[topic])


class Conversation:
    """Both conversations at once; what differs is noted."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.found: list[str] = []

    def ask(self, what: str, request: Any, version: int) -> list[Any]:
        """A request to both."""
        answers = [talk.ask(request, version) for talk in self.pair]
        for answer in answers:
            if isinstance(answer, ShareGroupHeartbeatResponse):
                answer.heartbeat_interval_ms = 0
        plain = [talk.plain(answer) for talk, answer in zip(self.pair, answers, strict=True)]
        self.found += [
            f"{what} (version {version}): {path or 'answer'}: kbroker {us!r:.300}, Apache {them!r:.300}"
            for path, us, them in differences(*plain)
        ]
        return answers

    def wait(self, what: str, request: Any, version: int, wanted: Callable[[Any], object]) -> None:
        """Ask both until they answer as is wanted."""
        for talk in self.pair:
            eventually(lambda talk=talk: bool(wanted(talk.ask(request, version))), what)  # type: ignore[misc]

    def until(self, what: str, request: Any, version: int, wanted: Callable[[Any], object]) -> None:
        """Wait, then compare."""
        self.wait(what, request, version, wanted)
        self.ask(what, request, version)


def beat(member: str = "a", epoch: int = 0, group: str = GROUP, **fields: Any) -> ShareGroupHeartbeatRequest:
    values: dict[str, Any] = {"subscribed_topic_names": [TOPIC] if epoch == 0 else None, **fields}
    return ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **values)


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "ApiVersions of share groups")
def test_the_apis_are_those_of_apache_kafka(pair: Pair) -> None:
    ours, theirs = (served_apis(talk.bootstrap) for talk in pair)
    assert {key: ours.get(key) for key in SHARE_APIS} == {key: theirs[key] for key in SHARE_APIS}


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "a share group of two members")
def test_a_share_group(pair: Pair) -> None:
    talk = Conversation(pair)
    for what, wrong in {
        "no member id": beat(""),
        "a long member id": beat("m" * 37),
        "no group": beat(group=""),
        "blank group": beat(group=" "),
        "no subscription": beat(subscribed_topic_names=None),
        "an empty subscription": beat(subscribed_topic_names=[]),
        "an empty rack": beat(rack_id=""),
        "the epoch of a member that nobody knows": beat(epoch=5),
        "a negative epoch": beat(epoch=-3),
        "to leave a group that nobody knows": beat(epoch=-1, group="nobody"),
    }.items():
        talk.ask(what, wrong, 1)
    describe = ShareGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True)
    for group in (GROUP, "nobody", ""):
        talk.ask(f"{group!r} described", ShareGroupDescribeRequest(group_ids=[group]), 1)
    talk.ask("the first member", beat(rack_id="r1"), 1)
    asked = ShareGroupDescribeRequest(group_ids=[GROUP])

    def has_all(answer: Any) -> bool:
        members = answer.groups[0].members
        return bool(members) and bool(members[0].assignment.topic_partitions)

    def joined(answer: Any) -> bool:
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    talk.until("the first member has all", beat(subscribed_topic_names=[TOPIC]), 1, joined)
    talk.wait("the assignment", asked, 1, has_all)
    talk.ask("described", describe, 1)
    talk.ask("listed", ListGroupsRequest(types_filter=["share"], states_filter=["stable"]), 5)
    talk.ask("described as a classic group", DescribeGroupsRequest(groups=[GROUP]), 6)
    talk.ask("deleted with members", DeleteGroupsRequest(groups_names=[GROUP]), 3)
    topic = share_group_offsets.AlterShareGroupOffsetsRequestTopic(
        topic_name=TOPIC,
        partitions=[share_group_offsets.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)],
    )
    talk.ask(
        "altered with members", share_group_offsets.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic]), 0
    )
    topics = [share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)]
    talk.ask(
        "offsets deleted with members",
        share_group_offsets.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics),
        0,
    )
    talk.ask("an epoch ahead", beat(epoch=99), 1)
    talk.ask("the first member leaves", beat(epoch=-1), 1)
    talk.ask("it leaves once more", beat(epoch=-1), 1)
    talk.ask("described when empty", asked, 1)
    for name, partition, offset in ((TOPIC, 0, 3), (TOPIC, 9, 0), ("wd-missing", 0, 0), (TOPIC, 1, -5)):
        part = share_group_offsets.AlterShareGroupOffsetsRequestPartition(
            partition_index=partition, start_offset=offset
        )
        topic = share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[part])
        for group in (GROUP, "another-share", ""):
            request = share_group_offsets.AlterShareGroupOffsetsRequest(group_id=group, topics=[topic])
            talk.ask(f"{name}-{partition} of {group!r} altered to {offset}", request, 0)
    for version in (0, 1):
        for group in (GROUP, "nobody"):
            for names in ([(TOPIC, [0, 1])], [("wd-missing", [0])], [], None):
                wanted = (
                    None
                    if names is None
                    else [
                        share_group_offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=parts)
                        for name, parts in names
                    ]
                )
                one = share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted)
                talk.ask(
                    f"offsets of {group!r}: {names}",
                    share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[one]),
                    version,
                )
    for group, names_to_delete in ((GROUP, [TOPIC, "wd-missing"]), ("nobody", [TOPIC]), ("", [TOPIC])):
        topics = [share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names_to_delete]
        deletion = share_group_offsets.DeleteShareGroupOffsetsRequest(group_id=group, topics=topics)
        talk.ask(f"offsets of {group!r} deleted", deletion, 0)
    talk.ask("deleted", DeleteGroupsRequest(groups_names=[GROUP, "another-share"]), 3)
    talk.ask("described when gone", asked, 1)
    assert not talk.found, "\n".join(talk.found)


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "states of share partitions")
def test_the_states_of_a_share_coordinator(pair: Pair) -> None:
    talk = Conversation(pair)
    group = "states"
    unknown = Uuid(b"no topic has me!")
    batches = [
        wire.StateBatch(first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count)
        for first, last, kind, count in ((0, 4, 0, 1), (5, 9, 2, 1), (10, 10, 3, 2))
    ]
    nothing = wire.ReadShareGroupStateRequest(group_id=group, topics=[])
    for what, request in {
        "read before it is there": state("read", group, leader_epoch=0),
        "a summary before it is there": state("read summary", group, leader_epoch=0),
        "written before it is there": state("write", group, state_epoch=1, start_offset=0),
        "an unknown topic": state("initialize", group, topic_id=unknown, state_epoch=1),
        "an unknown partition": state("initialize", group, 9, state_epoch=1),
        "no group": state("initialize", "", state_epoch=1),
        "no topics": nothing,
        "begun": state("initialize", group, state_epoch=2, start_offset=0),
        "begun with an earlier epoch": state("initialize", group, state_epoch=1, start_offset=5),
        "written": state("write", group, state_epoch=2, leader_epoch=1, start_offset=0, state_batches=batches),
        "read": state("read", group, leader_epoch=2),
        "read by an earlier leader": state("read", group, leader_epoch=1),
        "written by an earlier leader": state("write", group, state_epoch=2, leader_epoch=1),
        "written in another epoch": state("write", group, state_epoch=1, leader_epoch=2),
        "its start moves": state("write", group, state_epoch=2, leader_epoch=2, start_offset=3),
        "read again": state("read", group, leader_epoch=2),
        "a summary": state("read summary", group, leader_epoch=2),
        "a summary of another leader": state("read summary", group, leader_epoch=0),
        "deleted": state("delete", group),
        "deleted twice": state("delete", group),
        "read when it is gone": state("read", group, leader_epoch=3),
    }.items():
        highest = (
            1 if type(request) in (wire.WriteShareGroupStateRequest, wire.ReadShareGroupStateSummaryRequest) else 0
        )
        for version in range(highest + 1):
            talk.ask(what, request, version)
    assert not talk.found, "\n".join(talk.found)


class Session:
    """Requests of one session: their epochs are counted."""

    def __init__(self, talk: Conversation, group: str, member: str = "m") -> None:
        self.talk = talk
        self.group = group
        self.member = member
        self.epoch = 0

    def fetch(self, what: str, *acks: tuple[int, int, int], version: int = 2, **fields: Any) -> list[Any]:
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
            "share_acquire_mode": 1,
            "topics": [self._topic(acks)],
        }
        self.epoch += 1
        return self.talk.ask(what, share_fetch.ShareFetchRequest(**(values | fields)), version)

    def acknowledge(self, what: str, *acks: tuple[int, int, int], version: int = 2, **fields: Any) -> list[Any]:
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "topics": [self._topic(acks, of="Acknowledge")],
        }
        self.epoch += 1
        return self.talk.ask(what, share_fetch.ShareAcknowledgeRequest(**(values | fields)), version)

    def _topic(self, acks: tuple[tuple[int, int, int], ...], index: int = 0, of: str = "Fetch") -> Any:
        batches: list[Any] = [
            share_fetch.AcknowledgementBatch(first_offset=begin, last_offset=end, acknowledge_types=[kind])
            for begin, end, kind in acks
        ]
        partition, topic = getattr(share_fetch, f"{of}Partition"), getattr(share_fetch, f"{of}Topic")
        part = partition(partition_index=index, acknowledgement_batches=batches)
        return topic(topic_id=id_marker(TOPIC), partitions=[part])

    def first(self, each: Dialogue, count: int) -> None:
        """Open the session with one of the brokers, and get the first records."""
        eventually(lambda: self._acquired(each, count), "records")
        self.epoch = 1

    def _acquired(self, each: Dialogue, count: int) -> bool:
        request = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            max_wait_ms=8000,
            min_bytes=1,
            max_records=count,
            batch_size=count,
            share_acquire_mode=1,
            topics=[self._topic(())],
        )
        answer = each.ask(request, 2)
        return any(part.acquired_records for topic in answer.responses for part in topic.partitions)


def begin(talk: Conversation, group: str, **values: str) -> Session:
    """A group whose share partition has a state, and a session that holds its first five records."""
    session = Session(talk, group)
    for each in talk.pair:
        if values:
            configured(each, group, **values)
        assert not first(each.ask(state("initialize", group, state_epoch=1, start_offset=0), 0)).error_code
        session.first(each, 5)
    return session


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "sessions and locks of share groups")
def test_sessions_and_acknowledgements(pair: Pair) -> None:
    talk = Conversation(pair)
    wrong = Session(talk, "sessions")
    cases: dict[str, dict[str, Any]]
    for version in (1, 2):
        cases = {
            "no group": {"group_id": None},
            "no member": {"member_id": None},
            "an empty member": {"member_id": ""},
            "a long member": {"member_id": "m" * 37},
            "an epoch without a session": {"share_session_epoch": 3},
            "the end of no session": {"share_session_epoch": -1},
            "acknowledgements at the beginning": {"topics": [wrong._topic(((0, 0, 1),))]},
            "an unknown topic": {
                "topics": [
                    share_fetch.FetchTopic(
                        topic_id=Uuid(b"no topic has me!"), partitions=[share_fetch.FetchPartition()]
                    )
                ]
            },
            "an unknown partition": {"topics": [wrong._topic((), 9)]},
            "no topics": {"topics": []},
        }
        for what, fields in cases.items():
            wrong.epoch = 0
            wrong.fetch(what, version=version, **fields)
            if "topics" not in fields or fields["topics"] == []:
                wrong.acknowledge(what, version=version, **fields)
        wrong.acknowledge("the first epoch", (0, 0, 1), version=version, share_session_epoch=0)

    session = begin(talk, "sessions")
    session.acknowledge("accepted", (0, 0, 1))
    session.acknowledge("accepted again", (0, 0, 1))
    session.acknowledge("renewed when it is done with", (0, 0, 4), is_renew_ack=True)
    session.acknowledge("an unknown type when it is done with", (0, 0, 5))
    session.acknowledge("done with, and one that nobody holds", (0, 0, 1), (7, 7, 1))
    session.acknowledge("released", (1, 1, 2))
    session.acknowledge("what nobody holds", (7, 7, 1))
    session.acknowledge("an unknown type", (2, 2, 5))
    session.acknowledge("a negative type", (2, 2, -1))
    session.acknowledge("offsets the wrong way round", (3, 2, 1))
    session.acknowledge("batches that overlap", (2, 3, 1), (3, 4, 1))
    session.acknowledge("a renewal that is not said to be one", (2, 2, 4))
    session.acknowledge("a renewal", (2, 2, 4), is_renew_ack=True)
    session.acknowledge("a renewal in version 1", (2, 2, 4), version=1)
    session.acknowledge("a gap", (2, 2, 0))
    session.acknowledge("no batches")
    session.acknowledge("another epoch", (3, 3, 1), share_session_epoch=99)
    session.epoch -= 1
    session.fetch("a renewal with records", (3, 3, 4), is_renew_ack=True)
    session.fetch("a renewal without records", (3, 3, 4), is_renew_ack=True, max_records=0, max_bytes=0)
    session.fetch("rejected, and the rest", (3, 3, 3), **PATIENT)
    session.fetch("nothing is left")
    session.fetch("an unknown mode", share_acquire_mode=7)
    session.acknowledge("the end", (4, 4, 1), share_session_epoch=-1)
    session.acknowledge("after the end", (5, 5, 1))
    again = Session(talk, "sessions", "n")
    for each in talk.pair:
        again.first(each, 100)
    again.epoch = 1
    again.acknowledge("more than it holds", (4, 9, 1))
    again.acknowledge("a part of what it holds", (5, 5, 1))
    talk.ask("the state", state("read summary", "sessions", leader_epoch=0), 1)
    assert not talk.found, "\n".join(talk.found)


def letters(talk: Dialogue) -> list[tuple[Any, ...]]:
    """All that is in the dead-letter topic: key, value and headers."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic_id=Uuid(talk.topic_ids[DLQ]), partitions=[partition])
    answer = talk.ask(FetchRequest(max_bytes=1 << 20, max_wait_ms=0, topics=[topic]), 13)
    data = bytes(answer.responses[0].partitions[0].records or b"")
    found = []
    for position, header in walk_headers(data):
        # kbroker's have a producer id besides: another attempt does not double them
        assert (header.compression_type, header.attributes) == (0, 0)
        found += [(record.key, record.value, record.headers) for record in iter_records(data, position)]
    return sorted(found, key=lambda each: int(each[2][2][1] or b""))


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "dead letters")
@pytest.mark.parametrize("copy", ["false", "true"])
def test_dead_letters(pair: Pair, copy: str) -> None:
    talk = Conversation(pair)
    group = f"dead-{copy}"
    values = {
        "errors_deadletterqueue_topic_name": DLQ,
        "errors_deadletterqueue_copy_record_enable": copy,
        "share_delivery_count_limit": "2",
    }
    before = [len(letters(each)) for each in pair]
    session = begin(talk, group, **values)
    session.acknowledge("two rejected", (0, 0, 3), (2, 2, 3))
    session.acknowledge("one released", (1, 1, 2))
    session.fetch("again", max_records=1, **PATIENT)
    session.acknowledge("released once more", (1, 1, 2))
    for each, count in zip(pair, before, strict=True):
        eventually(lambda each=each, count=count: len(letters(each)) == count + 3, "three dead letters")  # type: ignore[misc]
    asked = state("read summary", group, leader_epoch=0)
    talk.wait("the records to be archived", asked, 1, lambda answer: done(answer) == 3)
    ours, theirs = (letters(each) for each in pair)
    assert ours == theirs
    talk.ask("the state", state("read summary", group, leader_epoch=0), 1)
    assert not talk.found, "\n".join(talk.found)


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "configurations of dead-letter queues")
def test_configurations_of_dead_letter_queues(pair: Pair) -> None:
    talk = Conversation(pair)
    name, flag = "errors_deadletterqueue_topic_name", "errors_deadletterqueue_group_enable"
    for value in ("", " ", "__x", "__", "dlq.x", "no-prefix", "bad name"):
        talk.ask(f"the name {value!r}", configure(32, "named", **{name: value}), 1)
    talk.ask("a copy that is no flag", configure(32, "named", errors_deadletterqueue_copy_record_enable="maybe"), 1)
    talk.ask("no flag of a topic", configure(2, TOPIC, **{flag: "maybe"}), 1)
    talk.ask("a flag of a topic", configure(2, TOPIC, **{flag: "true"}), 1)
    assert not talk.found, "\n".join(talk.found)


@pytest.mark.feature("wire", "Answers equal to Apache Kafka's", "share groups that are switched off")
def test_share_groups_that_are_off(pair: Pair) -> None:
    """The APIs are advertised nevertheless. This comes last: the others need them."""
    talk = Conversation(pair)

    def level(wanted: int, kind: int) -> None:
        update = features.FeatureUpdateKey(feature="share.version", max_version_level=wanted, upgrade_type=kind)
        talk.ask(f"share.version {wanted}", features.UpdateFeaturesRequest(feature_updates=[update]), 2)

    for wanted in (1, 0):
        level(wanted, 2)
    describe = ShareGroupDescribeRequest(group_ids=[GROUP])
    talk.wait("it to be off", describe, 1, lambda answer: answer.groups[0].error_code == UNSUPPORTED_VERSION)
    ours, theirs = (served_apis(each.bootstrap) for each in pair)
    assert {key: ours.get(key) for key in SHARE_APIS} == {key: theirs[key] for key in SHARE_APIS}
    topics = [share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)]
    altered = share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC)
    talk.ask("described", describe, 1)
    talk.ask("a heartbeat", beat(), 1)
    talk.ask("offsets deleted", share_group_offsets.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics), 0)
    talk.ask("offsets altered", share_group_offsets.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[altered]), 0)
    one = share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
    talk.ask("offsets described", share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[one]), 1)
    session = Session(talk, "off")
    session.fetch("fetched")
    session.acknowledge("acknowledged", (0, 0, 1))
    talk.ask("a state", state("initialize", "off", state_epoch=1), 0)
    finding = FindCoordinatorRequest(key_type=2, coordinator_keys=["off"])
    talk.ask("the coordinator", finding, 6)
    level(3, 1)
    level(2, 1)
    talk.ask("the topic is there", MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
    assert not talk.found, "\n".join(talk.found)
