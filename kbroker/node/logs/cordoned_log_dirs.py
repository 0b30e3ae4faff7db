"""Follows ``cordoned.log.dirs``: a directory that is cordoned gets no new logs (KIP-1066)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.config.broker_checks import CORDONED

if TYPE_CHECKING:
    from kbroker.log.manager import LogManager
    from kbroker.node.dynamic_broker_config import DynamicBrokerConfig
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage


class CordonedLogDirs:
    """Marks the node's log dirs, and has the controller told of changes."""

    def __init__(self, config: DynamicBrokerConfig, log_manager: LogManager, on_change: Callable[[], None]) -> None:
        self._config = config
        self._log_manager = log_manager
        self._on_change = on_change
        self._mark()

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the metadata, after the configuration has."""
        if delta.changed_configs and self._mark():
            self._on_change()

    def _mark(self) -> bool:
        """Whether anything has changed."""
        config = self._config.with_prefix(CORDONED)
        changed = False
        for path, log_dir in zip(config.log_dirs, self._log_manager.log_dirs, strict=True):
            cordoned = path in config.cordoned_log_dirs
            changed |= cordoned is not log_dir.cordoned
            log_dir.cordoned = cordoned
        return changed
