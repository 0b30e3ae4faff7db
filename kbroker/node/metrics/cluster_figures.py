"""Figures of the cluster by this node's metadata, and of the quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.metrics import families as f
from kbroker.raft_metadata.raft.quorum_state import QuorumRole

if TYPE_CHECKING:
    from kbroker.node.metadata_plane import MetadataPlane
    from kbroker.node.metrics.figures import Figures
    from kbroker.node.metrics.node_metrics import NodeMetrics


def figures(metadata: MetadataPlane, metrics: NodeMetrics) -> Figures:
    """The controller's figures on every node, as all have the metadata; those of the whole cluster on its leader alone.

    Kafka's inactive controllers show 0, so that dashboards may add up all nodes.
    """
    image, is_active = metadata.image, metadata.is_leader
    yield f.ACTIVE_CONTROLLER, [((), is_active)]
    if metadata.config.is_controller:
        offline = imbalanced = partitions = 0
        topics = list(image.topics.by_name.values()) if is_active else []
        for topic in topics:
            for partition in topic.partitions.values():
                partitions += 1
                offline += partition.leader < 0
                imbalanced += partition.leader != partition.preferred_leader
        fenced = sum(broker.fenced for broker in image.brokers.values())
        yield f.OFFLINE_PARTITIONS, [((), offline)]
        yield f.IMBALANCE, [((), imbalanced)]
        yield f.TOPIC_COUNT, [((), len(topics))]
        yield f.ALL_PARTITIONS, [((), partitions)]
        yield f.ACTIVE_BROKERS, [((), len(image.brokers) - fenced if is_active else 0)]
        yield f.FENCED_BROKERS, [((), fenced if is_active else 0)]
        yield f.UNCLEAN_ELECTIONS, [((), metrics.unclean_elections)]
    yield (
        f.BROKER_INFO,
        [
            ((f"{endpoint.host}:{endpoint.port}", str(broker.id)), 1)
            for broker in image.brokers.values()
            for endpoint in list(broker.endpoints.values())[:1]
        ],
    )
    core = metadata.quorum.core
    voted = core.voted
    yield f.RAFT_LEADER, [((), core.leader_id)]
    yield f.RAFT_EPOCH, [((), core.epoch)]
    yield f.RAFT_VOTE, [((), -1 if voted is None else voted.id)]
    yield f.RAFT_HIGH_WATERMARK, [((), core.high_watermark)]
    end = metadata.quorum.log.end_offset
    yield f.RAFT_END, [((), end)]
    for role, family in ((QuorumRole.LEADER, f.RAFT_APPEND_RATE), (QuorumRole.FOLLOWER, f.RAFT_FETCH_RATE)):
        rate = metrics.rates.of(role, end)
        yield family, [((), rate if core.role is role else 0)]
    yield f.RAFT_STATE, [((core.role.name.lower(),), 1)]
