"""Three nodes that replicate each other's partitions, over TCP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ErrorCode
from kbroker.log.partition_log import PartitionLog
from kbroker.node.replicas.partition import Partition
from kbroker.types import Uuid
from kbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kbroker.wire.messages.elect_leaders import ElectLeadersRequest
from kbroker.wire.messages.elect_leaders import TopicPartitions as ElectLeadersTopicPartitions
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.nodes import UnregisterBrokerRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kbroker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kbroker.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.node.node_harness import PATIENT, batch, fetch_request, produce_request, run, values
from tests.node.quorum_harness import LATE_NEWS, Quorum, quorum, three_nodes
from tests.patience import SHORT

TOPIC = "replicated"


async def create(cluster: Quorum, name: str = TOPIC, *, partitions: int = 1, factor: int = 3, **configs: str) -> Uuid:
    """A topic on several nodes, known to all."""
    node_id = min(cluster.nodes)
    client = await cluster.node(node_id).connect()
    response = await client.ask(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=factor,
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
                    ],
                )
            ],
            timeout_ms=5000,
        )
    )
    assert response.topics[0].error_code == 0, response
    await client.stream.aclose()
    await cluster.topics_everywhere([name])
    return Uuid(bytes(response.topics[0].topic_id))


def replica(cluster: Quorum, node_id: int, topic: str = TOPIC, index: int = 0) -> Partition:
    """A node's replica."""
    return cluster.nodes[node_id].replica_manager.get_partition(topic, index)


def leader_of(cluster: Quorum, topic: str = TOPIC, index: int = 0) -> int:
    """The leader in the newest image of all nodes."""
    found = cluster.newest_image().topics.partition(topic, index)
    assert found is not None
    return int(found.leader)


def stop_following(cluster: Quorum, node_id: int, partition: Partition) -> Callable[[], None]:
    """Have a node no longer fetch a partition from its present leader; the function returned ends that."""
    fetchers: Any = cluster.nodes[node_id].replica_manager.fetchers
    follow, leader_epoch = fetchers.follow, partition.state.leader_epoch

    def follow_all_else(other: Partition) -> None:
        if other is not partition or other.state.leader_epoch != leader_epoch:
            follow(other)

    def go_on() -> None:
        fetchers.follow = follow
        follow(partition)

    fetchers.follow = follow_all_else
    fetchers.unfollow(partition)
    return go_on


def log_of(partition: Partition) -> bytes:
    """All bytes of the log."""
    return partition.log.read_bytes(partition.log.log_start_offset, 1 << 24) if partition.log.log_end_offset else b""


async def produce(cluster: Quorum, node_id: int, *records: bytes, topic_id: Uuid, acks: int = -1) -> Any:
    """Produce a batch to a node; the partition's answer."""
    client = await cluster.node(node_id).connect()
    response = await client.ask(produce_request("", batch(*records), topic_id=topic_id, acks=acks, timeout_ms=5000))
    await client.stream.aclose()
    return response.responses[0].partition_responses[0]


def test_what_is_acknowledged_is_on_all_in_sync_replicas(tmp_path: Path) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path) as cluster:
            topic_id = await create(cluster)
            leader = leader_of(cluster)
            for number in range(20):
                began = trio.current_time()
                answer = await produce(cluster, leader, b"%d" % number, topic_id=topic_id)
                print(f"acknowledged after {(trio.current_time() - began) * 1000:.1f} ms")
                assert (answer.error_code, answer.base_offset) == (0, number)
                for node_id in cluster.nodes:
                    assert replica(cluster, node_id).log.log_end_offset == number + 1
            whole = log_of(replica(cluster, leader))
            assert all(log_of(replica(cluster, node_id)) == whole for node_id in cluster.nodes)
            assert replica(cluster, leader).high_watermark == 20
            await cluster.until(lambda: all(replica(cluster, each).high_watermark == 20 for each in cluster.nodes))
            client = await cluster.node(leader).connect()
            fetched = await client.ask(fetch_request("", topic_id=topic_id))
            found = values(fetched.responses[0].partitions[0].records)
            assert found == [(number, b"%d" % number) for number in range(20)]

    run(main)


