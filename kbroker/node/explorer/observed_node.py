"""A node as its explorer sees it, for the type checker (``node.broker.Broker`` is one)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.handlers.common.context import Services
    from kbroker.node.controller.metadata_plane import MetadataPlane


class ObservedNode(Protocol):
    """The parts that it is asked of."""

    config: BrokerConfig

    @property
    def services(self) -> Services: ...
    @property
    def metadata(self) -> MetadataPlane: ...
