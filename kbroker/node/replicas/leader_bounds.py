"""The bounds of logs at their leader, which a follower asks for whose end lies outside (ListOffsets)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial

from kbroker.node.replicas.leader_session import Followed, Key
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_LATEST, _EARLIEST = -1, -2

Ask = Callable[[type[ListOffsetsRequest], Callable[[int], ListOffsetsRequest]], Awaitable[ListOffsetsResponse | None]]
"""Asks the leader; None if it does not answer."""


async def leader_bounds(ask: Ask, node_id: int, asked: Collection[Followed]) -> dict[Key, tuple[int, int]] | None:
    """The first offset and the end of each log, of those that the leader tells; None if it does not answer."""
    bounds: list[dict[Key, int]] = []
    for timestamp in (_EARLIEST, _LATEST):
        response = await ask(ListOffsetsRequest, partial(_request, node_id, asked, timestamp))
        if response is None:
            return None
        bounds.append(
            {
                (topic.name, answer.partition_index): answer.offset
                for topic in response.topics
                for answer in topic.partitions
                if not answer.error_code
            }
        )
    earliest, latest = bounds
    return {key: (earliest[key], latest[key]) for key in earliest if key in latest}


def _request(node_id: int, asked: Collection[Followed], timestamp: int, version: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for followed in asked:
        name, index = followed.key
        topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[])).partitions.append(
            ListOffsetsPartition(partition_index=index, current_leader_epoch=followed.leader_epoch, timestamp=timestamp)
        )
    return ListOffsetsRequest(replica_id=node_id, topics=list(topics.values()))