def test_a_record_is_fetched_at_once_though_there_is_always_something_else_to_tell(tmp_path: Path) -> None:
    """One record after another: at each fetch the follower has yet to hear that the one before is committed."""

    async def main() -> None:
        waits = {"replica_fetch_wait_max_ms": "20000", "replica_socket_timeout_ms": "60000"}
        async with three_nodes(tmp_path, budgets=LATE_NEWS, **waits) as cluster:
            topic_id = await create(cluster)
            client = await cluster.node(leader_of(cluster)).connect()
            for number in range(20):
                request = produce_request("", batch(b"x"), topic_id=topic_id, acks=-1, timeout_ms=5000)
                answer = (await client.ask(request)).responses[0].partition_responses[0]
                assert (answer.error_code, answer.base_offset) == (0, number)

    run(main)


def test_a_quorum_of_one_has_brokers_that_replicate(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, 2, initial=1, roles_of={2: "broker"}) as cluster:
            await cluster.start(1)
            assert cluster.nodes[1].metadata.is_alone and cluster.nodes[1].replica_manager.fetchers is None
            epoch = cluster.nodes[1].broker_epoch
            await cluster.start(2)
            topic_id = await create(cluster, partitions=2, factor=2)
            assert {leader_of(cluster, index=index) for index in (0, 1)} == {1, 2}

            def in_sync() -> bool:
                topic = cluster.nodes[1].metadata.image.topics.by_name[TOPIC]
                return all(set(partition.isr) == {1, 2} for partition in topic.partitions.values())

            async def produce_to_both() -> None:
                for index in (0, 1):
                    leader = leader_of(cluster, index=index)
                    client = await cluster.node(leader).connect()
                    request = produce_request(
                        "", batch(b"a"), topic_id=topic_id, partition=index, acks=-1, timeout_ms=5000
                    )
                    response = await client.ask(request)
                    await client.stream.aclose()
                    assert response.responses[0].partition_responses[0].error_code == 0
                    assert len({log_of(replica(cluster, node_id, index=index)) for node_id in (1, 2)}) == 1

            await produce_to_both()
            assert cluster.nodes[1].metadata.image.brokers[1].epoch == epoch
            # Each of the two comes back and catches up, whoever of them decides.
            for node_id in (2, 1):
                await cluster.stop(node_id)
                await cluster.start(node_id)
                await cluster.until(in_sync)
                await cluster.until(lambda: leader_of(cluster) > 0 and leader_of(cluster, index=1) > 0)
                await produce_to_both()

    run(main)


async def produce_until_acknowledged(cluster: Quorum, *records: bytes, topic_id: Uuid) -> int:
    """Produce to whoever leads, as often as it takes; the offset. A record may be there twice."""
    with trio.fail_after(SHORT):
        while True:
            leader = leader_of(cluster)
            if leader in cluster.nodes:
                try:
                    answer = await produce(cluster, leader, *records, topic_id=topic_id)
                except (OSError, EOFError, trio.BrokenResourceError):
                    answer = None
                if answer is not None and answer.error_code == 0:
                    return int(answer.base_offset)
            await trio.sleep(0.02)


