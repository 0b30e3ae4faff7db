"""Figures of the cluster by this node's metadata, and of the quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.node.metrics.figures import PAUSE, STRIDE, Figures, lately, summary
from kbroker.observe.metrics import controller_families as c
from kbroker.observe.metrics import families as f
from kbroker.raft_metadata.features import SUPPORTED_FEATURES
from kbroker.raft_metadata.raft.quorum_state import QuorumRole

if TYPE_CHECKING:
    from kbroker.node.controller.metadata_plane import MetadataPlane
    from kbroker.node.metrics.node_metrics import NodeMetrics
    from kbroker.observe.metrics.rates import Rates
    from kbroker.raft_metadata.image import BrokerImage


def figures(metadata: MetadataPlane, metrics: NodeMetrics, rates: Rates, idle: float) -> Figures:
    """The figures of the cluster on every controller, active or not, as Kafka has them; of brokers each has its own.

    ``idle`` is the share of time that the event loop has slept.
    """
    image = metadata.image
    yield c.ACTIVE_CONTROLLER, [((), metadata.is_leader)]
    if metadata.config.is_controller:
        offline = imbalanced = partitions = 0
        topics = list(image.topics.by_name.values())
        for topic in topics:
            for partition in topic.partitions.values():
                partitions += 1
                if not partitions % STRIDE:
                    yield PAUSE
                offline += partition.leader < 0
                imbalanced += partition.leader != partition.preferred_leader
        fenced = sum(broker.fenced for broker in image.brokers.values())
        yield c.OFFLINE_PARTITIONS, [((), offline)]
        yield c.IMBALANCE, [((), imbalanced)]
        yield c.TOPIC_COUNT, [((), len(topics))]
        yield c.ALL_PARTITIONS, [((), partitions)]
        yield c.ACTIVE_BROKERS, [((), len(image.brokers) - fenced)]
        yield c.FENCED_BROKERS, [((), fenced)]
        yield c.UNCLEAN_ELECTIONS, [((), metrics.unclean_elections)]
        yield c.ELR_ELECTIONS, [((), metrics.elections_from_elr)]
        yield c.CONTROLLER_IDLE, [((), idle)]
        yield from _of_controller(metadata, metrics)
    own = image.brokers.get(metadata.config.node_id)
    if own is not None:
        endpoints = list(own.endpoints.values())[:1]
        yield f.BROKER_INFO, [((f"{endpoint.host}:{endpoint.port}", str(own.id)), 1) for endpoint in endpoints]
    yield f.BROKERS, [((), sum(not broker.fenced for broker in image.brokers.values()))]
    yield from _of_images(metadata, metrics, idle)
    yield from _of_quorum(metadata, metrics, rates)


def _of_controller(metadata: MetadataPlane, metrics: NodeMetrics) -> Figures:
    """Brokers as a controller sees them, and its changes."""
    image = metadata.image
    brokers = list(image.brokers.values())
    stopping = sum(broker.in_controlled_shutdown and not broker.fenced for broker in brokers)
    yield c.CONTROLLED_SHUTDOWNS, [((), stopping)]
    yield c.REGISTRATION_STATE, [((str(broker.id),), _state_of(broker)) for broker in brokers]
    silences = metadata.sessions.silences_ms()
    yield c.SINCE_HEARTBEAT, [((str(broker_id),), silence) for broker_id, silence in silences.items()]
    yield c.TIMED_OUT_BROKERS, [((), metadata.sessions.timed_out)]
    yield c.NEW_CONTROLLERS, [((), metrics.new_controllers)]
    yield c.STARTED_OPERATIONS, [((), metrics.changes.count)]
    yield c.APPLIED_OFFSET, [((), image.offset)]
    yield c.COMMITTED_OFFSET, [((), metadata.quorum.core.high_watermark - 1)]
    yield c.APPLIED_TIMESTAMP, [((), metadata.images.last_timestamp)]
    yield from summary(c.EVENT_TIME, {(): metrics.changes})


def _state_of(broker: BrokerImage) -> int:
    """The number of Kafka's ``BrokerRegistrationState``."""
    if broker.fenced:
        return 10
    return 20 if broker.in_controlled_shutdown else 30


def _of_images(metadata: MetadataPlane, metrics: NodeMetrics, idle: float) -> Figures:
    image, levels = metadata.image, metadata.image.features.levels
    yield c.METADATA_VERSION, [((), image.features.metadata_version)]
    yield c.CURRENT_CONTROLLER, [((), image.controller_id)]
    yield c.SNAPSHOT_LOADS, [((), metadata.images.snapshots_loaded)]
    yield c.LOADER_IDLE, [((), idle)]
    yield c.FINALIZED_LEVEL, [((_camel_case(name),), level) for name, level in levels.items()]
    yield c.MAXIMUM_LEVEL, [((name.replace(".", "-"),), levels.max) for name, levels in SUPPORTED_FEATURES.items()]
    yield c.MINIMUM_LEVEL, [((name.replace(".", "-"),), levels.min) for name, levels in SUPPORTED_FEATURES.items()]
    if metadata.config.is_broker:
        yield c.BROKER_APPLIED_OFFSET, [((), image.offset)]
        yield c.BROKER_APPLIED_TIMESTAMP, [((), metadata.images.last_timestamp)]
    snapshots = metadata.snapshots
    since = metrics.started_ms if snapshots.latest_ms is None else snapshots.latest_ms
    yield c.SNAPSHOT_BYTES, [((), snapshots.latest_bytes)]
    yield c.SNAPSHOT_AGE, [((), max(0, metadata.env.wall_clock_ms() - since))]


def _camel_case(feature: str) -> str:
    """``metadata.version`` as Kafka labels it: ``metadataVersion``."""
    first, *others = feature.split(".")
    return first + "".join(word.capitalize() for word in others)


def _of_quorum(metadata: MetadataPlane, metrics: NodeMetrics, rates: Rates) -> Figures:
    core = metadata.quorum.core
    voted = core.voted
    yield c.RAFT_LEADER, [((), core.leader_id)]
    yield c.RAFT_EPOCH, [((), core.epoch)]
    yield c.RAFT_VOTE, [((), -1 if voted is None else voted.id)]
    yield c.RAFT_HIGH_WATERMARK, [((), core.high_watermark)]
    end = metadata.quorum.log.end_offset
    yield c.RAFT_END, [((), end)]
    for role, family in ((QuorumRole.LEADER, c.RAFT_APPEND_RATE), (QuorumRole.FOLLOWER, c.RAFT_FETCH_RATE)):
        rate = rates.of(role, end)
        yield family, [((), rate if core.role is role else 0)]
    yield c.RAFT_END_EPOCH, [((), metadata.quorum.log.last_epoch)]
    yield c.RAFT_VOTERS, [((), len(core.voters.voters))]
    yield from lately(c.RAFT_COMMIT_AVG, c.RAFT_COMMIT_MAX, metrics.commits)
    yield c.RAFT_STATE, [((core.role.name.lower(),), 1)]
