"""A request with many parts gives way to others between them, whatever it asks for."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.handlers.common import fair_share
from kbroker.handlers.list_offsets import MOST_AT_ONCE
from kbroker.node.serving import dispatcher, long_request, reply_queue
from kbroker.node.serving.dispatcher import answer_of
from kbroker.runtime.env import RealEnv
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import Uuid
from kbroker.wire import compiler
from kbroker.wire.compiler import encode_parts
from kbroker.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
)
from kbroker.wire.messages.configs import IncrementalAlterConfigsResource as IncrementalResource
from kbroker.wire.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from kbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kbroker.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kbroker.wire.messages.describe_topic_partitions import TopicRequest as PartitionsTopic
from kbroker.wire.messages.described_transactions import DescribeProducersRequest, DescribeTransactionsRequest
from kbroker.wire.messages.described_transactions import TopicRequest as ProducersTopic
from kbroker.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kbroker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kbroker.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kbroker.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.handlers.principals import connect_as, under
from tests.node.node_harness import PATIENT, run, running_node
from tests.node.test_client_quotas import set_quota
from tests.patience import until

PARTS = 120
NAMES = [f"n{index}" for index in range(PARTS)]
INDEXES = list(range(PARTS))


class Steps(trio.abc.Instrument):
    """Counts the turns of all tasks."""

    count = 0

    def before_task_step(self, task: Any) -> None:
        self.count += 1


def requests() -> Iterator[Any]:
    yield MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES])
    ids = [Uuid(index.to_bytes(16, "big")) for index in range(1, PARTS + 1)]
    yield MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=each) for each in ids])
    yield DescribeTopicPartitionsRequest(topics=[PartitionsTopic(name=name) for name in NAMES])
    yield FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES)
    yield DescribeGroupsRequest(groups=NAMES)
    yield ConsumerGroupDescribeRequest(group_ids=NAMES)
    yield DeleteGroupsRequest(groups_names=NAMES)
    yield DescribeTransactionsRequest(transactional_ids=NAMES)
    yield OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=[]) for name in NAMES])
    yield DescribeProducersRequest(topics=[ProducersTopic(name="t", partition_indexes=INDEXES)])
    yield AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/x", topics=[AlterReplicaLogDirTopic(name="t", partitions=INDEXES)])]
    )
    deleted = [DeleteRecordsPartition(partition_index=index, offset=0) for index in INDEXES]
    yield DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=deleted)])
    epochs = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in INDEXES]
    yield OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=epochs)])
    one = [OffsetDeleteRequestPartition(partition_index=0)]
    yield OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic(name=name, partitions=one) for name in NAMES]
    )
    offsets = [TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in INDEXES]
    yield TxnOffsetCommitRequest(
        transactional_id="id", group_id="g", topics=[TxnOffsetCommitRequestTopic(name="none", partitions=offsets)]
    )
    yield DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in NAMES]
    )
    yield AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name=name) for name in NAMES])
    change = [IncrementalAlterableConfig(name="retention.ms", value="1")]
    yield IncrementalAlterConfigsRequest(
        resources=[IncrementalResource(resource_type=2, resource_name=name, configs=change) for name in NAMES]
    )
    yield CreateTopicsRequest(topics=[CreatableTopic(name=name + "/", num_partitions=1) for name in NAMES])
    yield CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=2) for name in NAMES])
    yield ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="none", partitions=INDEXES)])
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(MOST_AT_ONCE + 1)]
    yield ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="none", partitions=wanted)])


def for_many_names() -> Iterator[tuple[Any, int | None]]:
    """Requests with many names of topics, and their version where it is not the newest. Produce counts for itself."""
    for request in requests():
        yield request, None
    yield (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
                for name in NAMES
            ],
        ),
        None,
    )
    commits = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    yield (
        OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name=name, partitions=commits) for name in NAMES]
        ),
        8,
    )
    added = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in NAMES]
    yield AddPartitionsToTxnRequest(v3_and_below_transactional_id="id", v3_and_below_topics=added), 3
    yield DescribeProducersRequest(topics=[ProducersTopic(name=name, partition_indexes=[0]) for name in NAMES]), None
    deleted = [DeleteRecordsPartition(partition_index=0, offset=0)]
    yield DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=deleted) for name in NAMES]), None
    epochs = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    yield (
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=epochs) for name in NAMES]),
        None,
    )
    offsets = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    yield (
        TxnOffsetCommitRequest(
            transactional_id="id",
            group_id="g",
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=offsets) for name in NAMES],
        ),
        None,
    )
    yield DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in NAMES], timeout_ms=1000), None
    wanted = [FetchPartition(partition=0, partition_max_bytes=1)]
    yield (
        FetchRequest(
            max_bytes=1, session_epoch=-1, topics=[FetchTopic(topic=name, partitions=wanted) for name in NAMES]
        ),
        12,
    )
    fetched = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in NAMES]
    yield OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=fetched)]), 8
    yield (
        ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=NAMES, topic_partitions=[]
        ),
        None,
    )


def test_others_have_a_turn_between_the_parts_of_any_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            node.allow(turn_parts=2)
            node.broker.services.timestamp_lookups.slice_seconds = 0
            await node.create_topic("t")
            client = await node.connect()
            await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
            await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]))
            steps = Steps()
            trio.lowlevel.add_instrument(steps)
            for request in requests():
                await trio.testing.wait_all_tasks_blocked()
                steps.count = 0
                answer = await client.ask(request)
                assert steps.count >= PARTS / 2, (steps.count, answer)
            trio.lowlevel.remove_instrument(steps)

    run(test)


def test_others_have_a_turn_while_everything_is_described(tmp_path: Path) -> None:
    """Requests that name nothing ask for all topics, and for all logs."""

    async def test() -> None:
        async with running_node(tmp_path) as node:
            node.allow(turn_parts=2)
            client = await node.connect()
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
            await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
            steps = Steps()
            trio.lowlevel.add_instrument(steps)
            with_rights = MetadataRequest(topics=None, include_topic_authorized_operations=True)
            for request, turns in (
                (MetadataRequest(topics=None), PARTS / 2),
                (with_rights, PARTS),
                (DescribeLogDirsRequest(topics=None), PARTS / 2),
            ):
                await trio.testing.wait_all_tasks_blocked()
                steps.count = 0
                answer = await client.ask(request)
                assert NAMES[-1] in repr(answer)
                assert steps.count >= turns, (steps.count, request)
            trio.lowlevel.remove_instrument(steps)
            # Some logs are described as in the list of all.
            some = [DescribableLogDirTopic(topic=name, partitions=[0, 7]) for name in (NAMES[3], NAMES[5], "none")]
            answer = await client.ask(DescribeLogDirsRequest(topics=some))
            [directory] = answer.results
            assert [(each.name, len(each.partitions)) for each in directory.topics] == [(NAMES[3], 1), (NAMES[5], 1)]

    run(test)


def test_an_answer_with_many_topics_is_encoded_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await node.connect()
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
            await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
            requests = (MetadataRequest(topics=None), DescribeLogDirsRequest(topics=None), MetadataRequest(topics=[]))

            async def all_have_logs() -> bool:
                answer = await client.ask(requests[1])
                return sum(len(directory.topics) for directory in answer.results) == len(NAMES)

            await until(all_have_logs)
            before = [await client.ask(request) for request in requests]
            threads: list[bool] = []
            real = encode_parts

            def encode(*args: Any) -> Any:
                if isinstance(args[0], MetadataResponse | DescribeLogDirsResponse):
                    threads.append(threading.current_thread() is threading.main_thread())
                return real(*args)

            node.allow(large_answer_parts=PARTS - 1)
            monkeypatch.setattr(reply_queue, "encode_parts", encode)
            await set_quota(node, {"client_id": "limited"}, producer_byte_rate=1e9)
            for client_id in ("test", "limited"):
                threads.clear()
                after = [await client.ask(request, client_id=client_id) for request in requests]
                assert threads == [False, False, True], client_id
                for directory in (*before[1].results, *after[1].results):
                    directory.usable_bytes = 0  # others use the disk, too
                assert before == after

    run(test)


def test_partitions_of_a_topic_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few topics may have most partitions of a cluster."""
    counted = 0
    give_way, encoded_frame = fair_share.FairShare.next, reply_queue.encoded_frame
    encoded: list[bool] = []

    async def count(self: fair_share.FairShare, parts: int = 1) -> None:
        nonlocal counted
        counted += parts
        await give_way(self, parts)

    def encode(*args: Any) -> Any:
        encoded.append(threading.current_thread() is not threading.main_thread())
        return encoded_frame(*args)

    async def test() -> None:
        nonlocal counted
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("wide", 80)
            client = await node.connect()
            monkeypatch.setattr(fair_share.FairShare, "next", count)
            node.allow(large_answer_parts=79)
            monkeypatch.setattr(long_request, "encoded_frame", encode)
            by_id = MetadataRequestTopic(name=None, topic_id=topic_id)
            for topics in (None, [MetadataRequestTopic(name="wide")], [by_id]):
                counted = 0
                [topic] = (await client.ask(MetadataRequest(topics=topics))).topics
                assert len(topic.partitions) == 80 and counted == 11
            await client.ask(DescribeLogDirsRequest(topics=None))
            assert encoded == [True] * 4

    run(test)


