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


def replicate(
    *,
    config: BrokerConfig,
    network: Network,
    replicas: ReplicaManager,
    metadata: MetadataPlane,
    broker_epoch: Callable[[], int],
    address: Callable[[int], tuple[str, int] | None],
) -> DirectoryAssignments:
    """Follow from the next image on, which may name partitions of others; the tasks live with ``replicas``.

    Returns the part that tells the controller of replicas that cannot lead.
    ``address`` gives where a broker is, None if that is not known; ``network`` reaches it.
    """
    fetchers = ReplicaFetchers(
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
    alter_partition = AlterPartitionManager(
        table=replicas,
        progress=replicas.progress,
        isr=replicas.isr,
        broker_epoch=broker_epoch,
        ask_controller=metadata.client.ask,
    )
    assignments = DirectoryAssignments(replicas, lambda: metadata.image, broker_epoch, metadata.client.ask)
    replicas.metadata.fetchers = fetchers
    for part in (fetchers, alter_partition, assignments):
        replicas.start_soon(part.run)
    metadata.subscribe(assignments.on_image)
    return assignments
