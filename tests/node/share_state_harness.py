"""Requests to a share coordinator, for tests of share groups on a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio

from kbroker.cores.share_state import SharePartitionKey, StateBatch
from kbroker.types import Uuid
from kbroker.wire.messages import share_group_state as wire
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.node.node_harness import Client
from tests.patience import SHORT

GROUP = "workers"


def initialize(topic_id: Uuid, *parts: tuple[int, int, int], group: str = GROUP) -> Any:
    """``parts``: partition, state epoch and start offset."""
    data = [
        wire.InitializePartitionData(partition=index, state_epoch=epoch, start_offset=start)
        for index, epoch, start in parts
    ]
    return wire.InitializeShareGroupStateRequest(
        group_id=group, topics=[wire.InitializeStateData(topic_id=Uuid(topic_id), partitions=data)]
    )


def write(
    topic_id: Uuid,
    partition: int,
    batches: Sequence[StateBatch] = (),
    *,
    start: int = 0,
    epoch: int = 1,
    leader_epoch: int = 0,
    done: int = -1,
    group: str = GROUP,
) -> Any:
    """A write of one share partition."""
    data = wire.WritePartitionData(
        partition=partition,
        state_epoch=epoch,
        leader_epoch=leader_epoch,
        start_offset=start,
        delivery_complete_count=done,
        state_batches=[
            wire.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ],
    )
    return wire.WriteShareGroupStateRequest(
        group_id=group, topics=[wire.WriteStateData(topic_id=Uuid(topic_id), partitions=[data])]
    )


def read(topic_id: Uuid, *parts: tuple[int, int], group: str = GROUP) -> Any:
    """``parts``: partition and leader epoch."""
    data = [wire.PartitionData(partition=index, leader_epoch=epoch) for index, epoch in parts]
    return wire.ReadShareGroupStateRequest(
        group_id=group, topics=[wire.ReadStateData(topic_id=Uuid(topic_id), partitions=data)]
    )


def summary(topic_id: Uuid, *partitions: int, group: str = GROUP) -> Any:
    data = [wire.PartitionData(partition=index, leader_epoch=0) for index in partitions]
    return wire.ReadShareGroupStateSummaryRequest(
        group_id=group, topics=[wire.ReadStateSummaryData(topic_id=Uuid(topic_id), partitions=data)]
    )


def delete(topic_id: Uuid, *partitions: int, group: str = GROUP) -> Any:
    data = [wire.DeletePartitionData(partition=index) for index in partitions]
    return wire.DeleteShareGroupStateRequest(
        group_id=group, topics=[wire.DeleteStateData(topic_id=Uuid(topic_id), partitions=data)]
    )


async def find(client: Client, topic_id: Uuid, partition: int = 0, group: str = GROUP) -> int:
    """The node that keeps the state of a share partition, once there is one."""
    key = str(SharePartitionKey(group, Uuid(topic_id), partition))
    with trio.fail_after(SHORT):
        while True:
            found = await client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
            if not found.coordinators[0].error_code:
                return int(found.coordinators[0].node_id)
            await trio.sleep(0.02)


async def until_loaded(client: Client, topic_id: Uuid, *partitions: int) -> None:
    """Wait until a node keeps the states of these share partitions."""
    with trio.fail_after(SHORT):
        while any(each.error_code for each in errors(await client.ask(summary(topic_id, *partitions)))):
            await trio.sleep(0.02)


def errors(response: Any) -> list[Any]:
    """The results of the first topic."""
    return list(response.results[0].partitions)
