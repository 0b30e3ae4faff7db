"""Who waits for replication looks first: what has come to pass before is not told again."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

from node_harness import batch, run, running_node
from node_harness import produce_request as produce

from kbroker.errors import ErrorCode
from kbroker.node.replica_manager import ReplicaManager
from kbroker.replication.delayed import DelayedProduce
from kbroker.types import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def watch(manager: ReplicaManager, required: dict[Hashable, int]) -> list[dict[Hashable, Any]]:
    """What is told, once it is."""
    told: list[dict[Hashable, Any]] = []
    manager.watch_produce(DelayedProduce(required, told.append), 60_000)
    return told


def test_who_waits_is_answered_by_what_is_so_already(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", partitions=2)
            client = await node.connect()
            await client.ask(produce("t", batch(b"1", b"2", b"3")), 12)
            manager = node.broker.replica_manager
            assert watch(manager, {FIRST: 3}) == [{FIRST: None}]
            assert watch(manager, {FIRST: 3, TopicPartition("none", 0): 1}) == [
                {FIRST: None, TopicPartition("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            ]
            assert manager.purgatory.produce_watch_count == 0 and not len(manager.purgatory.expirations)

            told = watch(manager, {FIRST: 4, SECOND: 0})
            assert told == [] and manager.purgatory.produce_watch_count > 0
            await client.ask(produce("t", batch(b"4")), 12)
            assert told == [{FIRST: None, SECOND: None}]
            assert manager.purgatory.produce_watch_count == 0 and not len(manager.purgatory.expirations)

            state = manager.partitions[FIRST].state
            state.leader = 7
            assert watch(manager, {FIRST: 1}) == [{FIRST: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
            state.leader = manager.node_id
            manager.partitions[SECOND].offline = True
            assert watch(manager, {SECOND: 0}) == [{SECOND: ErrorCode.KAFKA_STORAGE_ERROR}]
            del manager.partitions[SECOND]
            assert watch(manager, {SECOND: 0}) == [{SECOND: ErrorCode.NOT_LEADER_OR_FOLLOWER}], "it exists, elsewhere"

    run(main)
