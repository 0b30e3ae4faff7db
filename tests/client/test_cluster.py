"""Routing and trying again, against a broker that has trouble."""

from __future__ import annotations

import itertools
import socket
from typing import Any

import pytest

from kbroker.client import ApiNotServed, Client, ConnectionFailed, RequestTimedOut, ResponseError
from kbroker.client.cluster import parse_bootstrap
from kbroker.client.groups import commit_offsets, committed_offsets, describe_group, list_groups
from kbroker.client.topics import LATEST, delete_topics, describe_topics, list_offsets
from kbroker.types import TopicPartition
from kbroker.wire.errors import EncodeError
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeAssignment,
    DescribedGroup,
    DescribeTopicPartitions,
    Member,
)
from kbroker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kbroker.wire.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kbroker.wire.messages.metadata import MetadataRequest, MetadataResponseBroker
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kbroker.wire.messages.topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from tests.client.fake_broker import SILENCE, FakeBroker, with_time
from tests.patience import LONG, SHORT


def client_of(broker: FakeBroker, timeout: float = LONG) -> Client:
    return Client(broker.bootstrap, timeout=timeout)


def test_addresses() -> None:
    assert parse_bootstrap("a:1, b ,[::1]:3,[::2]") == [("a", 1), ("b", 9092), ("::1", 3), ("::2", 9092)]


@pytest.mark.parametrize("text", ["", " , ", "a:", "a:b", ":1", "a:0", "a:65536", "[::1", "[::1]x", "a:1:2", "a:-1"])
def test_bad_addresses(text: str) -> None:
    if text == "a:":
        assert parse_bootstrap(text) == [("a", 9092)]
        return
    with pytest.raises(ValueError, match=r"host:port|no address"):
        parse_bootstrap(text)


def test_the_next_address_is_tried_when_one_is_dead() -> None:
    with FakeBroker() as broker, Client(f"127.0.0.1:1,{broker.bootstrap}", timeout=SHORT) as client:
        assert client.partitions_of("t") == [0, 1]
        assert client.cluster_id == "fake"


def test_the_next_address_is_tried_when_one_hangs() -> None:
    def run(seconds: float) -> None:
        with socket.create_server(("127.0.0.1", 0)) as hanging, FakeBroker() as broker:
            bootstrap = f"127.0.0.1:{hanging.getsockname()[1]},{broker.bootstrap}"
            with Client(bootstrap, timeout=seconds) as client:
                assert client.partitions_of("t") == [0, 1]

    with_time(run, 2, 20)


def test_another_broker_is_asked_when_one_begins_to_hang() -> None:
    def run(seconds: float) -> None:
        def metadata(request: Any, version: int) -> Any:
            response = second.metadata(request, version)
            response.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=first.port))
            return response if [name for name, _, _ in first.requests].count("Metadata") == 1 else SILENCE

        with FakeBroker() as first, FakeBroker() as second, Client(first.bootstrap, timeout=seconds) as client:
            first.answers[MetadataRequest] = metadata
            assert client.partitions_of("t") == [0, 1]
            assert client.partitions_of("t") == [0, 1]
            assert [name for name, _, _ in second.requests].count("Metadata") == 1

    with_time(run, 2, 20)


def test_who_cannot_be_reached_at_all_is_not_tried_for_long() -> None:
    with Client("127.0.0.1:1", timeout=LONG) as client, pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
        client.partitions_of("t")


def test_an_advertised_address_that_is_wrong_is_named() -> None:
    def metadata(request: Any, version: int) -> Any:
        response = broker.metadata(request, version)
        response.brokers[0].port = 1
        return response

    with FakeBroker() as broker, client_of(broker) as client:
        broker.answers[MetadataRequest] = metadata
        client.refresh(())
        client.timeout = 0.2
        with pytest.raises(ConnectionFailed, match=r"broker 1 says that it is at 127\.0\.0\.1:1, but: cannot connect"):
            client.ask_node(1, ListGroupsRequest())


def offsets_answer(codes: Any) -> Any:
    def answer(request: Any, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=entry.partition_index, error_code=next(codes), offset=7
                        )
                        for entry in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def test_a_leader_that_moved_is_asked_again_for_that_partition_only() -> None:
    codes = iter([0, 6, 0])
    with FakeBroker({ListOffsetsRequest: offsets_answer(codes)}) as broker, client_of(broker) as client:
        found = list_offsets(client, {TopicPartition("t", 0): LATEST, TopicPartition("t", 1): LATEST})
        assert [entry.offset for entry in found.values() if not isinstance(entry, ResponseError)] == [7, 7]
        asked = [
            [entry.partition_index for topic in request.topics for entry in topic.partitions]
            for name, _, request in broker.requests
            if name == "ListOffsets"
        ]
        assert asked == [[0, 1], [1]]
        assert [name for name, _, _ in broker.requests].count("Metadata") == 2


