"""The table of metrics of the cluster's metadata: the controller, the quorum, the images."""

from __future__ import annotations

from kbroker.observe.metrics.dialect import Dialect, Kind
from kbroker.observe.metrics.family import JOINED, Family, mbean, of_group

# --- the cluster, by its metadata -----------------------------------------------------------------------------

_CONTROLLER = mbean("controller/KafkaController")
ACTIVE_CONTROLLER = _CONTROLLER.gauge("ActiveControllerCount", "1 on the active controller.")
OFFLINE_PARTITIONS = _CONTROLLER.gauge("OfflinePartitionsCount", "Partitions without a leader, by each controller.")
IMBALANCE = _CONTROLLER.gauge(
    "PreferredReplicaImbalanceCount", "Partitions that their first replica does not lead, by each controller."
)
TOPIC_COUNT = _CONTROLLER.gauge("GlobalTopicCount", "Topics of the cluster, by each controller.")
ALL_PARTITIONS = _CONTROLLER.gauge("GlobalPartitionCount", "Partitions of the cluster, by each controller.")
ACTIVE_BROKERS = _CONTROLLER.gauge("ActiveBrokerCount", "Brokers that are not fenced, by each controller.")
FENCED_BROKERS = _CONTROLLER.gauge("FencedBrokerCount", "Registered brokers that are fenced, by each controller.")
_ELECTIONS = mbean("controller/ControllerStats")
UNCLEAN_ELECTIONS = _ELECTIONS.counter(
    "UncleanLeaderElectionsPerSec", "Leaders from outside of the ISR that this controller has seen elected."
)

ELR_ELECTIONS = _ELECTIONS.counter(
    "ElectionFromEligibleLeaderReplicasPerSec",
    "Leaders from the eligible leader replicas that this controller has seen elected (KIP-966).",
)
CONTROLLED_SHUTDOWNS = _CONTROLLER.gauge(
    "ControlledShutdownBrokerCount", "Brokers that are stopping, by each controller (KIP-1131)."
)
BROKER = ("broker",)
REGISTRATION_STATE = _CONTROLLER.gauge(
    "BrokerRegistrationState",
    "10: fenced, 20: in controlled shutdown, 30: active; by each controller (KIP-1131).",
    BROKER,
)
SINCE_HEARTBEAT = _CONTROLLER.gauge(
    "TimeSinceLastHeartbeatReceivedMs",
    "Milliseconds since the last heartbeat of an unfenced broker (KIP-1131). The active controller's own broker sends "
    "few, and is absent.",
    BROKER,
)
TIMED_OUT_BROKERS = _CONTROLLER.gauge(
    "TimedOutBrokerHeartbeatCount", "Brokers that this controller has fenced as they were silent."
)
NEW_CONTROLLERS = _CONTROLLER.gauge(
    "NewActiveControllersCount", "Changes of the active controller that this node has seen."
)
STARTED_OPERATIONS = _CONTROLLER.gauge(
    "EventQueueOperationsStartedCount",
    "Operations that this node has carried out as active controller, changes of the metadata and looks at it.",
)
APPLIED_OFFSET = _CONTROLLER.gauge("LastAppliedRecordOffset", "Offset of the image's last record.")
COMMITTED_OFFSET = _CONTROLLER.gauge(
    "LastCommittedRecordOffset", "Offset of the last metadata record that is committed."
)
APPLIED_TIMESTAMP = _CONTROLLER.gauge("LastAppliedRecordTimestamp", "Timestamp of the image's last record, in ms.")
_EVENTS = mbean("controller/ControllerEventManager")
CONTROLLER_IDLE = _EVENTS.gauge("AvgIdleRatio", "Share of time that the event loop sleeps, on a controller (KIP-1190).")
EVENT_TIME = _EVENTS.summary(
    "EventQueueProcessingTimeMs",
    "Milliseconds of work for a change of the metadata on the active controller, without the wait for its commit.",
)