def test_offsets_of_many_partitions_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools ask for all offsets of all groups of a coordinator in one request."""
    encoded: list[int] = []
    encoded_frame = reply_queue.encoded_frame

    def encode(api_key: int, version: int, correlation_id: int, response: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        encoded.append(version)
        return encoded_frame(api_key, version, correlation_id, response)

    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("wide", 80)
            client = await node.connect()
            await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
            partitions = [OffsetCommitRequestPartition(partition_index=n, committed_offset=n) for n in range(80)]
            commit = OffsetCommitRequest(
                group_id="g", topics=[OffsetCommitRequestTopic(name="wide", partitions=partitions)]
            )
            while (await client.ask(commit, 8)).topics[0].partitions[0].error_code:
                pass
            await client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="none")]), 8)
            monkeypatch.setattr(long_request, "encoded_frame", encode)
            node.allow(turn_parts=9)
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * 40)
            steps = []
            for many in (10_000, 79):  # the answer counts as a large one, or not
                node.allow(large_answer_parts=many)
                counter = Steps()
                trio.lowlevel.add_instrument(counter)
                [*groups] = (await client.ask(asked, 8)).groups
                trio.lowlevel.remove_instrument(counter)
                steps.append(counter.count)
                for group in groups:
                    assert [each.committed_offset for each in group.topics[0].partitions] == list(range(80))
            assert steps[0] >= 40, "a turn for each group, whose 80 partitions count as ten parts"
            [topic] = (await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)).topics
            assert len(topic.partitions) == 80
            assert encoded == [8, 7]

    run(test)


def test_one_large_answer_is_made_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes much memory until it is encoded. A request for little does not wait."""
    events: list[str] = []
    encoded_frame = reply_queue.encoded_frame

    def begun(*args: Any) -> Any:
        events.append("begun")
        return answer_of(*args)

    def encoded(*args: Any) -> Any:
        frame = encoded_frame(*args)
        events.append("encoded")
        return frame

    async def test() -> None:
        async with running_node(tmp_path) as node:
            node.allow(turn_parts=2)
            clients = [await node.connect() for _ in range(4)]
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
            await clients[0].ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
            node.allow(large_answer_parts=PARTS - 1)
            monkeypatch.setattr(long_request, "encoded_frame", encoded)
            monkeypatch.setattr("kbroker.node.serving.dispatcher.answer_of", begun)
            every = [MetadataRequestTopic(name=name) for name in NAMES]
            requests = [MetadataRequest(topics=None), DescribeLogDirsRequest(topics=None), MetadataRequest(topics=None)]
            turn = node.broker.services.large_answers
            async with turn:
                for client, request in zip(clients, requests, strict=False):
                    await client.send(request)
                some = await clients[3].ask(MetadataRequest(topics=every[:3]))
                assert len(some.topics) == 3
                while turn.statistics().tasks_waiting < len(requests):
                    await trio.lowlevel.checkpoint()
                assert events == ["begun"], "of the one that is answered"
            for client in clients[:3]:
                await client.receive()
            assert events[1:] == ["begun", "encoded"] * len(requests)
            # As many topics by their names are described at once, and encoded in turn.
            assert len((await clients[0].ask(MetadataRequest(topics=every))).topics) == PARTS
            assert events[-2:] == ["begun", "encoded"] and not turn.locked()

    run(test)


