"""Coordinators acknowledge what is durable where ``flush.messages`` asks for it, as producers are told of no more."""

from __future__ import annotations

import errno
from pathlib import Path

from kbroker.cores.transactions.transaction import TransactionState
from kbroker.types import TopicPartition
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.transactions import EndTxnRequest
from tests.node.coordinator_harness import commit, ready
from tests.node.node_harness import running_node
from tests.node.test_coordinator_mistakes import with_offset
from tests.node.test_log_dirs import FaultyDisk, env_with
from tests.patience import until


async def test_commits_decisions_and_markers_are_flushed_before_they_are_told_of(tmp_path: Path) -> None:
    async with running_node(tmp_path, log_flush_interval_messages="1") as node:
        groups = await ready(node)
        client = await node.connect()
        offsets = groups.loaded_shard("g").partition.log
        for offset in (11, 12):  # the second goes a shorter way
            assert not (await client.ask(commit(1, offset), 9)).topics[0].partitions[0].error_code
            assert offsets.recovery_point == offsets.log_end_offset
        of_id = await with_offset(client, 13)
        assert offsets.recovery_point == offsets.log_end_offset
        decisions = node.transactions.loaded_shard("id").partition.log
        begun = decisions.log_end_offset
        assert decisions.recovery_point == begun
        assert not (await client.ask(EndTxnRequest(transactional_id="id", committed=True, **of_id), 5)).error_code
        assert decisions.recovery_point > begun
        over = TransactionState.COMPLETE_COMMIT
        await until(lambda: node.transactions.loaded_core("id").describe("id").state is over)
        assert offsets.recovery_point == offsets.log_end_offset
        assert decisions.recovery_point == decisions.log_end_offset


async def test_a_commit_that_a_full_disk_has_no_room_to_flush_is_not_acknowledged(tmp_path: Path) -> None:
    disk = FaultyDisk()
    settings = {"log_flush_interval_messages": "1", "offsets_topic_num_partitions": "1"}
    async with running_node(tmp_path, env_with(disk), **settings) as node:
        await node.create_topic("t", 8)
        client = await node.connect()
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        disk.broken[("write", "__consumer_offsets-0/leader-epoch")] = errno.ENOSPC

        async def is_committed() -> bool:
            return not (await client.ask(commit(0), 9)).topics[0].partitions[0].error_code

        while True:
            was_told = await is_committed()
            log = node.broker.log_manager.log_of(TopicPartition("__consumer_offsets", 0))
            if log is not None and log.log_end_offset:
                break
        assert log.recovery_point < log.log_end_offset
        assert not was_told
        disk.broken = {}
        await until(is_committed)
