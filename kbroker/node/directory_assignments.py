"""Tells the controller in which log directory each of this broker's replicas is (KIP-858), when there are several.

Without that a controller that hears of a failed directory does not know which partitions others have to lead. With one
directory there is nothing to tell: it is known from the registration.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from kbroker.node.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
"""A log may get its directory, or another, long after the metadata has told of the partition."""

RETRY_SECONDS = 0.5

MAX_REPLICAS = 2000
"""In one request, as many as Kafka's ``AssignReplicasToDirsRequest`` holds."""


class DirectoryAssignments:
    """``run`` it for as long as the node serves."""

    def __init__(
        self,
        manager: ReplicaManager,
        image: Callable[[], Any],
        broker_epoch: Callable[[], int],
        ask_controller: Callable[[Any], Awaitable[Any]],
    ) -> None:
        self._manager = manager
        self._image = image
        self._broker_epoch = broker_epoch
        self._ask_controller = ask_controller
        self._wanted = trio.Event()

    def on_image(self, delta: Any, image: Any) -> None:
        """Follow the metadata."""
        if delta.changed_topics:
            self._wanted.set()

    async def run(self) -> None:
        """Compare and tell, until cancelled."""
        while True:
            self._wanted = trio.Event()
            request = self._request()
            if request is not None and not await self._tell(request):
                await trio.sleep(RETRY_SECONDS)
                continue
            with trio.move_on_after(CHECK_SECONDS):
                await self._wanted.wait()

    def _request(self) -> AssignReplicasToDirsRequest | None:
        """What the controller does not know, or None."""
        manager, image = self._manager, self._image()
        found: dict[Uuid, dict[Uuid, list[int]]] = {}
        count = 0
        for key, partition in manager.partitions.items():
            log_dir = manager.log_manager.log_dir_of(partition.topic_partition)
            assigned = image.topics.partition(*key)
            if log_dir is None or log_dir.directory_id is None or assigned is None:
                continue
            if assigned.directory(manager.node_id) != log_dir.directory_id:
                topics = found.setdefault(log_dir.directory_id, {})
                topics.setdefault(partition.topic_id, []).append(key[1])
                count += 1
                if count == MAX_REPLICAS:
                    break
        if not found:
            return None
        return AssignReplicasToDirsRequest(
            broker_id=manager.node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryData(
                    id=directory,
                    topics=[
                        TopicData(
                            topic_id=topic_id,
                            partitions=[PartitionData(partition_index=index) for index in sorted(indexes)],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in found.items()
            ],
        )

    async def _tell(self, request: AssignReplicasToDirsRequest) -> bool:
        """Whether the controller has taken it; what it refuses for single replicas is looked at again later."""
        response = await self._ask_controller(request)
        if response is None:
            return False
        if response.error_code:
            logger.info("the controller does not take note of directories: %s", ErrorCode.of(response.error_code).name)
            return False
        errors = {
            partition.error_code
            for directory in response.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        return errors == {0}
