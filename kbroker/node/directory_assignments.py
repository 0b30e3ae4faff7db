"""Reports the log directory of each of this broker's replicas to the controller (KIP-858), if it has several.

The controller needs this to know the partitions of a failed directory. A broker with one directory has nothing to
report: its registration names that directory.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.metadata_version import DIRECTORIES
from kbroker.types import Uuid
from kbroker.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from kbroker.node.replica_manager import ReplicaManager
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage

logger = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
"""Interval of checks: a log may get or change its directory long after the image has its partition."""

RETRY_SECONDS = 0.5

MAX_REPLICAS = 2000
"""In one request, as many as Kafka's ``AssignReplicasToDirsRequest`` holds."""


class DirectoryAssignments:
    """Compares the metadata with the logs, and reports differences. ``run`` it for as long as the node serves."""

    def __init__(
        self,
        manager: ReplicaManager,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        ask_controller: Callable[[Any], Awaitable[Any]],
    ) -> None:
        self._manager = manager
        self._image = image
        self._broker_epoch = broker_epoch
        self._ask_controller = ask_controller
        self._wanted = trio.Event()

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the metadata."""
        if delta.changed_topics or delta.features_changed:
            self._wanted.set()

    async def run(self) -> None:
        """Compare and report, until cancelled."""
        while True:
            self._wanted = trio.Event()
            request = self._request()
            if request is not None and not await self._report(request):
                await trio.sleep(RETRY_SECONDS)
                continue
            with trio.move_on_after(CHECK_SECONDS):
                await self._wanted.wait()

    def _request(self) -> AssignReplicasToDirsRequest | None:
        """The replicas of which the controller knows another directory, or none; None if there are none, or the level
        of ``metadata.version`` has no place for them."""
        manager, image = self._manager, self._image()
        if image.features.metadata_version < DIRECTORIES:
            return None
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

    async def _report(self, request: AssignReplicasToDirsRequest) -> bool:
        """Send the report; whether the controller has taken all of it."""
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
