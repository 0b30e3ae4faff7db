"""Large requests to the controller are served in steps, between which everything else has its turns."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import trio
import trio.testing

from kbroker.runtime.turns import StepTurns
from kbroker.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.node.node_harness import Node, running_node
from tests.node.test_forwarded_requests import in_envelope


async def test_steps_are_made_one_by_one(autojump_clock: trio.testing.MockClock) -> None:
    steps: list[float] = []

    async def step(pace: StepTurns) -> None:
        await pace.take()
        steps.append(trio.current_time())

    pace = StepTurns(0.5)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(step, pace)
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
    assert len(gaps) == 4 and all(gap == pytest.approx(0.5) for gap in gaps)


@pytest.mark.parametrize(("topics", "turns"), [(10, 0), (50, 3)])
async def test_a_large_request_takes_three_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: int, turns: int
) -> None:
    taken = 0

    async def take(self: StepTurns) -> None:
        nonlocal taken
        taken += 1

    async with running_node(tmp_path) as node:
        node.allow(long_request_bytes=1000)
        monkeypatch.setattr(StepTurns, "take", take)
        named = [CreatableTopic(name=f"{n:030}", num_partitions=1, replication_factor=1) for n in range(topics)]
        request = CreateTopicsRequest(topics=named, validate_only=True)
        assert len((await (await node.connect()).ask(request)).topics) == topics
        assert taken == turns
        active = await node.connect("CONTROLLER")
        assert len((await in_envelope(active, request, 5)).topics) == topics
        assert taken == 2 * turns


async def test_reassignments_are_judged_in_portions_in_the_order_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(node: Node) -> list[tuple[int, int]]:
        partitions = [ReassignablePartition(partition_index=n, replicas=None) for n in range(300)]
        topics = [ReassignableTopic(name=name, partitions=partitions) for name in ("t", "none")]
        answer = await (await node.connect()).ask(AlterPartitionReassignmentsRequest(topics=topics))
        assert answer.error_code == 0
        assert [topic.name for topic in answer.responses] == ["t", "none"]
        for topic in answer.responses:
            assert [entry.partition_index for entry in topic.partitions] == list(range(300))
        return [(topic.partitions[0].error_code, topic.partitions[299].error_code) for topic in answer.responses]

    async with running_node(tmp_path) as node:
        await node.create_topic("t")
        submitted = 0
        submit = node.broker.metadata.submit

        async def counted(operation: object) -> object:
            nonlocal submitted
            submitted += 1
            return await submit(operation)  # type: ignore[arg-type]

        monkeypatch.setattr(node.broker.metadata, "submit", counted)
        no_move, unknown = 85, 3
        assert await ask(node) == [(no_move, unknown), (unknown, unknown)]
        assert submitted == 5