def test_nothing_acknowledged_is_lost_with_the_leader(tmp_path: Path) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path) as cluster:
            topic_id = await create(cluster, min_insync_replicas="2")
            old = leader_of(cluster)
            for number in range(10):
                assert (await produce(cluster, old, b"%d" % number, topic_id=topic_id)).error_code == 0
            await cluster.kill(old)
            began = trio.current_time()
            await produce_until_acknowledged(cluster, b"after", topic_id=topic_id)
            print(f"acknowledged again after {trio.current_time() - began:.2f} s")
            new = leader_of(cluster)
            assert new != old
            expected = [b"%d" % number for number in range(10)]
            found = [value for _, value in values(log_of(replica(cluster, new)))]
            assert found[:10] == expected and set(found[10:]) == {b"after"}

            # The ISR shrinks, and grows again once the old leader is back, as a follower.
            await cluster.until(lambda: old not in replica(cluster, new).state.isr)
            await cluster.start(old)
            await cluster.until(lambda: replica(cluster, leader_of(cluster)).state.isr == {1, 2, 3})
            end = replica(cluster, leader_of(cluster)).log.log_end_offset
            await cluster.until(lambda: all(replica(cluster, each).log.log_end_offset == end for each in cluster.nodes))
            assert len({log_of(replica(cluster, node_id)) for node_id in cluster.nodes}) == 1

    run(main)


def test_all_replicas_flush_before_it_is_acknowledged_where_the_topic_wants_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path) as cluster:
            topic_id = await create(cluster, flush_messages="1")
            for number in range(3):
                assert (await produce(cluster, leader_of(cluster), b"x", topic_id=topic_id)).error_code == 0
                assert [replica(cluster, each).log.recovery_point for each in cluster.nodes] == [number + 1] * 3

    run(main)


def test_who_lags_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    """By AlterPartition, both ways; what is acknowledged meanwhile is on the others."""

    async def main() -> None:
        async with three_nodes(tmp_path, replica_lag_time_max_ms="600", replica_fetch_wait_max_ms="100") as cluster:
            topic_id = await create(cluster, min_insync_replicas="2")
            leader = leader_of(cluster)
            lagging = next(node_id for node_id in cluster.nodes if node_id != leader)
            follower = replica(cluster, lagging)
            go_on = stop_following(cluster, lagging, follower)
            answers: list[Any] = []
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    answers.append(await produce(cluster, leader, b"x", topic_id=topic_id))

                nursery.start_soon(ask)
                await cluster.until(lambda: replica(cluster, leader).state.isr == {1, 2, 3} - {lagging})
            assert [answer.error_code for answer in answers] == [0]
            assert replica(cluster, leader).high_watermark == 1
            go_on()
            await cluster.until(lambda: replica(cluster, leader).state.isr == {1, 2, 3})
            assert follower.log.log_end_offset == 1
            # All nodes hear of it, and no epoch of the partition was passed over.
            await cluster.until(
                lambda: {replica(cluster, each).state.isr for each in cluster.nodes} == {frozenset({1, 2, 3})}
            )

    run(main)


def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    """KIP-392: the leader names it, and it serves what it knows to be committed."""

    async def main() -> None:
        racks = {1: "a", 2: "b", 3: "c"}
        selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        async with three_nodes(tmp_path, racks=racks, replica_selector_class=selector) as cluster:
            topic_id = await create(cluster)
            leader = leader_of(cluster)
            follower = next(node_id for node_id in cluster.nodes if node_id != leader)
            assert (await produce(cluster, leader, b"x", topic_id=topic_id)).error_code == 0
            await cluster.until(lambda: replica(cluster, follower).high_watermark == 1)
            asked_leader = await cluster.node(leader).connect()

            async def from_leader(rack: str, version: int = 18) -> Any:
                request = fetch_request(TOPIC if version < 13 else "", topic_id=topic_id, rack_id=rack)
                return (await asked_leader.ask(request, version)).responses[0].partitions[0]

            await cluster.until(lambda: replica(cluster, leader).state.progress[follower].log_end_offset == 1)
            sent_on = await from_leader(racks[follower])
            assert (sent_on.preferred_read_replica, sent_on.high_watermark, len(sent_on.records)) == (follower, 1, 0)
            for answer in (await from_leader(racks[leader]), await from_leader(""), await from_leader("elsewhere")):
                assert answer.preferred_read_replica == -1 and len(values(answer.records)) == 1

            asked_follower = await cluster.node(follower).connect()
            request = fetch_request(TOPIC, topic_id=topic_id, rack_id=racks[follower])
            answer = (await asked_follower.ask(request)).responses[0].partitions[0]
            assert answer.error_code == 0 and values(answer.records) == [(0, b"x")]
            # A client that could not have been sent there is told who leads.
            old = (await asked_follower.ask(fetch_request(TOPIC), 10)).responses[0].partitions[0]
            assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

            # One that waits at the follower is woken when the follower knows of the next record that it is committed.
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    request = fetch_request("", [(0, 1)], topic_id=topic_id, max_wait_ms=10_000)
                    found = (await asked_follower.ask(request)).responses[0].partitions[0]
                    assert values(found.records) == [(1, b"y")]

                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked(0.02)
                assert (await produce(cluster, leader, b"y", topic_id=topic_id)).error_code == 0

    run(main)


