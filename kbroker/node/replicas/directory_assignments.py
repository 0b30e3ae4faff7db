"""Reports the log directory of each of this broker's replicas to the controller (KIP-858).

The controller needs this to know the partitions of a failed directory. The replicas of a broker with one directory are
taken to be there; such a broker reports those that it cannot use, and those that it can use again. A replica whose log
is damaged is reported as lost until the controller has taken it out of those that may lead.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.image import DIR_LOST
from kbroker.raft_metadata.metadata_version import DIRECTORIES
from kbroker.types import Uuid
from kbroker.wire.messages.log_dirs import AssignReplicasToDirsRequest, DirectoryData, PartitionData, TopicData

if TYPE_CHECKING:
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage

logger = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
"""Interval of checks, where there are several directories: a log may get or change its directory long after the image
has its partition."""

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
        log_manager = manager.log_manager
        log_manager.on_offline.append(self.report_soon)
        self._interval = CHECK_SECONDS if len(log_manager.log_dirs) > 1 else inf
        self._manager = manager
        self._image = image
        self._broker_epoch = broker_epoch
        self._ask_controller = ask_controller
        self._wanted = trio.Event()
        self._told = trio.Event()

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the metadata."""
        turn = self._manager.env.budgets.turn_isrs
        if self._manager.behind or sum(map(len, delta.changed_partitions.values())) > turn:
            self._wanted.set()  # which is looked at once they are in step
            return
        known = self._manager.partitions
        found = (known.get((topic.name, index)) for topic, index, _ in delta.partitions_in(image))
        changed = (partition for partition in found if partition is not None)
        if delta.features_changed or any(True for _ in self._differing(image, changed)):
            self._wanted.set()

    @property
    def has_losses(self) -> bool:
        """Whether the controller takes a replica for usable, or complete, that is not."""
        replicas = self._differing(self._image(), self._manager.partitions.values())
        return any(directory == DIR_LOST for _, directory in replicas)

    def report(self) -> trio.Event:
        """Have the replicas looked at now; returns the event of the controller having taken what there is to tell."""
        self._told = trio.Event()
        self._wanted.set()
        return self._told

    def report_soon(self) -> None:
        """Have the replicas looked at now: one cannot be used any more, or again."""
        self._wanted.set()

    async def run(self) -> None:
        """Compare and report, until cancelled."""
        while True:
            self._wanted, told = trio.Event(), self._told
            await self._manager.metadata.until_in_step()
            request = await self._request()
            if request is not None and not await self._report(request):
                await trio.sleep(RETRY_SECONDS)
                continue
            told.set()
            with trio.move_on_after(self._interval):
                await self._wanted.wait()

    async def _request(self) -> AssignReplicasToDirsRequest | None:
        """The replicas of which the controller knows another directory, or none; None if there are none, or the level
        of ``metadata.version`` has no place for them."""
        manager = self._manager
        if self._image().features.metadata_version < DIRECTORIES:
            return None
        differing: list[tuple[Partition, Uuid]] = []
        replicas = iter([*manager.partitions.values()])
        while some := list(islice(replicas, manager.env.budgets.turn_isrs)):
            differing += self._differing(self._image(), some)
            if len(some) == manager.env.budgets.turn_isrs:
                await trio.lowlevel.checkpoint()
        found: dict[Uuid, dict[Uuid, list[PartitionData]]] = {}
        for partition, directory in differing[:MAX_REPLICAS]:
            topics = found.setdefault(directory, {})
            entry = PartitionData(
                partition_index=partition.topic_partition.partition,
                is_damaged=directory == DIR_LOST and partition.is_damaged,
            )
            topics.setdefault(partition.topic_id, []).append(entry)
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
                            topic_id=topic_id, partitions=sorted(entries, key=lambda entry: entry.partition_index)
                        )
                        for topic_id, entries in topics.items()
                    ],
                )
                for directory, topics in found.items()
            ],
        )

    def _differing(self, image: MetadataImage, partitions: Iterable[Partition]) -> Iterator[tuple[Partition, Uuid]]:
        """Those of the replicas here that are in another directory than the controller knows, or of which it has to
        hear once more, each with that directory."""
        manager = self._manager
        for partition in partitions:
            if manager.partitions.get(partition.topic_partition) is not partition:
                continue  # gone since the caller has listed it
            topic = image.topics.by_id.get(partition.topic_id)
            assigned = None if topic is None else topic.partitions.get(partition.topic_partition.partition)
            if assigned is None:
                continue
            directory = manager.log_dirs.directory_of(partition, assigned)
            if directory is not None and (
                assigned.directory(manager.node_id) != directory or partition.awaits_election(assigned)
            ):
                yield partition, directory

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