def test_no_garbage_is_looked_for_until_a_large_answer_is_freed(tmp_path: Path) -> None:
    freed: list[bool] = []

    class FewThreads(RealEnv):
        async def run_blocking(self, fn: Callable[..., Any], *args: Any) -> Any:
            result = await super().run_blocking(fn, *args)
            if fn.__module__ == long_request.__name__ and len(args) == 1:  # the answer's lists
                freed.append(not gc.isenabled() and not any(args[0]))
                raise RuntimeError("can't start new thread")  # and the node goes on
            return result

    async def test() -> None:
        async with running_node(tmp_path, FewThreads(seed=1, budgets=PATIENT)) as node:
            client = await node.connect()
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
            await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
            node.allow(large_answer_parts=PARTS - 1)
            assert gc.isenabled()
            for request in (MetadataRequest(topics=None), DescribeLogDirsRequest(topics=None)):
                await client.ask(request)
            while len(freed) < 2 or not gc.isenabled():
                await trio.sleep(0.001)
            assert freed == [True, True]

    run(test)


def test_others_have_a_turn_between_the_denials_of_any_request(tmp_path: Path) -> None:
    """A principal without permissions can ask for fifty thousand names, and the authorizer is asked about each."""
    denied = [(operation, kind) for operation in AclOperation for kind in (ResourceType.TOPIC, ResourceType.CLUSTER)]

    async def test() -> None:
        async with running_node(tmp_path) as node:
            node.allow(turn_parts=2, long_request_bytes=0, fetch_turn_partitions=2)
            await node.create_topic("t")
            under(node).deny("topicless", *denied)
            client = await connect_as(node, "topicless")
            steps = Steps()
            trio.lowlevel.add_instrument(steps)
            found = []
            for request, version in for_many_names():
                if NAMES[-1] not in repr(request):
                    continue
                await trio.testing.wait_all_tasks_blocked()
                steps.count = 0
                await client.ask(request, version)
                if steps.count < PARTS / 2:
                    found.append(f"{type(request).__name__}: {steps.count} turns")
            trio.lowlevel.remove_instrument(steps)
            assert not found, "\n".join(found)

    run(test)


