"""A node as its metrics see it, for the type checker (``node.broker.Broker`` is one)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.handlers.common.context import Services
    from kbroker.log.dirs.start_up import OpeningProgress
    from kbroker.log.manager import LogManager
    from kbroker.node.controller.broker_lifecycle import BrokerLifecycle
    from kbroker.node.controller.metadata_plane import MetadataPlane
    from kbroker.node.coordinators.coordinators import Coordinators
    from kbroker.node.logs.log_care import LogCare
    from kbroker.node.peers.peer_pool import PeerPool
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.node.serving.listener import Listener
    from kbroker.node.share.on_demand import ShareGroupsOnDemand
    from kbroker.node.telemetry.telemetry import Telemetry


class MeasuredNode(Protocol):
    """The parts that figures are asked of."""

    config: BrokerConfig
    telemetry: Telemetry | None

    @property
    def services(self) -> Services: ...
    @property
    def replica_manager(self) -> ReplicaManager: ...
    @property
    def log_manager(self) -> LogManager: ...
    @property
    def metadata(self) -> MetadataPlane: ...
    @property
    def lifecycle(self) -> BrokerLifecycle: ...
    @property
    def share_groups(self) -> ShareGroupsOnDemand | None: ...
    @property
    def log_care(self) -> LogCare: ...
    @property
    def table_states(self) -> Mapping[str, Mapping[str, Any]]:
        """Table -> what its follower beside this node has told last."""

    @property
    def opening(self) -> OpeningProgress | None:
        """The progress of opening the logs; None once they are open."""

    @property
    def listeners(self) -> Sequence[Listener]:
        """The listeners that are open."""

    def pool_for(self, purpose: str) -> PeerPool:
        """Return connections to other brokers for one purpose."""

    @property
    def coordinators(self) -> Coordinators | None:
        """The coordinators; None on a node without the broker role."""
