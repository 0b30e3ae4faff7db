"""DescribeProducers on a running node, before and after a restart."""

from __future__ import annotations

import time
from pathlib import Path

from node_harness import Client, batch, produce_request, run, running_node

from kbroker.errors import ErrorCode
from kbroker.wire.messages import describe_producers as dp
from kbroker.wire.messages.init_producer_id import InitProducerIdRequest


async def described(client: Client, *topics: tuple[str, list[int]]) -> list[dp.PartitionResponse]:
    request = dp.DescribeProducersRequest(
        topics=[dp.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics]
    )
    answer = await client.ask(request, 0)
    return [partition for topic in answer.topics for partition in topic.partitions]


def test_producers_are_described_with_their_last_batch(tmp_path: Path) -> None:
    async def test() -> None:
        now = int(time.time() * 1000)
        async with running_node(tmp_path) as node:
            await node.create_topic("t")
            client = await node.connect()
            assert [(p.error_code, p.active_producers) for p in await described(client, ("t", [0]))] == [(0, [])]
            producer = await client.ask(InitProducerIdRequest(transactional_id=None), 5)
            known = {"producer_id": producer.producer_id, "producer_epoch": 0, "timestamp": now}
            for sequence in (0, 2):
                records = batch(b"a", b"b", base_sequence=sequence, **known)
                answer = await client.ask(produce_request("t", records), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
            expected = dp.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=0,
                last_sequence=3,
                last_timestamp=now + 1,
                coordinator_epoch=-1,
                current_txn_start_offset=-1,
            )
            assert (await described(client, ("t", [0])))[0].active_producers == [expected]
        async with running_node(tmp_path) as node:
            client = await node.connect()
            assert (await described(client, ("t", [0])))[0].active_producers == [expected]

    run(test)


def test_what_is_not_there_or_not_a_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t")
            client = await node.connect()
            found = await described(client, ("t", [7]), ("nope", [0]), ("a b", [0]), ("t", []))
            assert [(p.partition_index, p.error_code, p.error_message) for p in found] == [
                (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
                (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
                (
                    0,
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', "
                    "'_' and '-'",
                ),
            ]

    run(test)
