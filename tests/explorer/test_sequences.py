"""The sequences that an exchange belongs to."""

from __future__ import annotations

from typing import Any

from kbroker.observe.explorer.sequences import MAX_FOLLOWED, Sequences, Step, _Followed
from kbroker.types import Uuid
from kbroker.wire.messages.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kbroker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kbroker.wire.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kbroker.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kbroker.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kbroker.wire.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tests.explorer.exchanges import decoded

TOPIC = Uuid(b"0123456789abcdef")


class Course:
    """Exchanges, one after the other; each gives its only step, or None."""

    def __init__(self) -> None:
        self.sequences = Sequences()

    def __call__(self, request: Any, response: Any, **more: Any) -> Step | None:
        steps = self.sequences.add(decoded(request, response, **more))
        assert len(steps) <= 1
        return steps[0] if steps else None

    def step(self, request: Any, response: Any, **more: Any) -> Step:
        step = self(request, response, **more)
        assert step is not None
        return step


def test_a_classic_rebalance() -> None:
    course = Course()
    assert course(HeartbeatRequest(group_id="g"), HeartbeatResponse()) is None
    first = course.step(HeartbeatRequest(group_id="g"), HeartbeatResponse(error_code=27))
    assert (first.kind, first.subject, first.place) == ("rebalance", "group g", 1)
    given = course.step(JoinGroupRequest(group_id="g"), JoinGroupResponse(error_code=79, protocol_name=""))
    assert given.number == first.number and "gets its id" in given.text
    members = [JoinGroupResponseMember(member_id=name) for name in "ab"]
    leads = JoinGroupResponse(generation_id=2, leader="a", member_id="a", members=members, protocol_name="range")
    assert "generation 2" in course.step(JoinGroupRequest(group_id="g", member_id="a"), leads).text
    waits = JoinGroupResponse(generation_id=2, leader="a", member_id="b", protocol_name="range")
    assert "waits" in course.step(JoinGroupRequest(group_id="g", member_id="b"), waits).text
    parts = [SyncGroupRequestAssignment(member_id=name) for name in "ab"]
    leader = SyncGroupRequest(group_id="g", generation_id=2, member_id="a", assignments=parts)
    step = course.step(leader, SyncGroupResponse())
    assert "hands in" in step.text and not step.is_end
    step = course.step(SyncGroupRequest(group_id="g", generation_id=2, member_id="b"), SyncGroupResponse())
    assert step.is_end and step.number == first.number and step.place == 6
    again = course.step(JoinGroupRequest(group_id="g"), waits)
    assert again.number != first.number and again.place == 1


def test_groups_are_kept_apart() -> None:
    course = Course()
    numbers = {course.step(HeartbeatRequest(group_id=name), HeartbeatResponse(error_code=27)).number for name in "xyx"}
    assert len(numbers) == 2


def test_a_reconciliation() -> None:
    course = Course()
    assigned = HeartbeatAssignment(topic_partitions=[HeartbeatTopicPartitions(topic_id=TOPIC, partitions=[0, 1])])
    joins = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", topic_partitions=[])
    told = ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1, assignment=assigned)
    first = course.step(joins, told)
    assert "joins" in first.text and "2 partitions at epoch 1" in first.text and not first.is_end
    beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    assert course(beat, ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1)) is None
    beat.topic_partitions = [HeartbeatTopicPartitions(topic_id=TOPIC, partitions=[1, 0])]
    owns = course.step(beat, ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1))
    assert owns.is_end and owns.number == first.number and "what it is to have" in owns.text
    leaves = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1)
    assert "leaves" in course.step(leaves, ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=-1)).text


