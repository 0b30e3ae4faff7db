"""Producer ids at hand, and what a client hears when there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.coordinators.producer_ids import ProducerIdAllocator
from kbroker.raft_metadata.controller.brokers import unregister_broker
from kbroker.raft_metadata.controller.producer_ids import ProducerIdBlock
from tests.node.quorum_harness import three_nodes


@pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH])
async def test_a_client_is_to_try_again_while_the_controller_grants_none(error: ErrorCode) -> None:
    answers: list[ApiError | ProducerIdBlock] = [ApiError(error), ProducerIdBlock(7000, 2)]

    async def allocate() -> ProducerIdBlock:
        answer = answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    ids = ProducerIdAllocator(allocate)
    with pytest.raises(ApiError) as refused:
        await ids.next_id()
    assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [await ids.next_id(), ids.take()] == [7000, 7001]


async def test_a_broker_that_had_to_register_anew_is_granted_ids(tmp_path: Path) -> None:
    """Somebody has unregistered it while it ran: its epoch is another since."""
    async with three_nodes(tmp_path) as cluster:
        leader = await cluster.await_leader()
        forgotten = next(node_id for node_id in cluster.nodes if node_id != leader)
        broker, lifecycle = cluster.nodes[forgotten], cluster.nodes[forgotten].lifecycle
        before = lifecycle.broker_epoch
        await cluster.nodes[leader].metadata.submit(lambda view: unregister_broker(view, forgotten))
        await cluster.until(lambda: lifecycle.broker_epoch > before)
        assert await broker.services.producer_ids.next_id() >= 0