# --- images of the metadata -----------------------------------------------------------------------------------

_LOADER = mbean("server/MetadataLoader")
METADATA_VERSION = _LOADER.gauge("CurrentMetadataVersion", "Level of metadata.version in the image.")
CURRENT_CONTROLLER = _LOADER.gauge(
    "CurrentControllerId", "Id of the active controller by the image; -1 without (KIP-1001)."
)
SNAPSHOT_LOADS = _LOADER.gauge("HandleLoadSnapshotCount", "Snapshots that the node has read.")
LOADER_IDLE = _LOADER.gauge("AvgIdleRatio", "Share of time that the event loop sleeps (KIP-1229).")
FINALIZED_LEVEL = _LOADER.gauge(
    "FinalizedLevel", "Level of a feature that the cluster has finalized.", ("featureName",)
)
_FEATURE = ("feature_name",)
_NODE = of_group("node-metrics", _FEATURE)
MAXIMUM_LEVEL = _NODE.gauge("maximum-supported-level", "Highest level of a feature that the node supports.")
MINIMUM_LEVEL = _NODE.gauge("minimum-supported-level", "Lowest level of a feature that the node supports.")
_BROKERS = of_group("broker-metadata-metrics")
BROKER_APPLIED_OFFSET = _BROKERS.gauge("last-applied-record-offset", "Offset of the image's last record, on a broker.")
BROKER_APPLIED_TIMESTAMP = _BROKERS.gauge(
    "last-applied-record-timestamp", "Timestamp of the image's last record, on a broker; ms."
)
_SNAPSHOTS = mbean("server/SnapshotEmitter")
SNAPSHOT_BYTES = _SNAPSHOTS.gauge(
    "LatestSnapshotGeneratedBytes", "Bytes of the last snapshot that the node has written since its start; 0 without."
)
SNAPSHOT_AGE = _SNAPSHOTS.gauge(
    "LatestSnapshotGeneratedAgeMs", "Milliseconds since then; since the node's start if it has written none."
)

# --- the quorum -----------------------------------------------------------------------------------------------

_RAFT = of_group("raft-metrics", joined=JOINED)
RAFT_LEADER = _RAFT.gauge("current-leader", "Id of the quorum's leader; -1 if not known.")
RAFT_EPOCH = _RAFT.gauge("current-epoch", "Epoch of the quorum.")
RAFT_VOTE = _RAFT.gauge("current-vote", "Id that this node has voted for in the epoch; -1 if none.")
RAFT_HIGH_WATERMARK = _RAFT.gauge("high-watermark", "Metadata records that are committed.")
RAFT_END = _RAFT.gauge("log-end-offset", "Metadata records in this node's log.")
RAFT_APPEND_RATE = _RAFT.gauge("append-records-rate", "Metadata records that the leader appends in a second.")
RAFT_FETCH_RATE = _RAFT.gauge(
    "fetch-records-rate", "Metadata records that another node copies from the leader in a second."
)
RAFT_END_EPOCH = _RAFT.gauge("log-end-epoch", "Epoch of the last metadata record in this node's log.")
RAFT_VOTERS = _RAFT.gauge("number-of-voters", "Voters of the quorum.")
RAFT_COMMIT_AVG = _RAFT.gauge(
    "commit-latency-avg",
    "Mean of the milliseconds from a record's place in the leader's log to its commit, since the last scrape.",
)
RAFT_COMMIT_MAX = _RAFT.gauge("commit-latency-max", "The longest of these, at most an eighth too high.")
RAFT_STATE = Family(
    {
        Dialect.STRIMZI: "kafka_server_raftmetrics_current_state",
        Dialect.CONFLUENT: "kafka_server_raft_metrics_current_state",
        Dialect.REPORTER: "kafka_server_raft_metrics_current_state_info",
    },
    Kind.GAUGE,
    "1, with the node's role in the quorum as its label.",
    ("current_state",),
)
