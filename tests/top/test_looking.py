"""The requests of a look: which there are, and how few, however many partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.client import Client, ConnectionFailed
from kbroker.tools.top.history import first
from kbroker.tools.top.looking import GROUPS, PARTITIONS, REQUESTS, REQUESTS_A_NODE, Observer, Rotation
from kbroker.types import TopicPartition
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from kbroker.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kbroker.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kbroker.wire.messages.described_transactions import ListTransactionsRequest, ListTransactionsResponse
from kbroker.wire.messages.fetch import FetchRequest, FetchResponse
from kbroker.wire.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kbroker.wire.messages.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kbroker.wire.messages.share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from tests.client.fake_broker import FakeBroker
from tests.patience import SHORT

MANY = 1000
PART = 200
"""Partitions that are asked for in one look: a fifth, as of 10,000 by default."""

LAGGING = 3 * GROUPS - 1


def list_offsets(request: Any, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=each.partition_index)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def describe_log_dirs(request: Any, version: int) -> DescribeLogDirsResponse:
    topics = [
        DescribeLogDirsTopic(
            name=topic.topic,
            partitions=[DescribeLogDirsPartition(partition_index=each, partition_size=7) for each in topic.partitions],
        )
        for topic in request.topics
    ]
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/data", topics=topics)])


def list_groups(request: Any, version: int) -> ListGroupsResponse:
    names = (f"g{number:03}" for number in range(LAGGING))
    groups = [
        ListedGroup(group_id=name, protocol_type="consumer", group_state="Stable", group_type="consumer")
        for name in names
    ]
    shared = ListedGroup(group_id="a-share", protocol_type="share", group_state="Stable", group_type="share")
    return ListGroupsResponse(groups=[*groups, shared])


def share_offsets(request: Any, version: int) -> DescribeShareGroupOffsetsResponse:
    places = [
        DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=1, lag=lag)
        for index, lag in enumerate((2, 3, -1))
    ]
    topics = [DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=places)]
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=topics) for group in request.groups
        ]
    )


def offset_fetch(request: Any, version: int) -> OffsetFetchResponse:
    place = OffsetFetchResponsePartitions(partition_index=9, committed_offset=4)
    topics = [OffsetFetchResponseTopics(name="t", partitions=[place])]
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id=group.group_id, topics=topics) for group in request.groups]
    )


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(partitions=MANY) as fake:
        fake.answers |= {
            DescribeClusterRequest: lambda request, version: DescribeClusterResponse(
                cluster_id="fake",
                controller_id=1,
                brokers=[DescribeClusterBroker(broker_id=1, host="127.0.0.1", port=fake.port)],
            ),
            DescribeQuorumRequest: lambda request, version: DescribeQuorumResponse(error_code=31),
            ListOffsetsRequest: list_offsets,
            DescribeLogDirsRequest: describe_log_dirs,
            ListGroupsRequest: list_groups,
            OffsetFetchRequest: offset_fetch,
            DescribeShareGroupOffsetsRequest: share_offsets,
            FetchRequest: lambda request, version: FetchResponse(),
            ListTransactionsRequest: lambda request, version: ListTransactionsResponse(),
            ConsumerGroupDescribeRequest: lambda request, version: ConsumerGroupDescribeResponse(
                groups=[DescribedGroup(group_id=name, group_state="Stable", members=[]) for name in request.group_ids]
            ),
        }
        yield fake


def test_partitions_and_groups_take_few_requests_and_come_in_turn(broker: FakeBroker) -> None:
    assert PARTITIONS * 5 == 10_000
    time = 0.0
    with Client(broker.bootstrap, timeout=SHORT) as client:
        observer = Observer(client, clock=lambda: time, patience=SHORT)
        observer.partitions = Rotation(PART)
        history = first(observer.look())
        while len(history.ends) < MANY:
            broker.requests.clear()
            time += 2.0
            found = observer.look(history.wanted_times())
            asked = Counter(name for name, _, _ in broker.requests)
            assert (
                len(found.ends) == len(found.sizes) == PART and len(found.committed) + len(found.share_lags) == GROUPS
            )
            assert max(asked.values()) == 1 and sum(asked.values()) <= REQUESTS + REQUESTS_A_NODE, asked
            assert found.requests <= REQUESTS + REQUESTS_A_NODE
            history = history.after(found)
        assert time == 2.0 * (MANY / PART - 1)
        assert len(history.committed) == LAGGING and history.lags["g000"].records == 5
        assert history.lags["a-share"].records == 5
        assert history.snapshot.cluster.controller is None  # the quorum may not be seen


def test_all_topics_are_asked_for_now_and_then(broker: FakeBroker) -> None:
    time = 0.0
    broker.partitions = 3
    with Client(broker.bootstrap, timeout=SHORT) as client:
        observer = Observer(client, clock=lambda: time, patience=SHORT)
        counts = []
        for seconds in (0.0, 2.0, 4.0, 6.0):
            time = seconds
            broker.requests.clear()
            observer.look()
            counts.append(sum(name == "Metadata" and request.topics is None for name, _, request in broker.requests))
        assert counts == [1, 0, 0, 1]


def test_what_a_broker_refuses_or_does_not_serve_is_told_and_the_rest_is_there(broker: FakeBroker) -> None:
    broker.partitions = 3
    broker.answers[ListGroupsRequest] = lambda request, version: ListGroupsResponse(error_code=30)
    del broker.versions[ListTransactionsRequest.api_key]
    with Client(broker.bootstrap, timeout=SHORT) as client:
        found = Observer(client, patience=SHORT).look()
    assert found.ends == {TopicPartition("t", number): number for number in range(3)}
    assert len(found.problems) == 2 and not found.cluster.silent and not found.groups
    assert any("GROUP_AUTHORIZATION_FAILED" in each for each in found.problems)
    assert any("does not serve ListTransactions" in each for each in found.problems)


def test_a_broker_that_does_not_answer_is_asked_once(broker: FakeBroker) -> None:
    broker.partitions = 3
    broker.answers[ListOffsetsRequest] = lambda request, version: None  # it closes the connection
    with Client(broker.bootstrap, timeout=SHORT) as client:
        found = Observer(client, patience=0.2).look()
    assert (
        set(found.cluster.silent) == {1} and "DescribeLogDirs" not in broker.names() and len(found.cluster.topics) == 1
    )


def test_nobody_at_all_is_an_error() -> None:
    with Client("127.0.0.1:1", timeout=1) as client, pytest.raises(ConnectionFailed):
        Observer(client).look()


def test_a_rotation_takes_everything_in_turn() -> None:
    rotation, items = Rotation(4), list(range(10))
    assert [list(rotation.take(items)) for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert list(rotation.take([1, 2])) == [1, 2]
    still = Rotation(4, moves=False)
    assert list(still.take(items)) == list(still.take(items)) == [0, 1, 2, 3]