def test_who_does_not_lead_says_who_does(tmp_path: Path) -> None:
    """KIP-951, and the errors of ListOffsets and OffsetForLeaderEpoch."""

    async def main() -> None:
        async with three_nodes(tmp_path) as cluster:
            topic_id = await create(cluster)
            leader = leader_of(cluster)
            follower = next(node_id for node_id in cluster.nodes if node_id != leader)
            client = await cluster.node(follower).connect()
            response = await client.ask(produce_request("", batch(b"x"), topic_id=topic_id))
            answer = response.responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            epoch = replica(cluster, leader).state.leader_epoch
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (leader, epoch)
            assert [(node.node_id, node.port) for node in response.node_endpoints] == [
                (leader, cluster.nodes[leader].ports["PLAINTEXT"][1])
            ]

            def list_offsets(replica_id: int) -> ListOffsetsRequest:
                wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
                return ListOffsetsRequest(
                    replica_id=replica_id, topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
                )

            found = (await client.ask(list_offsets(-1))).topics[0].partitions[0]
            assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            found = (await client.ask(list_offsets(-2))).topics[0].partitions[0]  # a tool that looks at any replica
            assert (found.error_code, found.offset) == (0, 0)
            wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])]
            )
            assert (await client.ask(request)).topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(main)


def test_records_are_deleted_on_all_replicas_before_it_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as cluster:
            await cluster.start(1, 2, 3)
            controller = await cluster.await_leader()
            topic_id = await create(cluster)
            leader = leader_of(cluster)
            for _ in range(5):
                assert (await produce(cluster, leader, b"x", topic_id=topic_id)).error_code == 0
            client = await cluster.node(leader).connect()

            async def delete(offset: int, timeout_ms: int) -> Any:
                topic = DeleteRecordsTopic(
                    name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
                )
                response = await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms))
                return response.topics[0].partitions[0]

            began = trio.current_time()
            answer = await delete(3, 10_000)
            print(f"deleted everywhere after {(trio.current_time() - began) * 1000:.0f} ms")
            assert (answer.error_code, answer.low_watermark) == (0, 3)
            assert all(replica(cluster, node_id).log.log_start_offset == 3 for node_id in cluster.nodes)

            # One that does not fetch any more holds it up, until it is known to be gone.
            other = next(node_id for node_id in cluster.nodes if node_id not in (leader, controller))
            stop_following(cluster, other, replica(cluster, other))
            answer = await delete(4, 50)
            assert (answer.error_code, answer.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cluster.kill, other)
                answer = await delete(5, 10_000)
                assert (answer.error_code, answer.low_watermark) == (0, 5)

    run(main)


