"""Reports about coordinators and replicas that move between three nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.brokers import ApacheNodes, Broker, KbrokerNodes, broker_under_test
from compat_tests.coordinators import await_group_coordinators
from compat_tests.reports.conftest import OPTIONS
from kbroker.client import Client
from kbroker.client.connection import Connection
from kbroker.wire.messages.groups import DescribeGroupsRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kbroker.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.patience import LONG, SHORT

OFFSETS = "__consumer_offsets"
NOT_COORDINATOR = 16


@pytest.fixture(scope="module")
def three(request: pytest.FixtureRequest) -> Iterator[ApacheNodes | KbrokerNodes]:
    """Three nodes of the broker under test."""
    for broker in broker_under_test(request, *OPTIONS, default_nodes=3):
        if not isinstance(broker, ApacheNodes | KbrokerNodes):
            pytest.skip("for three nodes that the tests start")
        await_group_coordinators(broker.bootstrap)
        yield broker


def ask(address: str, request: Any, version: int) -> Any:
    """The answer of one node."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + SHORT
    connection = Connection(host, int(port), client_id="wire", deadline=deadline)
    try:
        return connection.request(request, deadline, version=version)
    finally:
        connection.close()


def partition(broker: Broker, topic: str) -> Any:
    """Metadata of partition 0 of a topic."""
    with Client(broker.bootstrap, timeout=SHORT) as client:
        (found,) = [each for each in client.refresh(None) if each.name == topic]
    return next(each for each in found.partitions if each.partition_index == 0)


def move(broker: Broker, topic: str, *replicas: int) -> None:
    """Reassign partition 0, and wait until it is done."""
    wanted = ReassignablePartition(partition_index=0, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=60_000, topics=[ReassignableTopic(name=topic, partitions=[wanted])]
    )
    answer = ask(broker.bootstrap.split(",")[0], request, 0)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0), answer
    deadline = time.monotonic() + LONG
    while sorted((now := partition(broker, topic)).replica_nodes) != sorted(replicas) or now.leader_id not in replicas:
        assert time.monotonic() < deadline, now
        time.sleep(0.1)


def commit(address: str, group: str, offset: int) -> int:
    """OffsetCommit to one node; the error."""
    wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=OFFSETS, partitions=[wanted])]
    answer = ask(address, OffsetCommitRequest(group_id=group, topics=topics), 9)
    return int(answer.topics[0].partitions[0].error_code)


def fetched(address: str, group: str) -> tuple[int, int]:
    """Error and offset that one node tells."""
    topics = [OffsetFetchRequestTopics(name=OFFSETS, partition_indexes=[0])]
    one = OffsetFetchRequestGroup(group_id=group, topics=topics)
    answer = ask(address, OffsetFetchRequest(groups=[one]), 9).groups[0]
    if answer.error_code:
        return answer.error_code, -1
    return answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].committed_offset


def test_a_coordinator_whose_last_replica_has_gone(three: ApacheNodes | KbrokerNodes) -> None:
    """A node that is no replica any more knows nothing of its groups, and learns them anew if it leads again."""
    addresses = dict(zip((1, 2, 3), three.bootstrap.split(","), strict=True))
    deadline = time.monotonic() + LONG
    expected = 0
    for leader in (1, 2, 1):
        move(three, OFFSETS, leader)
        await_group_coordinators(three.bootstrap)
        if expected:
            assert fetched(addresses[leader], "group") == (0, expected)
        expected += 1
        while commit(addresses[leader], "group", expected):
            assert time.monotonic() < deadline
        for other in {1, 2, 3} - {leader}:
            while (error := commit(addresses[other], "group", 100)) != NOT_COORDINATOR:
                assert error and time.monotonic() < deadline, error
            assert fetched(addresses[other], "group") == (NOT_COORDINATOR, -1)
            described = ask(addresses[other], DescribeGroupsRequest(groups=["group"]), 5).groups[0]
            assert described.error_code == NOT_COORDINATOR
        assert fetched(addresses[leader], "group") == (0, expected)
    move(three, OFFSETS, 1, 2, 3)
    three.await_in_sync()
    assert fetched(addresses[partition(three, OFFSETS).leader_id], "group") == (0, expected)