def test_an_error_that_stays_is_given_per_partition_when_time_is_up() -> None:
    def run(seconds: float) -> None:
        with FakeBroker({ListOffsetsRequest: offsets_answer(itertools.repeat(6))}) as broker:
            with client_of(broker, seconds) as client:
                found = list_offsets(client, {TopicPartition("t", 0): LATEST})
            error = found[TopicPartition("t", 0)]
            assert isinstance(error, ResponseError) and error.name == "NOT_LEADER_OR_FOLLOWER"
            assert str(error).startswith("partition t-0: ")

    with_time(run, 0.3, 20)


def test_an_error_for_good_is_not_tried_again() -> None:
    with FakeBroker({ListOffsetsRequest: offsets_answer(iter([29]))}) as broker, client_of(broker) as client:
        found = list_offsets(client, {TopicPartition("t", 0): LATEST, TopicPartition("u", 0): LATEST})
    assert str(found[TopicPartition("t", 0)]) == (
        "partition t-0: not authorized for this topic (TOPIC_AUTHORIZATION_FAILED)"
    )
    assert str(found[TopicPartition("u", 0)]) == (
        "topic u: there is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION)"
    )
    assert broker.names() == ["ListOffsets"]


def test_a_lost_connection_is_made_again() -> None:
    answers = iter([None, ListGroupsResponse(groups=[ListedGroup(group_id="g", group_state="Empty")])])
    with FakeBroker({ListGroupsRequest: lambda request, version: next(answers)}) as broker:
        with client_of(broker) as client:
            assert [group.group_id for group in list_groups(client)] == ["g"]
        assert broker.names() == ["ListGroups", "ListGroups"]


def test_filters_that_an_old_broker_would_ignore_are_refused() -> None:
    with FakeBroker() as broker, client_of(broker) as client:
        broker.versions[16] = (0, 4)  # type: ignore[assignment]
        with pytest.raises(ApiNotServed, match="too old to list groups by state or type"):
            list_groups(client, types=["classic"])


def coordinator(request: Any, version: int) -> FindCoordinatorResponse:
    if version < 4:
        return FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=1)
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, node_id=1, error_message=None) for key in request.coordinator_keys]
    )


def test_the_coordinator_is_looked_for_again_when_it_has_moved() -> None:
    codes = iter([16, 14, 0])

    def commit(request: Any, version: int) -> OffsetCommitResponse:
        entry = OffsetCommitResponsePartition(partition_index=0, error_code=next(codes))
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[entry])])

    with FakeBroker({FindCoordinatorRequest: coordinator, OffsetCommitRequest: commit}) as broker:
        with client_of(broker) as client:
            assert commit_offsets(client, "g", {TopicPartition("t", 0): 5}) == {}
        assert broker.names() == ["FindCoordinator", "OffsetCommit"] * 3


def test_the_coordinator_is_looked_for_again_when_its_broker_is_gone() -> None:
    is_gone = False

    def commit(request: Any, version: int) -> OffsetCommitResponse:
        entry = OffsetCommitResponsePartition(partition_index=0)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[entry])])

    def metadata(request: Any, version: int) -> Any:
        response = entrance.metadata(request, version)
        other = MetadataResponseBroker(node_id=2, host="127.0.0.1", port=second.port)
        response.brokers += [] if is_gone else [other]
        return response

    def found(request: Any, version: int) -> FindCoordinatorResponse:
        node_id = 1 if is_gone else 2
        return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=node_id, error_message=None)])

    with FakeBroker({OffsetCommitRequest: commit, ListGroupsRequest: lambda *_: None}) as second:
        with (
            FakeBroker({FindCoordinatorRequest: found, OffsetCommitRequest: commit}) as entrance,
            client_of(entrance) as client,
        ):
            entrance.answers[MetadataRequest] = metadata
            assert commit_offsets(client, "g", {TopicPartition("t", 0): 5}) == {}
            with pytest.raises(ConnectionFailed):  # its end is noticed by something else
                client.ask_together({2: ListGroupsRequest()}, client.deadline())
            is_gone = True
            client.refresh(())
            assert commit_offsets(client, "g", {TopicPartition("t", 0): 6}) == {}
        assert entrance.names() == ["FindCoordinator", "FindCoordinator", "OffsetCommit"]


