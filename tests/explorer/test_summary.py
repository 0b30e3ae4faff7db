"""An exchange in one line."""

from __future__ import annotations

from typing import Any

from kbroker.errors import ErrorCode
from kbroker.observe.explorer.decoded import Decoded, TopicNames
from kbroker.observe.explorer.exchange import Exchange, Frame, whole_frame
from kbroker.observe.explorer.explained import Story, document_of, explanations, tree_of
from kbroker.observe.explorer.summary import summary
from kbroker.observe.explorer.text import details, line
from kbroker.types import Uuid, uuid_to_str
from kbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from kbroker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kbroker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kbroker.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kbroker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kbroker.wire.messages.transactions import EndTxnRequest, EndTxnResponse
from kbroker.wire.record_batch import Record, build_batch
from kbroker.wire.registry import API_KEYS
from tests.explorer.exchanges import CONNECTION, decoded, exchange, request_frame, response_frame
from tests.with_each import with_each

ORDERS = Uuid(b"orders-orders-id")


def names() -> TopicNames:
    known = TopicNames()
    known.known[uuid_to_str(ORDERS)] = "orders"
    return known


def text(request: Any, response: Any = None, version: int | None = None) -> str:
    return summary(decoded(request, response, version), names())


def produce(records: bytes, index: int = 0) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=memoryview(records))]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=ORDERS, partition_data=data)])


def batch(count: int = 3, size: int = 1) -> bytes:
    return build_batch([Record(index, 0, None, b"v" * size) for index in range(count)])


def test_a_produce() -> None:
    records = batch()
    answer = [PartitionProduceResponse(index=0, base_offset=12)]
    response = ProduceResponse(responses=[TopicProduceResponse(topic_id=ORDERS, partition_responses=answer)])
    assert text(produce(records), response) == f"Produce v13 orders-0 3 records, {len(records)} bytes -> offset 12"
    answer[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert text(produce(records), response).endswith("-> NOT_LEADER_OR_FOLLOWER")


def test_a_fetch() -> None:
    records = batch(2)
    part = PartitionData(partition_index=1, records=records, aborted_transactions=[])
    response = FetchResponse(session_id=9, responses=[FetchableTopicResponse(topic_id=ORDERS, partitions=[part])])
    assert text(FetchRequest(session_epoch=0), response) == (
        f"Fetch v18 new session -> 2 records, {len(records)} bytes of orders-1"
    )
    assert text(FetchRequest(session_id=9, session_epoch=4), FetchResponse()) == (
        "Fetch v18 session 9 epoch 4 -> nothing new"
    )


def test_groups_and_transactions() -> None:
    heartbeat = HeartbeatRequest(group_id="x", generation_id=4, member_id="m")
    assert text(heartbeat, HeartbeatResponse(error_code=27)) == "Heartbeat v4 group=x gen=4 -> REBALANCE_IN_PROGRESS"
    assert (
        text(heartbeat, HeartbeatResponse(throttle_time_ms=5)) == "Heartbeat v4 group=x gen=4 -> ok, throttled for 5 ms"
    )
    assigned = HeartbeatAssignment(topic_partitions=[HeartbeatTopicPartitions(topic_id=ORDERS, partitions=[0, 1])])
    assert (
        text(
            ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["orders"]),
            ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1, assignment=assigned),
        )
        == "ConsumerGroupHeartbeat v1 group=g joins orders -> epoch 1, to read orders[0,1]"
    )
    end = EndTxnRequest(transactional_id="t", committed=True)
    assert text(end, EndTxnResponse()) == "EndTxn v5 txn=t commit -> ok"
    found = FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=2)])
    assert text(FindCoordinatorRequest(coordinator_keys=["g"]), found) == "FindCoordinator v6 group=g -> broker 2"


def test_an_answer_in_another_version_than_was_asked() -> None:
    frame = request_frame(ApiVersionsRequest(client_software_name="s", client_software_version="1"), 4)
    answer = response_frame(ApiVersionsResponse(error_code=35), 0)
    seen = Decoded(Exchange(1, 1, 7, 0.0, whole_frame(frame), whole_frame(answer), 1.0), CONNECTION)
    assert seen.errors == [ErrorCode.UNSUPPORTED_VERSION] and seen.response_version == 0


@with_each(API_KEYS)
def test_every_api_has_a_line_and_a_tree(key: int) -> None:
    api = API_KEYS[key]
    for version in range(api.valid_versions.lowest, api.valid_versions.highest + 1):
        told = Story().add(exchange(api.request(), api.response(), version))
        assert told is not None and told.summary.startswith(f"{api.name} v{version}"), told
        assert not told.decoded.problem and explanations(told)
        assert line(told) and list(details(told)) and document_of(told, trees=True)["api"] == api.name


def test_no_answer_is_told() -> None:
    seen = exchange(produce(batch()))
    seen.end = "none is expected"
    assert summary(Decoded(seen, None), names()).endswith("-> none is expected")


def test_what_was_cut_is_told() -> None:
    records = batch(3, 5000)
    whole = request_frame(produce(records), 13)
    frame = Frame(len(whole), ((0, whole[:4000]), (len(whole) - 64, whole[-64:])))
    told = Story().add(Exchange(1, 1, 7, 0.0, frame))
    assert told is not None and f"3 records, {len(records)} bytes" in told.summary
    tree = tree_of(told)
    assert tree is not None and tree.missing == len(whole) - 4064 and not tree.problem
    half = Frame(len(whole), ((0, whole[:30]),))
    told = Story().add(Exchange(1, 1, 7, 0.0, half))
    assert told is not None and "(" in told.summary and tree_of(told) is not None


def test_names_of_topics_are_learned_from_metadata() -> None:
    story = Story()
    topic = MetadataResponseTopic(name="orders", topic_id=ORDERS)
    story.add(exchange(MetadataRequest(topics=[]), MetadataResponse(topics=[topic])))
    told = story.add(exchange(produce(batch())))
    assert told is not None and told.topics == {"orders": [0]}


def test_names_are_asked_for_once() -> None:
    asked: list[list[str]] = []

    def look_up(ids: Any) -> dict[str, str]:
        asked.append(list(ids))
        return {uuid_to_str(ORDERS): "orders"}

    story = Story()
    for _ in range(3):
        told = story.add(exchange(produce(batch())), look_up)
        assert told is not None and "orders-0" in told.summary
    assert asked == [[uuid_to_str(ORDERS)]]


def test_a_stranger_cannot_play_with_the_terminal() -> None:
    told = Story().add(exchange(HeartbeatRequest(group_id="\x1b[31mred\n"), client="\x07bell"))
    assert told is not None
    for each in [line(told), *details(told)]:
        assert each.isprintable()
