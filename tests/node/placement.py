"""Partitions of several nodes in a test: on which nodes they are, and which of these follow nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from kbroker.cores.replication.fetch_params import FetchParams
from kbroker.node.replicas.fetch_reader import FetchReader
from kbroker.node.replicas.partition import Partition
from kbroker.wire.messages import reassignments as moves
from kbroker.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.node.node_harness import Client
from tests.node.quorum_harness import Quorum, three_nodes


async def create(controller: Client, name: str, *replicas: int) -> None:
    """A topic with one partition on those brokers."""
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    answer = await controller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
    assert answer.topics[0].error_code == 0


async def move(controller: Client, name: str, *replicas: int) -> None:
    """Have those brokers replicate a topic's partition."""
    wish = moves.ReassignablePartition(partition_index=0, replicas=list(replicas))
    topics = [moves.ReassignableTopic(name=name, partitions=[wish])]
    answer = await controller.ask(moves.AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=topics))
    assert answer.responses[0].partitions[0].error_code == 0


def _let_lag(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of brokers that follow nobody from now on."""
    fetch = FetchReader.fetch
    lagging: list[int] = []

    async def fetch_if_not_lagging(reader: FetchReader, params: FetchParams, *more: Any) -> Any:
        while params.replica_id in lagging:
            await trio.sleep(0.01)
        return await fetch(reader, params, *more)

    monkeypatch.setattr(FetchReader, "fetch", fetch_if_not_lagging)
    return lagging


class Followed(NamedTuple):
    """A partition that one of three nodes leads and another one follows; the third is the active controller."""

    cluster: Quorum
    controller: Client
    first: int
    second: int
    third: int
    name: str
    lagging: list[int]
    """The ids of brokers that follow nobody from now on."""

    @property
    def partition(self) -> Partition:
        """The leader's replica."""
        return self.cluster.nodes[self.first].replica_manager.partitions[self.name, 0]

    async def let_lag(self, write: Callable[[], Awaitable[object]]) -> None:
        """Have the follower follow no more; ``write`` is called until there is something that it lacks."""
        self.lagging.append(self.second)
        while self.partition.state.high_watermark == self.partition.log.log_end_offset:
            await write()
            await trio.sleep(0.01)


@asynccontextmanager
async def followed(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *others: str, **properties: str
) -> AsyncIterator[Followed]:
    """Three nodes with a topic whose one partition two of them have; the first has the ``others'`` as well."""
    lagging = _let_lag(monkeypatch)
    async with three_nodes(path, replica_fetch_wait_max_ms="50", **properties) as cluster:
        third = cluster.leader()
        assert third is not None
        first, second = (node_id for node_id in cluster.nodes if node_id != third)
        controller = await cluster.controller_client(third)
        for other in others:
            await create(controller, other, first)
        await create(controller, name, first, second)
        await cluster.topics_everywhere([*others, name])
        yield Followed(cluster, controller, first, second, third, name, lagging)
