"""Partitions of several nodes in a test: on which nodes they are, and which of these follow nobody."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kbroker.cores.replication.fetch_params import FetchParams
from kbroker.node.replicas.fetch_reader import FetchReader
from kbroker.wire.messages import reassignments as moves
from kbroker.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.node.node_harness import Client


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


def let_lag(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of brokers that follow nobody from now on."""
    fetch = FetchReader.fetch
    lagging: list[int] = []

    async def fetch_if_not_lagging(reader: FetchReader, params: FetchParams, *more: Any) -> Any:
        while params.replica_id in lagging:
            await trio.sleep(0.01)
        return await fetch(reader, params, *more)

    monkeypatch.setattr(FetchReader, "fetch", fetch_if_not_lagging)
    return lagging