def test_offsets_are_not_told_before_they_are_committed(tmp_path: Path) -> None:
    """A group must not go back because its coordinator died."""

    async def main() -> None:
        one_each = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
        async with three_nodes(tmp_path, **one_each) as cluster:
            await create(cluster)
            client = await cluster.node(1).connect()
            with trio.fail_after(SHORT):
                while (await client.ask(FindCoordinatorRequest(key="g"), 3)).error_code:
                    await trio.sleep(0.05)
            offsets = "__consumer_offsets"
            await cluster.topics_everywhere([offsets])
            coordinator = leader_of(cluster, offsets)
            assert len(replica(cluster, coordinator, offsets).state.isr) == 3
            group = await cluster.node(coordinator).connect()

            async def commit(offset: int) -> int:
                wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                request = OffsetCommitRequest(
                    group_id="g",
                    generation_id_or_member_epoch=-1,
                    topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[wanted])],
                )
                return int((await group.ask(request, 8)).topics[0].partitions[0].error_code)

            with trio.fail_after(SHORT):
                while await commit(1):
                    await trio.sleep(0.02)
            followers = [node_id for node_id in cluster.nodes if node_id != coordinator]
            go_on = [stop_following(cluster, each, replica(cluster, each, offsets)) for each in followers]
            found: list[int] = []
            async with trio.open_nursery() as nursery:

                async def fetch() -> None:
                    reader = await cluster.node(coordinator).connect()
                    asked = OffsetFetchRequestGroup(
                        group_id="g", topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
                    )
                    response = await reader.ask(OffsetFetchRequest(groups=[asked]), 9)
                    found.append(response.groups[0].topics[0].partitions[0].committed_offset)

                log = replica(cluster, coordinator, offsets).log
                end = log.log_end_offset
                nursery.start_soon(commit, 2)
                await cluster.until(lambda: log.log_end_offset > end)
                nursery.start_soon(fetch)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert found == []
                for each in go_on:
                    each()
            assert found == [2]

    run(main)


@pytest.mark.parametrize("records", [(b"new",), (b"new",) * 4], ids=["alone", "together"])
def test_a_follower_without_what_the_leader_has_deleted_begins_anew(records: tuple[bytes, ...], tmp_path: Path) -> None:
    """In batches of one record, and of four: then what is left begins in the middle of a batch."""

    async def main() -> None:
        async with quorum(tmp_path) as cluster:
            await cluster.start(1, 2, 3)
            controller = await cluster.await_leader()
            topic_id = await create(cluster, min_insync_replicas="2")
            leader = leader_of(cluster)
            assert (await produce(cluster, leader, b"old", topic_id=topic_id)).error_code == 0
            other = next(node_id for node_id in cluster.nodes if node_id not in (leader, controller))
            await cluster.stop(other)
            await cluster.until(lambda: other not in replica(cluster, leader).state.isr)
            for _ in range(4 // len(records)):
                assert (await produce(cluster, leader, *records, topic_id=topic_id)).error_code == 0
            client = await cluster.node(leader).connect()
            topic = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=3)])
            response = await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=5000))
            assert response.topics[0].partitions[0].low_watermark == 3
            await cluster.start(other)
            await cluster.until(lambda: replica(cluster, other).log.log_end_offset == 5)
            assert replica(cluster, other).log.log_start_offset == 3
            assert [offset for offset, _ in values(log_of(replica(cluster, other)))][-2:] == [3, 4]
            await cluster.until(lambda: other in replica(cluster, leader).state.isr)
            assert (await produce(cluster, leader, b"newer", topic_id=topic_id)).error_code == 0
            await cluster.until(lambda: replica(cluster, other).log.log_end_offset == 6)
            assert log_of(replica(cluster, other)) == log_of(replica(cluster, leader))

    run(main)