def test_others_have_a_turn_before_and_after_a_large_request_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            request = DescribeTransactionsRequest(transactional_ids=NAMES)
            turn_taken: list[str] = []

            class Others(trio.abc.Instrument):
                def before_task_step(self, task: Any) -> None:
                    turn_taken.append("step")

            real_decode, real_encode = compiler.decode, encode_parts

            def decode(*args: Any) -> Any:
                turn_taken.append("decode")
                return real_decode(*args)

            def encode(*args: Any) -> Any:
                turn_taken.append("encode")
                return real_encode(*args)

            def describe(*_: Any) -> None:
                turn_taken.append("serve")

            node.allow(turn_parts=PARTS)
            monkeypatch.setattr(dispatcher, "decode", decode)
            monkeypatch.setattr(reply_queue, "encode_parts", encode)
            monkeypatch.setattr(node.broker.services.transactions, "partition_for", describe)
            instrument = Others()
            trio.lowlevel.add_instrument(instrument)
            for limit, expected in ((1 << 20, set()), (0, {"step"})):
                node.allow(long_request_bytes=limit)
                client = await node.connect()
                await trio.testing.wait_all_tasks_blocked()
                turn_taken.clear()
                await client.ask(request)
                begin, end = turn_taken.index("decode"), turn_taken.index("encode")
                first = turn_taken.index("serve")
                assert set(turn_taken[begin + 1 : first]) == expected
                last = end - 1 - turn_taken[:end][::-1].index("serve")
                assert set(turn_taken[last + 1 : end]) == expected
            trio.lowlevel.remove_instrument(instrument)

    run(test)
