"""A node is registered with the active controller as what it is: a controller, a broker, or both.

What is said comes from the node's listeners and log directories; ``node.controller.broker_lifecycle`` asks, and
insists.
"""

from __future__ import annotations

import trio

from kbroker.config import BrokerConfig
from kbroker.log.manager import LogManager
from kbroker.node.controller.broker_lifecycle import BrokerLifecycle
from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.node.listeners import Listeners
from kbroker.raft_metadata.image import MetadataImage
from kbroker.raft_metadata.metadata_version import DIRECTORIES


class Registrations:
    """The registrations of a node: at its start, and once ``metadata.version`` lets the log hold more."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataPlane,
        lifecycle: BrokerLifecycle,
        listeners: Listeners,
        log_manager: LogManager,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._lifecycle = lifecycle
        self._listeners = listeners
        self._log_manager = log_manager

    async def start(self, nursery: trio.Nursery) -> None:
        """Register this node as far as the level of ``metadata.version`` allows; the rest follows when it is raised."""
        level = self._metadata.image.features.metadata_version  # what is registered is of this level at least
        self.check_log_dirs()
        await self._register()
        if level < DIRECTORIES:
            self._refresh(nursery)

    def check_log_dirs(self) -> None:
        """Take log directories offline that hold logs of topics unknown to the metadata before this node registers.

        A quorum that has lost its log, or another with the same cluster id, has not deleted the topics that it does not
        know. ``FatalError`` if no directory is left.
        """
        image = self._metadata.image
        own = image.brokers.get(self._config.node_id)
        if self._config.is_broker and (own is None or own.log_dirs):  # or the level is one that has no directories
            self._log_manager.refuse_other_histories(() if own is None else own.log_dirs, image.topics.by_id)

    async def _register(self) -> None:
        """Register as a controller and as a broker, where the node is that."""
        config, metadata = self._config, self._metadata
        if config.is_controller and metadata.knows_controllers:
            await self._register_controller()
        if config.is_broker:
            epoch = await self._register_broker(previous_epoch(self._log_manager))
            # Only then may it act on its metadata: those of its last life may call it the leader of what it has lost.
            await metadata.wait_for_image(lambda image: image.offset >= epoch)

    async def _register_controller(self) -> None:
        endpoints = self._listeners.endpoints(self._config.advertised_controller_listeners)
        await self._lifecycle.register_controller(endpoints)

    async def _register_broker(self, previous_broker_epoch: int) -> int:
        directory_ids = (log_dir.directory_id for log_dir in self._log_manager.log_dirs)
        return await self._lifecycle.register_broker(
            self._listeners.endpoints(self._config.advertised_listeners),
            [directory_id for directory_id in directory_ids if directory_id is not None],
            self._config.broker_rack,
            previous_broker_epoch=previous_broker_epoch,
        )

    def _refresh(self, nursery: trio.Nursery) -> None:
        from kbroker.node.controller.registration_refresh import RegistrationRefresh

        refresh = RegistrationRefresh(
            self._metadata,
            register_controller=self._register_controller,
            register_broker=lambda: self._register_broker(self._lifecycle.broker_epoch),
        )
        self._metadata.subscribe(refresh.on_image)
        nursery.start_soon(refresh.run)

    async def unfence(self, nursery: trio.Nursery) -> None:
        """Wait until this broker is unfenced and its image shows that, before any client is served.

        Clients that know its address connect at once, and would get NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR for
        partitions that other brokers say it leads. (Kafka's ``BrokerServer`` waits, too; librdkafka never retries
        OffsetFetch after such an error.)
        """
        await nursery.start(self._lifecycle.run)

        def is_unfenced(image: MetadataImage) -> bool:
            own = image.brokers.get(self._config.node_id)
            return own is not None and own.epoch == self._lifecycle.broker_epoch and not own.fenced

        await self._metadata.wait_for_image(is_unfenced)


def previous_epoch(log_manager: LogManager) -> int:
    """Returns the broker's epoch before a clean stop; -1 if any log directory was not left in order (KIP-966)."""
    epochs = {log_dir.broker_epoch if log_dir.was_clean else -1 for log_dir in log_manager.log_dirs}
    return epochs.pop() if len(epochs) == 1 else -1
