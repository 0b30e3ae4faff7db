"""DescribeProducers on a running node, before and after a restart."""

from __future__ import annotations

import time
from pathlib import Path

import trio

from kbroker.errors import ErrorCode
from kbroker.wire.messages import described_transactions as dp
from kbroker.wire.messages import log_dirs as alter
from kbroker.wire.messages import topics as ct
from kbroker.wire.messages.transactions import InitProducerIdRequest
from tests.node.node_harness import Client, batch, produce_request
from tests.node.quorum_harness import three_nodes
from tests.patience import SHORT


async def described(client: Client, *topics: tuple[str, list[int]]) -> list[dp.PartitionResponse]:
    request = dp.DescribeProducersRequest(
        topics=[dp.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics]
    )
    answer = await client.ask(request, 0)
    return [partition for topic in answer.topics for partition in topic.partitions]


async def test_a_follower_answers_from_its_own_log(tmp_path: Path) -> None:
    """``kafka-transactions find-hanging --broker-id`` asks a broker about all replicas that it has."""
    async with three_nodes(tmp_path) as cluster:
        client = await cluster.node(1).connect()
        assigned = [ct.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])]
        topic = ct.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=assigned)
        assert (await client.ask(ct.CreateTopicsRequest(topics=[topic], timeout_ms=5000))).topics[0].error_code == 0
        await cluster.topics_everywhere(["t"])
        producer = await client.ask(InitProducerIdRequest(transactional_id=None), 5)
        records = batch(
            b"a", producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, timestamp=int(time.time() * 1000)
        )
        answer = await client.ask(produce_request("t", records, timeout_ms=5000), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        by_leader = (await described(client, ("t", [0])))[0]
        assert [each.producer_id for each in by_leader.active_producers] == [producer.producer_id]

        async def told(node_id: int) -> dp.PartitionResponse:
            return (await described(await cluster.node(node_id).connect(), ("t", [0])))[0]

        assert await told(2) == by_leader
        not_here = await told(3)
        assert (not_here.error_code, not_here.error_message) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        await cluster.stop(2)
        await cluster.start(2)
        await cluster.until(lambda: ("t", 0) in cluster.nodes[2].replica_manager.partitions)
        with trio.fail_after(SHORT):
            while await told(2) != by_leader:
                await trio.sleep(0.01)

        for name, index, error in (
            ("t", 0, ErrorCode.REPLICA_NOT_AVAILABLE),
            ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("nope", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            wanted = alter.AlterReplicaLogDirTopic(name=name, partitions=[index])
            path = cluster.nodes[3].config.log_dirs[0]
            asked = alter.AlterReplicaLogDirsRequest(dirs=[alter.AlterReplicaLogDir(path=path, topics=[wanted])])
            moved = await (await cluster.node(3).connect()).ask(asked, 2)
            assert moved.results[0].partitions[0].error_code == error
