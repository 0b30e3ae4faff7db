"""The parts of a node that replicate with other brokers: fetchers of partitions led elsewhere, and the ISR of its own.

Made once there are others, so that a node that is alone does not import it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kbroker.node.alter_partition_manager import AlterPartitionManager
from kbroker.node.replica_fetchers import ReplicaFetchers

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.env import Network
    from kbroker.node.replica_manager import ReplicaManager


class Replication:
    """The two directions. ``start`` it before the image that names partitions of others."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        network: Network,
        replicas: ReplicaManager,
        broker_epoch: Callable[[], int],
        address: Callable[[int], tuple[str, int] | None],
        ask_controller: Callable[[Any], Awaitable[Any]],
    ) -> None:
        """``address`` gives where a broker is, None if that is not known; ``network`` reaches it."""
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
            ask_controller=ask_controller,
        )
        self._metadata = replicas.metadata

    def start(self, start_soon: Callable[..., object]) -> None:
        """Follow from the next image on. ``start_soon`` starts a task that lives with the node."""
        self._metadata.fetchers = self.fetchers
        start_soon(self.fetchers.run)
        start_soon(self.alter_partition.run)