def test_a_produce_that_waited_is_told_who_leads_now(tmp_path: Path) -> None:
    """KIP-951, also for what was appended before another became leader."""

    async def main() -> None:
        async with three_nodes(tmp_path) as cluster:
            topic_id = await create(cluster)
            old = leader_of(cluster)
            new, other = (node_id for node_id in cluster.nodes if node_id != old)
            client = await cluster.node(old).connect()
            reordered = ReassignablePartition(partition_index=0, replicas=[new, other, old])
            response = await client.ask(
                AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[reordered])])
            )
            assert response.responses[0].partitions[0].error_code == 0
            for node_id in (new, other):
                stop_following(cluster, node_id, replica(cluster, node_id))
            writer = await cluster.node(old).connect()
            told: list[Any] = []
            async with trio.open_nursery() as nursery:

                async def write() -> None:
                    request = produce_request("", batch(b"x"), topic_id=topic_id, acks=-1, timeout_ms=30_000)
                    told.append(await writer.ask(request))

                nursery.start_soon(write)
                await cluster.until(lambda: replica(cluster, old).log.log_end_offset == 1)
                assert not told
                wanted = ElectLeadersTopicPartitions(topic=TOPIC, partitions=[0])
                response = await client.ask(ElectLeadersRequest(election_type=0, topic_partitions=[wanted]))
                assert response.replica_election_results[0].partition_result[0].error_code == 0
            answer = told[0].responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await cluster.until(lambda: replica(cluster, new).state.leader == new)  # it may hear later
            epoch = replica(cluster, new).state.leader_epoch
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (new, epoch)
            port = cluster.nodes[new].ports["PLAINTEXT"][1]
            assert [(node.node_id, node.port) for node in told[0].node_endpoints] == [(new, port)]

    run(main)


def test_a_produce_waits_on_where_the_leader_stays(tmp_path: Path) -> None:
    """The end of a reassignment begins a leader epoch and cuts nothing off. Most producers would send again what they
    are told has failed, and have it twice."""

    async def main() -> None:
        async with three_nodes(tmp_path) as cluster:
            topic_id = await create(cluster)
            leader = leader_of(cluster)
            stays, goes = (node_id for node_id in cluster.nodes if node_id != leader)
            for node_id in (stays, goes):
                stop_following(cluster, node_id, replica(cluster, node_id))
            epoch = replica(cluster, leader).state.leader_epoch
            told: list[Any] = []
            writer, client = await cluster.node(leader).connect(), await cluster.node(leader).connect()
            async with trio.open_nursery() as nursery:

                async def write() -> None:
                    request = produce_request("", batch(b"x"), topic_id=topic_id, acks=-1, timeout_ms=30_000)
                    told.append(await writer.ask(request))

                nursery.start_soon(write)
                await cluster.until(lambda: replica(cluster, leader).log.log_end_offset == 1)
                fewer = ReassignablePartition(partition_index=0, replicas=[leader, stays])
                response = await client.ask(
                    AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[fewer])])
                )
                assert response.responses[0].partitions[0].error_code == 0
            answer = told[0].responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert (leader_of(cluster), replica(cluster, leader).state.leader_epoch) == (leader, epoch + 1)
            assert replica(cluster, leader).state.high_watermark == 1

    run(main)


def test_followers_that_delete_records_while_the_rest_of_the_request_is_served_are_waited_for_no_longer(
    tmp_path: Path,
) -> None:
    """Others have a turn between the partitions of a large request, and may be done with the first ones meanwhile."""

    async def main() -> None:
        async with three_nodes(tmp_path, budgets=PATIENT._replace(turn_parts=1)) as cluster:
            topic_id = await create(cluster, partitions=120)
            led = [index for index in range(120) if replica(cluster, 1, index=index).state.is_leader]
            client = await cluster.node(1).connect()
            topic = TopicProduceData(
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=index, records=memoryview(batch(b"x"))) for index in led],
            )
            answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[topic]))
            assert {each.error_code for each in answer.responses[0].partition_responses} == {0}
            wanted = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in led]
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=TOPIC, partitions=wanted)], timeout_ms=3_600_000
            )
            response = await client.ask(request)
            told = [(each.error_code, each.low_watermark) for each in response.topics[0].partitions]
            assert told == [(0, 1)] * len(led)

    run(main)


