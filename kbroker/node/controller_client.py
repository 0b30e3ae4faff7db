"""What a broker asks of the active controller on its own account, when that is another node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.producer_ids import ProducerIdBlock
from kbroker.raft_metadata.controller.topics import NewTopic
from kbroker.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kbroker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

if TYPE_CHECKING:
    from kbroker.node.raft_driver import RaftDriver

TIMEOUT_MS = 5000
"""How long a topic may take to be created, and then to be seen here."""


async def create_topics(driver: RaftDriver, topics: Sequence[NewTopic]) -> Mapping[str, ApiError | None]:
    """Create topics; by name what is wrong, None if nothing. They are in this node's image then.

    ``ApiError`` NOT_CONTROLLER if the active controller cannot be reached.
    """
    request = CreateTopicsRequest(
        timeout_ms=TIMEOUT_MS,
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                    for index, brokers in topic.assignments
                ],
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
            )
            for topic in topics
        ],
    )
    response = await driver.forward(request, None)
    if response is None:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "The active controller cannot be reached.")
    outcomes: dict[str, ApiError | None] = {
        result.name: ApiError(ErrorCode.of(result.error_code), result.error_message or "")
        if result.error_code
        else None
        for result in response.topics
    }
    created = {name for name, error in outcomes.items() if error is None}
    with trio.move_on_after(TIMEOUT_MS / 1000):
        await driver.wait_for_image(lambda image: created <= image.topics.by_name.keys())
    return outcomes


async def allocate_producer_ids(driver: RaftDriver, broker_epoch: int) -> ProducerIdBlock:
    """A block of producer ids. ``ApiError`` if the controller grants none, or cannot be reached."""
    request = AllocateProducerIdsRequest(broker_id=driver.node_id, broker_epoch=broker_epoch)
    response = await driver.forward(request, None)
    if response is None:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "The active controller cannot be reached.")
    if response.error_code:
        raise ApiError(ErrorCode.of(response.error_code), "The controller grants no producer ids.")
    return ProducerIdBlock(response.producer_id_start, response.producer_id_len)
