"""Transactional ids that expire, on a node whose machine sleeps: its own time stands still then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from kbroker.wire.messages.described_transactions import ListTransactionsRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, InitProducerIdRequest
from tests.node.coordinator_harness import WEEK_AND_A_DAY_MS, SleepingEnv
from tests.node.node_harness import Client, running_node
from tests.patience import until


async def initialized(client: Client, transactional_id: str) -> Any:
    await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
    begin = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
    while (producer := await client.ask(begin)).error_code:
        await trio.sleep(0.01)
    return producer


async def states(client: Client) -> dict[str, str]:
    while (found := await client.ask(ListTransactionsRequest())).error_code:
        await trio.sleep(0.01)
    return {each.transactional_id: each.transaction_state for each in found.transaction_states}


async def test_what_was_used_after_a_long_sleep_is_neither_forgotten_nor_aborted_with_the_next_start(
    tmp_path: Path,
) -> None:
    env = SleepingEnv(seed=1)
    async with running_node(tmp_path, env) as node:
        await node.create_topic("t", 1)
        client = await node.connect()
        await initialized(client, "idle")
        env.slept_ms = WEEK_AND_A_DAY_MS
        await initialized(client, "used")
        producer = await initialized(client, "open")
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="open",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        (added,) = (await client.ask(add, 3)).results_by_topic_v3_and_below
        assert not added.results_by_partition[0].partition_error_code
    often = {
        "transaction_remove_expired_transaction_cleanup_interval_ms": "50",
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": "50",
    }
    async with running_node(tmp_path, env, **often) as node:
        client = await node.connect()

        async def is_over() -> bool:
            return "idle" not in await states(client)

        await until(is_over)
        assert await states(client) == {"used": "Empty", "open": "Ongoing"}