def test_a_transaction() -> None:
    course = Course()
    begin = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
    first = course.step(begin, InitProducerIdResponse(producer_id=5, producer_epoch=0))
    assert (first.kind, first.place) == ("transaction", 1) and "id 5" in first.text
    add = AddPartitionsToTxnRequest(v3_and_below_transactional_id="t")
    assert course.step(add, AddPartitionsToTxnResponse(), version=3).number == first.number
    assert "records" in course.step(ProduceRequest(transactional_id="t"), ProduceResponse()).text
    assert course(ProduceRequest(transactional_id=None), ProduceResponse()) is None
    end = EndTxnRequest(transactional_id="t", producer_id=5, committed=True)
    busy = course.step(end, EndTxnResponse(error_code=51))
    assert "CONCURRENT_TRANSACTIONS" in busy.text and not busy.is_end
    last = course.step(end, EndTxnResponse())
    assert last.is_end and "is committed" in last.text and last.number == first.number and last.place == 5
    marker = WritableTxnMarker(producer_id=5, transaction_result=True)
    written = course.step(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse())
    assert written.subject == "transactional id t" and "commit" in written.text
    following = course.step(ProduceRequest(transactional_id="t"), ProduceResponse())
    assert following.number not in (first.number, written.number) and following.place == 1


def test_a_fetch_session() -> None:
    course = Course()
    assert course(FetchRequest(), FetchResponse()) is None
    first = course.step(FetchRequest(session_epoch=0), FetchResponse(session_id=9))
    assert first.kind == "fetch session" and "full fetch" in first.text
    topic = FetchTopic(topic_id=TOPIC, partitions=[FetchPartition()])
    moved = course.step(FetchRequest(session_id=9, session_epoch=1, topics=[topic]), FetchResponse(session_id=9))
    assert moved.number == first.number and "epoch 1: 1 partitions" in moved.text
    other = course.step(FetchRequest(session_epoch=0), FetchResponse(session_id=9), connection=8)
    assert other.number != first.number
    lost = course.step(FetchRequest(session_id=9, session_epoch=2), FetchResponse(error_code=70))
    assert lost.is_end and lost.number == first.number


def test_a_client_looks_for_the_leader() -> None:
    course = Course()
    assert course(MetadataRequest(topics=[]), MetadataResponse()) is None
    answer = [PartitionProduceResponse(error_code=6)]
    response = ProduceResponse(responses=[TopicProduceResponse(topic_id=TOPIC, partition_responses=answer)])
    first = course.step(ProduceRequest(), response)
    assert first.kind == "search for a leader" and "NOT_LEADER_OR_FOLLOWER" in first.text
    assert course(MetadataRequest(topics=[]), MetadataResponse(), client="another") is None
    found = course.step(MetadataRequest(topics=[]), MetadataResponse(), connection=8)
    assert found.is_end and found.number == first.number
    assert course(MetadataRequest(topics=[]), MetadataResponse()) is None


def test_a_client_looks_for_the_coordinator() -> None:
    course = Course()
    first = course.step(HeartbeatRequest(group_id="g"), HeartbeatResponse(error_code=16))
    assert first.kind == "search for a coordinator"
    none = FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=-1, error_code=15)])
    asked = FindCoordinatorRequest(coordinator_keys=["g"])
    assert not course.step(asked, none).is_end
    last = course.step(asked, FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=1)]))
    assert last.is_end and last.number == first.number


def test_a_login() -> None:
    course = Course()
    first = course.step(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse())
    assert first.subject == "connection 7 from 127.0.0.1:40000" and "PLAIN" in first.text
    accepted = course.step(SaslAuthenticateRequest(), SaslAuthenticateResponse(session_lifetime_ms=3000))
    assert accepted.number == first.number and "within 3 s" in accepted.text
    refused = course.step(SaslAuthenticateRequest(), SaslAuthenticateResponse(error_code=58))
    assert refused.is_end and "refused" in refused.text


def test_no_more_are_followed_than_there_is_room_for() -> None:
    followed = _Followed("login", iter(range(10**9)))
    for key in range(MAX_FOLLOWED + 5):
        followed.step(key, "", "")
    assert followed.get(4) is None and followed.get(5) is not None and len(followed._open) == MAX_FOLLOWED
