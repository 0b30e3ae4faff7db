"""A share group's place where its coordinator got no answer from a leader: a moment's word, and no place at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.client import Client, ResponseError, group_offsets
from kbroker.client.group_offsets import ShiftBy, Strategy, ToCurrent, look_at_group, plan_reset
from kbroker.client.groups import GroupDescription
from kbroker.client.log_places import START
from kbroker.client.share_groups import ShareOffset
from kbroker.errors import ErrorCode
from kbroker.tools.cli.share_group import add_in_flight, settled_offsets
from kbroker.tools.diagnosis.lost_records import lost_records
from kbroker.types import TopicPartition
from kbroker.wire.messages import share_group_offsets as describe
from kbroker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kbroker.wire.messages.metadata import MetadataRequest
from tests.client.fake_broker import FakeBroker, with_time
from tests.patience import LONG

GROUP = GroupDescription("g", "Share", "Empty", "share", "simple", 1, ())
HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
PASSING = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)


def places(*second: tuple[int, int, int]) -> Callable[[Any, int], Any]:
    """The group is at 3 in the first partition; in the second (error, start, lag), one answer after the other."""
    left = list(second)

    def answer(request: Any, version: int) -> Any:
        code, start, lag = left.pop(0) if len(left) > 1 else left[0]
        first = describe.DescribeShareGroupOffsetsResponsePartition(partition_index=0, start_offset=3, lag=2)
        other = describe.DescribeShareGroupOffsetsResponsePartition(
            partition_index=1, start_offset=start, lag=lag, error_code=code
        )
        topic = describe.DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=[first, other])
        group = describe.DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=[topic])
        return describe.DescribeShareGroupOffsetsResponse(groups=[group])

    return answer


def list_offsets(request: Any, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=9 if each.timestamp == -1 else 1
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    """A coordinator, which leads both partitions."""
    monkeypatch.setattr(group_offsets, "describe_any_group", lambda client, group_id: GROUP)
    with FakeBroker() as fake:
        there = Coordinator(key="g", node_id=1, host="127.0.0.1", port=fake.port)
        fake.answers[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(coordinators=[there])
        fake.answers[ListOffsetsRequest] = list_offsets
        yield fake


@pytest.mark.parametrize("code", PASSING, ids=lambda code: code.name)
@pytest.mark.parametrize("strategy", [ToCurrent(), ShiftBy(-1), START], ids=["current", "shift", "earliest"])
def test_a_place_that_is_not_known_is_not_taken_for_none(
    broker: FakeBroker, strategy: Strategy, code: ErrorCode
) -> None:
    """``--to-current`` went to the end there, and left out what was not done with."""
    broker.answers[describe.DescribeShareGroupOffsetsRequest] = places((code, -1, -1))
    with Client(broker.bootstrap, timeout=LONG) as client:
        group = look_at_group(client, "g")
        with pytest.raises(ResponseError, match="partition t-1") as caught:
            plan_reset(client, group, group.partitions, strategy)
        assert caught.value.code == code
        [row] = plan_reset(client, group, [HERE], ToCurrent())
        assert (row.current, row.new) == (3, 3), "others can be reset"


@pytest.mark.parametrize("code", PASSING, ids=lambda code: code.name)
def test_a_leader_that_is_there_again_is_asked_and_nothing_is_said_of_it(broker: FakeBroker, code: ErrorCode) -> None:
    broker.answers[describe.DescribeShareGroupOffsetsRequest] = places((code, -1, -1), (0, 4, 5))
    with Client(broker.bootstrap, timeout=LONG) as client:
        offsets, unknown = settled_offsets(client, "g")
    assert unknown == {} and lost_records({}, unknown) == []
    assert offsets == {HERE: ShareOffset(3, 2), THERE: ShareOffset(4, 5)}
    asked = [request for name, _, request in broker.requests if name == "ListOffsets"]
    assert [each.partition_index for each in asked[0].topics[0].partitions] == [1], "the others are known"


def test_a_group_with_leaders_everywhere_costs_one_question(broker: FakeBroker) -> None:
    broker.answers[describe.DescribeShareGroupOffsetsRequest] = places((0, 4, 5))
    with Client(broker.bootstrap, timeout=LONG) as client:
        assert settled_offsets(client, "g")[1] == {}
    assert broker.names() == ["FindCoordinator", "DescribeShareGroupOffsets"]


def test_a_partition_that_has_no_leader_is_told_of_once_it_was_waited_for(broker: FakeBroker) -> None:
    def metadata(request: Any, version: int) -> Any:
        response = broker.metadata(request, version)
        for topic in response.topics:
            topic.partitions[1].leader_id, topic.partitions[1].error_code = -1, ErrorCode.LEADER_NOT_AVAILABLE
        return response

    broker.answers[MetadataRequest] = metadata
    broker.answers[describe.DescribeShareGroupOffsetsRequest] = places((ErrorCode.LEADER_NOT_AVAILABLE, -1, -1))

    def run(seconds: float) -> None:
        with Client(broker.bootstrap, timeout=seconds) as client:
            offsets, unknown = settled_offsets(client, "g")
            assert set(unknown) == {THERE} and unknown[THERE].code == ErrorCode.LEADER_NOT_AVAILABLE
            assert [each.text for each in lost_records({}, unknown)] == [
                "t-1: there is no leader: nobody can read or write there."
            ]
            assert offsets[HERE] == ShareOffset(3, 2) and offsets[THERE].start is None
            broker.requests.clear()
            rows: list[dict[str, Any]] = [{"topic": "t", "partition": 1}]
            add_in_flight(client, GROUP, rows, unknown)
            assert rows[0]["in_flight"] is None and "LEADER_NOT_AVAILABLE" in rows[0]["in_flight_problem"]
            assert broker.requests == [], "it is not waited for again"

    with_time(run, 1, 30)
