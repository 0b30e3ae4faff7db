"""The parts of a node that replicate with other brokers: fetchers, proposals of ISR changes, reports of
the replicas' log directories.

Made once there are others, so that a node that is alone does not import them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from kbroker.value_types import dataclass

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.node.controller.broker_lifecycle import BrokerLifecycle
    from kbroker.node.controller.metadata_plane import MetadataPlane
    from kbroker.node.peers.peer_pool import PoolFor
    from kbroker.node.replicas.directory_assignments import DirectoryAssignments
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage
    from kbroker.runtime.env import Network


@dataclass(slots=True)
class Replication:
    """Begins as soon as the node is not alone; the tasks live with ``replicas``."""

    config: BrokerConfig
    network: Network
    """Reaches other brokers."""
    replicas: ReplicaManager
    metadata: MetadataPlane
    lifecycle: BrokerLifecycle
    address: Callable[[int], tuple[str, int] | None]
    """Where a broker is, None if that is not known."""
    pool_for: PoolFor
    _assignments: DirectoryAssignments | None = None

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow from this image on, which may name partitions of others."""
        if self._assignments is None and not self.lifecycle.is_alone:
            self._assignments = self._begin()

    async def until_losses_are_told(self, nursery: trio.Nursery) -> None:
        """Stay fenced until the controller knows of replicas that cannot lead: this broker could be elected before."""
        if self._assignments is not None and self._assignments.has_losses:
            await self.lifecycle.stay_fenced(self._assignments.report())

    def _begin(self) -> DirectoryAssignments:
        from kbroker.node.replicas.alter_partition_manager import AlterPartitionManager
        from kbroker.node.replicas.directory_assignments import DirectoryAssignments
        from kbroker.node.replicas.replica_fetchers import ReplicaFetchers

        replicas, metadata = self.replicas, self.metadata

        def broker_epoch() -> int:
            return self.lifecycle.broker_epoch

        fetchers = ReplicaFetchers(
            env=replicas.env,
            network=self.network,
            config=self.config,
            table=replicas,
            progress=replicas.progress,
            log_dirs=replicas.log_dirs,
            checkpoints=replicas.checkpoints,
            throttles=replicas.throttles,
            broker_epoch=broker_epoch,
            address=self.address,
            start_soon=replicas.start_soon,
        )
        alter_partition = AlterPartitionManager(
            table=replicas,
            progress=replicas.progress,
            isr=replicas.isr,
            broker_epoch=broker_epoch,
            ask_controller=metadata.client.ask,
        )
        assignments = DirectoryAssignments(replicas, lambda: metadata.image, broker_epoch, metadata.client.ask)
        replicas.metadata.fetchers = fetchers
        if self.config.log_hand_over_enable:
            from kbroker.node.replicas.hand_overs import HandOvers, give

            replicas.give = partial(give, replicas)
            hand_overs = HandOvers(replicas, fetchers, self.pool_for("hand-over"), self.address)
            replicas.metadata.is_handed_over = hand_overs.take
        for part in (fetchers, alter_partition, assignments):
            replicas.start_soon(part.run)
        metadata.subscribe(assignments.on_image)
        return assignments
