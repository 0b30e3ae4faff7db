"""The parts of a node that replicate with other brokers: fetchers, proposals of ISR changes, reports of
the replicas' log directories.

Made once there are others, so that a node that is alone does not import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.node.replicas.alter_partition_manager import AlterPartitionManager
from kbroker.node.replicas.directory_assignments import DirectoryAssignments
from kbroker.node.replicas.replica_fetchers import ReplicaFetchers

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.node.controller.metadata_plane import MetadataPlane
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.runtime.env import Network


class Replication:
    """Both directions. ``start`` it before the image that names partitions of others."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        network: Network,
        replicas: ReplicaManager,
        metadata: MetadataPlane,
        broker_epoch: Callable[[], int],
        address: Callable[[int], tuple[str, int] | None],
    ) -> None:
        """``address`` gives where a broker is, None if that is not known; ``network`` reaches it."""
        self._replicas = replicas
        self._metadata = metadata
        self.fetchers = ReplicaFetchers(
            env=replicas.env,
            network=network,
            config=config,
            table=replicas,
            progress=replicas.progress,
            log_dirs=replicas.log_dirs,
            checkpoints=replicas.checkpoints,
            throttles=replicas.throttles,
            broker_epoch=broker_epoch,
            address=address,
        )
        self.alter_partition = AlterPartitionManager(
            table=replicas,
            progress=replicas.progress,
            isr=replicas.isr,
            broker_epoch=broker_epoch,
            ask_controller=metadata.client.ask,
        )
        self.assignments = DirectoryAssignments(replicas, lambda: metadata.image, broker_epoch, metadata.client.ask)

    def start(self, start_soon: Callable[..., object]) -> None:
        """Follow from the next image on. ``start_soon`` starts a task that lives with the node."""
        self._replicas.metadata.fetchers = self.fetchers
        start_soon(self.fetchers.run)
        start_soon(self.alter_partition.run)
        start_soon(self.assignments.run)
        self._metadata.subscribe(self.assignments.on_image)