def test_a_broker_that_registers_anew_comes_back_into_the_isr_of_idle_partitions(tmp_path: Path) -> None:
    """Its fetches name another broker epoch, though nothing else in them changes (KIP-903)."""

    async def main() -> None:
        async with three_nodes(tmp_path) as cluster:
            await create(cluster)
            leader = leader_of(cluster)
            other = next(node_id for node_id in cluster.nodes if node_id != leader)
            await cluster.until(lambda: replica(cluster, leader).state.isr == {1, 2, 3})

            def registered() -> int:
                broker = cluster.newest_image().brokers.get(other)
                return -1 if broker is None else broker.epoch

            before = registered()
            client = await cluster.node(leader).connect()
            response = await client.ask(UnregisterBrokerRequest(broker_id=other))
            assert response.error_code == 0
            await cluster.until(lambda: registered() > before)
            await cluster.until(lambda: replica(cluster, leader).state.isr == {1, 2, 3})

    run(main)


def test_a_partition_moves_to_other_nodes_with_all_it_has(tmp_path: Path) -> None:
    """A reassignment: the new replicas follow, come into the ISR, and one of them leads when the old one has gone."""

    async def main() -> None:
        async with quorum(tmp_path) as cluster:
            await cluster.start(1, 2, 3)
            controller = await cluster.await_leader()
            topic_id = await create(cluster, factor=1)
            old = leader_of(cluster)
            for number in range(5):
                assert (await produce(cluster, old, b"%d" % number, topic_id=topic_id)).error_code == 0
            before = log_of(replica(cluster, old))
            others = [node_id for node_id in cluster.nodes if node_id != old]
            client = await cluster.node(controller).connect()
            moved = ReassignablePartition(partition_index=0, replicas=others)
            response = await client.ask(
                AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[moved])])
            )
            assert response.responses[0].partitions[0].error_code == 0
            await cluster.until(
                lambda: all(
                    set(node.metadata.image.topics.partition(TOPIC, 0).replicas) == set(others)  # type: ignore[union-attr]
                    for node in cluster.nodes.values()
                )
            )
            await cluster.until(lambda: (TOPIC, 0) not in cluster.nodes[old].replica_manager.partitions)
            new = leader_of(cluster)
            assert new in others
            await cluster.until(lambda: replica(cluster, new).state.isr == set(others))
            assert log_of(replica(cluster, new)) == before
            answer = await produce(cluster, new, b"more", topic_id=topic_id)
            assert (answer.error_code, answer.base_offset) == (0, 5)

    run(main)


def test_followers_of_what_cannot_be_committed_are_left_in_peace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer in sync than ``min.insync.replicas`` the high watermark stands still: nobody looks every moment
    whether it has moved, and all hear of it once there are enough again."""

    async def main() -> None:
        async with quorum(tmp_path, broker_session_timeout_ms="500") as cluster:
            await cluster.start(1, 2, 3)
            await cluster.await_leader()
            topic_id = await create(cluster, min_insync_replicas="3")
            leader = leader_of(cluster)
            assert (await produce(cluster, leader, b"all", topic_id=topic_id)).error_code == 0
            dead = next(node_id for node_id in cluster.nodes if node_id != leader)
            await cluster.kill(dead)
            await cluster.until(lambda: dead not in replica(cluster, leader_of(cluster)).state.isr)
            leader = leader_of(cluster)
            other = next(node_id for node_id in cluster.nodes if node_id != leader)
            answer = await produce(cluster, leader, b"of the leader and one more", topic_id=topic_id, acks=1)
            assert answer.error_code == 0
            await cluster.until(lambda: replica(cluster, other).log.log_end_offset == 2)
            partition = replica(cluster, leader)
            assert partition.state.under_min_isr and partition.high_watermark == 1
            reads = 0
            read = PartitionLog.read

            def counted(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
                nonlocal reads
                reads += self is partition.log
                return read(self, *args, **kwargs)

            monkeypatch.setattr(PartitionLog, "read", counted)
            await trio.sleep(2)
            assert reads <= 8, "twice a second, as replica.fetch.wait.max.ms has it, and not twenty times"
            await cluster.start(dead)
            await cluster.until(lambda: all(replica(cluster, each).high_watermark == 2 for each in cluster.nodes))

    run(main)
