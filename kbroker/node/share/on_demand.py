"""The parts of share groups on a node (KIP-932), made when they are first of use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.raft_metadata.topics import SHARE_GROUP_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.handlers.common.context import Services
    from kbroker.node.controller.image_publisher import Subscriber
    from kbroker.node.coordinators.group_driver import GroupDriver
    from kbroker.node.peers.peer_pool import PoolFor
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.node.share.groups import ShareGroups
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage


class ShareGroupsOnDemand:
    """Makes the parts for the first request that needs them, and for a node that keeps states of share partitions.

    The caller subscribes `on_image` to the metadata, after the replica manager.
    """

    def __init__(
        self,
        services: Callable[[], Services],
        replica_manager: ReplicaManager,
        groups: GroupDriver,
        pool_for: PoolFor,
        subscribe: Callable[[Subscriber], None],
    ) -> None:
        """``services`` gives what the parts ask of the node; ``subscribe`` is that of the metadata."""
        self._services = services
        self._replica_manager = replica_manager
        self._groups = groups
        self._pool_for = pool_for
        self._subscribe = subscribe
        self._parts: ShareGroups | None = None
        groups.share_persister = lambda: self.parts().persister

    @property
    def made(self) -> ShareGroups | None:
        """The parts, if anything has needed them."""
        return self._parts

    def parts(self) -> ShareGroups:
        """The parts, at work."""
        if self._parts is None:
            from kbroker.node.share.groups import make_share_groups

            self._parts = parts = make_share_groups(
                self._services(), self._replica_manager, self._groups, self._pool_for
            )
            parts.start(self._subscribe, self._replica_manager.start_soon)
        return self._parts

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See whether this node keeps states."""
        if self._parts is None:
            topic = image.topics.by_name.get(SHARE_GROUP_STATE_TOPIC)
            own_id = self._replica_manager.node_id
            if topic is not None and any(each.leader == own_id for each in topic.partitions.values()):
                self.parts()
