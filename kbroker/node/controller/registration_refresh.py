"""Registers a node again when a higher level of ``metadata.version`` lets the metadata log hold more of it.

Below 3.7-IV0 controllers do not register, and below 3.7-IV2 the log does not hold a broker's log directories. A node
that runs while the level rises must say then what it could not say at its start (Kafka's
``ControllerRegistrationManager`` and ``BrokerRegistrationTracker``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage
from kbroker.raft_metadata.metadata_version import CONTROLLER_REGISTRATION, DIRECTORIES, metadata_version_name

logger = logging.getLogger(__name__)


class RegistrationRefresh:
    """Follows the level of ``metadata.version``; ``run`` it for as long as the node serves."""

    def __init__(
        self,
        metadata: MetadataPlane,
        *,
        register_controller: Callable[[], Awaitable[object]],
        register_broker: Callable[[], Awaitable[object]],
    ) -> None:
        """``register_...`` insist until the active controller has taken it."""
        self._metadata = metadata
        self._config = metadata.config
        self._register_controller = register_controller
        self._register_broker = register_broker
        self._level = 0
        self._changed = trio.Event()

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the metadata."""
        level = image.features.metadata_version
        if level == self._level:
            return
        self._level = level
        self._changed.set()
        if self._config.is_broker and len(self._config.log_dirs) > 1 and level < DIRECTORIES:
            # As Kafka's MetadataVersionConfigValidator: it is logged, and the broker serves all the same.
            logger.error(
                "several log directories are not supported at metadata.version %s, but from %s on",
                metadata_version_name(level),
                metadata_version_name(DIRECTORIES),
            )

    async def run(self) -> None:
        """Register what the log does not hold of this node, each time that the level has changed."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            if self._config.is_controller and self._lacks_controller(self._metadata.image):
                await self._register_controller()
            if self._config.is_broker and self._lacks_directories(self._metadata.image):
                await self._register_broker()

    def _lacks_controller(self, image: MetadataImage) -> bool:
        if image.features.metadata_version < CONTROLLER_REGISTRATION:
            return False
        known = image.controllers.get(self._metadata.node_id)
        return known is None or known.incarnation_id != self._metadata.incarnation_id

    def _lacks_directories(self, image: MetadataImage) -> bool:
        if image.features.metadata_version < DIRECTORIES:
            return False
        known = image.brokers.get(self._metadata.node_id)
        return known is not None and known.incarnation_id == self._metadata.incarnation_id and not known.log_dirs
