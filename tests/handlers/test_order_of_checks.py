"""Requests that are wrong in two ways: they get the error that Apache Kafka 4.4.0 gives, as it was seen on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.types import Uuid
from kbroker.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from kbroker.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from kbroker.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kbroker.wire.messages.transactions import InitProducerIdRequest
from tests.node.node_harness import Client, Node, batch, running_node
from tests.node.quorum_harness import quorum, three_nodes
from tests.node.test_kraft_version import upgrade

OFFSETS = "__consumer_offsets"
DISK = Uuid(b"a directory's id")


async def produced(
    client: Client, batches: Mapping[str, bytes], *, version: int = 11, acks: int = -1
) -> dict[str, tuple[int, int]]:
    """Error and log start offset of partition 0 of each topic; ``tx`` is the transactional id."""
    request = ProduceRequest(
        transactional_id="tx",
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=memoryview(data))])
            for name, data in batches.items()
        ],
    )
    answer = await client.ask(request, version)
    found = ((topic.name, topic.partition_responses[0]) for topic in answer.responses)
    return {name: (each.error_code, each.log_start_offset) for name, each in found}


def transactional(producer_id: int = 77, epoch: int = 0) -> bytes:
    return batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)


async def with_coordinators(node: Node) -> Client:
    client = await node.connect()
    for kind, key in ((0, "g"), (1, "tx")):
        found = await client.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
        assert not found.coordinators[0].error_code
    return client


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_timeout_beyond_the_brokers_is_refused_before_the_coordinator_is_looked_for(
    tmp_path: Path, timeout_ms: int
) -> None:
    async with running_node(tmp_path) as node:  # without __transaction_state
        client = await node.connect()

        async def code(transactional_id: str) -> int:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
            return int((await client.ask(request, 4)).error_code)

        assert await code("tx") == E.INVALID_TRANSACTION_TIMEOUT
        assert await code("") == E.INVALID_REQUEST


async def test_a_transaction_is_verified_before_acks_are_looked_at(node: Node) -> None:
    await node.create_topic("t")
    client = await with_coordinators(node)
    wrong_id = (E.INVALID_PRODUCER_ID_MAPPING, -1)
    assert await produced(client, {"t": transactional()}, acks=5) == {"t": wrong_id}
    given = await client.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4)
    own = given.producer_id
    for version, code in ((10, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE), (12, E.INVALID_REQUIRED_ACKS)):
        told = await produced(client, {"t": transactional(own)}, version=version, acks=5)
        assert told == {"t": (code, -1)}
    # What is wrong with a topic goes before both, and another topic's batch is judged by itself.
    batches = {"absent": transactional(), "t": batch(b"v"), OFFSETS: batch(b"v")}
    told = await produced(client, batches, acks=5)
    unknown, acks = (E.UNKNOWN_TOPIC_OR_PARTITION, -1), (E.INVALID_REQUIRED_ACKS, -1)
    assert told == {"absent": unknown, "t": acks, OFFSETS: acks}
    assert await produced(client, {OFFSETS: batch(b"v")}) == {OFFSETS: (E.INVALID_TOPIC_EXCEPTION, -1)}


async def test_two_producers_in_one_request_are_refused_with_all_that_it_has(node: Node) -> None:
    for name in ("a", "b", "plain"):
        await node.create_topic(name)
    client = await with_coordinators(node)
    batches = {"a": transactional(1), "b": transactional(2), "plain": batch(b"v"), "absent": batch(b"v")}
    told = await produced(client, batches)
    assert told == dict.fromkeys(("a", "b", "plain", "absent"), (E.INVALID_PRODUCER_ID_MAPPING, -1))


async def test_a_batch_that_is_cut_short_is_none_of_a_transaction(node: Node, client: Client) -> None:
    await node.create_topic("t")
    for records, told in (
        (transactional(), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (transactional()[:-3], E.INVALID_RECORD),
    ):
        data = [PartitionProduceData(index=0, records=memoryview(records))]
        topics = [TopicProduceData(name="t", partition_data=data)]
        request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=5000, topic_data=topics)
        answer = await client.ask(request, 11)
        assert answer.responses[0].partition_responses[0].error_code == told


async def test_an_error_of_the_log_comes_with_its_start_and_others_without(node: Node, client: Client) -> None:
    await node.create_topic("t", max_message_bytes="500")
    data = batch(b"v")
    cases = {
        batch(b"v", is_control=True): (E.INVALID_RECORD, 0),
        batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0): (E.NONE, 0),
        batch(b"v", producer_id=7, producer_epoch=0, base_sequence=4): (E.OUT_OF_ORDER_SEQUENCE_NUMBER, 0),
        batch(b"v" * 600): (E.MESSAGE_TOO_LARGE, -1),
        data[:-1] + bytes([data[-1] ^ 1]): (E.CORRUPT_MESSAGE, -1),
        data + data: (E.INVALID_RECORD, -1),  # which the log has not seen
    }
    for records, told in cases.items():
        assert await produced(client, {"t": records}) == {"t": told}


async def test_a_node_that_does_not_lead_says_so_last(tmp_path: Path) -> None:
    """After what is wrong with the request; but a transaction is verified by who leads."""
    async with three_nodes(tmp_path) as cluster:
        await cluster.await_leader()
        client = await cluster.node(1).connect()
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=brokers)],
            )
            for name, brokers in (("elsewhere", [2]), ("followed", [2, 1]), (OFFSETS, [2, 1]))
        ]
        created = await client.ask(CreateTopicsRequest(topics=topics))
        assert not any(topic.error_code for topic in created.topics), created
        await cluster.topics_everywhere([topic.name for topic in topics])
        not_leader, acks = (E.NOT_LEADER_OR_FOLLOWER, -1), (E.INVALID_REQUIRED_ACKS, -1)
        names = ("elsewhere", "followed")
        for data, valid, wrong_acks in (
            (batch(b"v"), not_leader, acks),
            (transactional(), not_leader, not_leader),
            (batch(b"v") * 2, (E.INVALID_RECORD, -1), (E.INVALID_RECORD, -1)),
        ):
            assert await produced(client, dict.fromkeys(names, data)) == dict.fromkeys(names, valid)
            assert await produced(client, dict.fromkeys(names, data), acks=5) == dict.fromkeys(names, wrong_acks)
        assert await produced(client, {OFFSETS: batch(b"v")}) == {OFFSETS: (E.INVALID_TOPIC_EXCEPTION, -1)}


async def test_records_of_internal_topics_are_not_deleted(node: Node) -> None:
    client = await with_coordinators(node)

    async def code(topic: str, index: int, offset: int = 0) -> int:
        partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)])
        return int((await client.ask(request)).topics[0].partitions[0].error_code)

    for topic in (OFFSETS, "__transaction_state"):
        assert await code(topic, 0) == await code(topic, 0, -1) == E.INVALID_TOPIC_EXCEPTION
        assert await code(topic, 99) == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_without_name_and_id_is_told_so(client: Client) -> None:
    answer = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=None)], timeout_ms=5000), 6)
    [told] = answer.responses
    assert (told.name, told.error_code) == (None, E.INVALID_REQUEST)
    assert told.error_message == "Neither topic name nor id were specified."


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [("preallocate", "TRUE", "true"), ("segment.bytes", " 5000000 ", "5000000"), ("retention.ms", "+9", "9")],
)
async def test_a_new_topics_configs_are_answered_as_they_were_written(
    client: Client, name: str, written: str, meant: str
) -> None:
    configs = [CreatableTopicConfig(name=name, value=written)]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
    created = (await client.ask(CreateTopicsRequest(topics=[topic]))).topics[0]
    assert {each.name: each.value for each in created.configs}[name] == written
    asked = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=[name])
    described = (await client.ask(DescribeConfigsRequest(resources=[asked]))).results[0]
    assert [each.value for each in described.configs] == [meant]


@pytest.mark.parametrize("raised", [False, True])
async def test_a_request_without_a_voter_is_invalid_whatever_the_quorum_can_do(tmp_path: Path, raised: bool) -> None:
    """Also where voters cannot change, because ``kraft.version`` is 0."""
    async with quorum(tmp_path, 1) as cluster:
        await cluster.start(1)
        await cluster.await_leader()
        client = await cluster.node(1).connect()
        if raised:
            await cluster.controllers_registered(1)
            await upgrade(client)
        here = [Listener(name="CONTROLLER", host="127.0.0.1", port=1)]

        async def codes(voter_id: int, directory: Uuid, listeners: list[Any]) -> list[int]:
            add = AddRaftVoterRequest(
                voter_id=voter_id, voter_directory_id=directory, listeners=listeners, timeout_ms=1000
            )
            remove = RemoveRaftVoterRequest(voter_id=voter_id, voter_directory_id=directory)
            add.cluster_id = remove.cluster_id = None
            return [(await client.ask(request, 0)).error_code for request in (add, remove)]

        invalid, unsupported = E.INVALID_REQUEST, E.UNSUPPORTED_VERSION
        assert await codes(9, Uuid(bytes(16)), here) == [invalid, invalid]
        assert await codes(-3, DISK, here) == [invalid, invalid]
        assert await codes(9, DISK, []) == [invalid, E.VOTER_NOT_FOUND if raised else unsupported]
        assert await codes(1, DISK, here) == (
            [E.DUPLICATE_VOTER, E.VOTER_NOT_FOUND] if raised else [unsupported, unsupported]
        )
