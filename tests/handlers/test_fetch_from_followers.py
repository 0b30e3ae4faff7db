"""Consumers that read from a replica that does not lead (KIP-392)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.log.damage import Damage
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.node.node_harness import batch, produce_request, run, running_node


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_follower_with_a_hole_serves_no_consumer(tmp_path: Path, is_damaged: bool) -> None:
    """A damaged replica that does not lead serves no consumer, who would pass what the leader may have."""

    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t")
            client = await node.connect()
            await client.ask(produce_request("t", batch(b"value"), topic_id=topic_id))
            partition = node.broker.replica_manager.get_partition("t", 0)
            if is_damaged:
                lacking: Any = SimpleNamespace(damage=(Damage(0, 1, "00000000000000000000.log", 0, 0, "a test", 0),))
                partition.log.take_over_damage(lacking)
            wanted = FetchTopic(
                topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)]
            )
            request = FetchRequest(max_bytes=1 << 20, topics=[wanted])
            answer = await client.ask(request)
            assert answer.responses[0].partitions[0].error_code == 0, "it leads"
            state = partition.state
            state.become_follower(
                leader=7,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch + 1,
                replicas=[7],
                isr=[7],
            )
            answer = await client.ask(request)
            expected = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_damaged else 0
            assert answer.responses[0].partitions[0].error_code == expected

    run(test)