def test_a_coordinator_that_hangs_is_not_asked_for_ever() -> None:
    def commit(request: Any, version: int) -> OffsetCommitResponse:
        entry = OffsetCommitResponsePartition(partition_index=0)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[entry])])

    def run(seconds: float) -> None:
        coordinators = iter([2, 1])

        def metadata(request: Any, version: int) -> Any:
            response = entrance.metadata(request, version)
            response.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=second.port))
            return response

        def found(request: Any, version: int) -> FindCoordinatorResponse:
            coordinator = Coordinator(key="g", node_id=next(coordinators), error_message=None)
            return FindCoordinatorResponse(coordinators=[coordinator])

        with (
            FakeBroker({OffsetCommitRequest: lambda *_: SILENCE}) as second,
            FakeBroker({FindCoordinatorRequest: found, OffsetCommitRequest: commit}) as entrance,
            Client(entrance.bootstrap, timeout=seconds) as client,
        ):
            entrance.answers[MetadataRequest] = metadata
            with pytest.raises(RequestTimedOut):
                commit_offsets(client, "g", {TopicPartition("t", 0): 5})
            assert commit_offsets(client, "g", {TopicPartition("t", 0): 5}) == {}

    with_time(run, 1, 20)


def test_another_broker_is_asked_where_the_one_that_is_named_as_controller_is_down() -> None:
    asked = itertools.count()

    def metadata(request: Any, version: int) -> Any:
        response = broker.metadata(request, version)
        response.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=1))
        response.controller_id = 1 if next(asked) else 2
        return response

    def deleted(request: Any, version: int) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])

    with FakeBroker({DeleteTopicsRequest: deleted}) as broker, client_of(broker, timeout=20) as client:
        broker.answers[MetadataRequest] = metadata
        assert delete_topics(client, ["t"]) == {"t": None}


@pytest.mark.parametrize("version", [1, 5, 7, 8, 9])
def test_committed_offsets_in_both_forms_of_the_request(version: int) -> None:
    def fetch(request: Any, version: int) -> OffsetFetchResponse:
        if version >= 8:
            part = OffsetFetchResponsePartitions(partition_index=1, committed_offset=9, metadata="m")
            none = OffsetFetchResponsePartitions(partition_index=0, committed_offset=-1, metadata="")
            topic = OffsetFetchResponseTopics(name="t", partitions=[part, none])
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])
        assert request.group_id == "g"
        old = OffsetFetchResponsePartition(partition_index=1, committed_offset=9, metadata="m")
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[old])])

    with FakeBroker({FindCoordinatorRequest: coordinator, OffsetFetchRequest: fetch}) as broker:
        broker.versions[9] = (1, version)  # type: ignore[assignment]
        broker.versions[10] = (0, 3 if version < 8 else 6)  # type: ignore[assignment]
        with client_of(broker) as client:
            if version == 1:  # cannot ask for all topics
                with pytest.raises(EncodeError, match="OffsetFetchRequest v1"):
                    committed_offsets(client, "g")
                return
            found = committed_offsets(client, "g")
        assert {partition: entry.offset for partition, entry in found.items()} == {TopicPartition("t", 1): 9}


def test_a_group_of_the_new_protocol() -> None:
    def describe(request: Any, version: int) -> ConsumerGroupDescribeResponse:
        def partitions(*numbers: int) -> DescribeAssignment:
            return DescribeAssignment(
                topic_partitions=[DescribeTopicPartitions(topic_name="t", partitions=list(numbers))]
            )

        members = [
            Member(
                member_id="m1",
                member_epoch=3,
                client_id="c",
                client_host="/127.0.0.1",
                subscribed_topic_names=["t"],
                assignment=partitions(0, 1),
                target_assignment=partitions(0),
                member_type=1,
            )
        ]
        group = DescribedGroup(
            group_id="g", group_state="Reconciling", group_epoch=4, assignment_epoch=4, assignor_name="uniform",
            members=members,
        )  # fmt: skip
        return ConsumerGroupDescribeResponse(groups=[group])

    with (
        FakeBroker({FindCoordinatorRequest: coordinator, ConsumerGroupDescribeRequest: describe}) as broker,
        client_of(broker) as client,
    ):
        group = describe_group(client, "g")
    assert (group.type, group.state, group.assignor, group.group_epoch) == ("Consumer", "Reconciling", "uniform", 4)
    [member] = group.members
    assert member.assignment == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert member.target == (TopicPartition("t", 0),)


def test_topics_of_a_broker_without_describe_topic_partitions() -> None:
    with FakeBroker() as broker, client_of(broker) as client:
        del broker.versions[75]
        found = describe_topics(client, ["t", "u"])
    topic, missing = found["t"], found["u"]
    assert not isinstance(topic, ResponseError) and [entry.leader for entry in topic.partitions] == [1, 1]
    assert topic.partitions[0].elr is None
    assert isinstance(missing, ResponseError)
