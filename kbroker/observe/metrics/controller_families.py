"""The table of metrics of the cluster's metadata: the controller, the quorum, the images."""

from __future__ import annotations

from kbroker.observe.metrics.dialect import Dialect, Kind
from kbroker.observe.metrics.family import JOINED, Family, mbean, of_group

# --- the cluster, by its metadata -----------------------------------------------------------------------------

_CONTROLLER = "controller/KafkaController"
ACTIVE_CONTROLLER = mbean(f"{_CONTROLLER}/ActiveControllerCount", Kind.GAUGE, "1 on the active controller.")
OFFLINE_PARTITIONS = mbean(
    f"{_CONTROLLER}/OfflinePartitionsCount", Kind.GAUGE, "Partitions without a leader, by each controller."
)
IMBALANCE = mbean(
    f"{_CONTROLLER}/PreferredReplicaImbalanceCount",
    Kind.GAUGE,
    "Partitions that their first replica does not lead, by each controller.",
)
TOPIC_COUNT = mbean(f"{_CONTROLLER}/GlobalTopicCount", Kind.GAUGE, "Topics of the cluster, by each controller.")
ALL_PARTITIONS = mbean(
    f"{_CONTROLLER}/GlobalPartitionCount", Kind.GAUGE, "Partitions of the cluster, by each controller."
)
ACTIVE_BROKERS = mbean(
    f"{_CONTROLLER}/ActiveBrokerCount", Kind.GAUGE, "Brokers that are not fenced, by each controller."
)
FENCED_BROKERS = mbean(
    f"{_CONTROLLER}/FencedBrokerCount", Kind.GAUGE, "Registered brokers that are fenced, by each controller."
)
UNCLEAN_ELECTIONS = mbean(
    "controller/ControllerStats/UncleanLeaderElectionsPerSec",
    Kind.COUNTER,
    "Leaders from outside of the ISR that this controller has seen elected.",
)

ELR_ELECTIONS = mbean(
    "controller/ControllerStats/ElectionFromEligibleLeaderReplicasPerSec",
    Kind.COUNTER,
    "Leaders from the eligible leader replicas that this controller has seen elected (KIP-966).",
)
CONTROLLED_SHUTDOWNS = mbean(
    f"{_CONTROLLER}/ControlledShutdownBrokerCount",
    Kind.GAUGE,
    "Brokers that are stopping, by each controller (KIP-1131).",
)
BROKER = ("broker",)
REGISTRATION_STATE = mbean(
    f"{_CONTROLLER}/BrokerRegistrationState",
    Kind.GAUGE,
    "10: fenced, 20: in controlled shutdown, 30: active; by each controller (KIP-1131).",
    BROKER,
)
SINCE_HEARTBEAT = mbean(
    f"{_CONTROLLER}/TimeSinceLastHeartbeatReceivedMs",
    Kind.GAUGE,
    "Milliseconds since the last heartbeat of an unfenced broker (KIP-1131). The active controller's own broker sends "
    "few, and is absent.",
    BROKER,
)
TIMED_OUT_BROKERS = mbean(
    f"{_CONTROLLER}/TimedOutBrokerHeartbeatCount",
    Kind.GAUGE,
    "Brokers that this controller has fenced as they were silent.",
)
NEW_CONTROLLERS = mbean(
    f"{_CONTROLLER}/NewActiveControllersCount", Kind.GAUGE, "Changes of the active controller that this node has seen."
)
STARTED_OPERATIONS = mbean(
    f"{_CONTROLLER}/EventQueueOperationsStartedCount",
    Kind.GAUGE,
    "Operations that this node has carried out as active controller, changes of the metadata and looks at it.",
)
APPLIED_OFFSET = mbean(f"{_CONTROLLER}/LastAppliedRecordOffset", Kind.GAUGE, "Offset of the image's last record.")
COMMITTED_OFFSET = mbean(
    f"{_CONTROLLER}/LastCommittedRecordOffset", Kind.GAUGE, "Offset of the last metadata record that is committed."
)
APPLIED_TIMESTAMP = mbean(
    f"{_CONTROLLER}/LastAppliedRecordTimestamp", Kind.GAUGE, "Timestamp of the image's last record, in ms."
)
_EVENTS = "controller/ControllerEventManager"
CONTROLLER_IDLE = mbean(
    f"{_EVENTS}/AvgIdleRatio", Kind.GAUGE, "Share of time that the event loop sleeps, on a controller (KIP-1190)."
)
EVENT_TIME = mbean(
    f"{_EVENTS}/EventQueueProcessingTimeMs",
    Kind.SUMMARY,
    "Milliseconds of work for a change of the metadata on the active controller, without the wait for its commit.",
)

# --- images of the metadata -----------------------------------------------------------------------------------

_LOADER = "server/MetadataLoader"
METADATA_VERSION = mbean(f"{_LOADER}/CurrentMetadataVersion", Kind.GAUGE, "Level of metadata.version in the image.")
CURRENT_CONTROLLER = mbean(
    f"{_LOADER}/CurrentControllerId", Kind.GAUGE, "Id of the active controller by the image; -1 without (KIP-1001)."
)
SNAPSHOT_LOADS = mbean(f"{_LOADER}/HandleLoadSnapshotCount", Kind.GAUGE, "Snapshots that the node has read.")
LOADER_IDLE = mbean(f"{_LOADER}/AvgIdleRatio", Kind.GAUGE, "Share of time that the event loop sleeps (KIP-1229).")
FINALIZED_LEVEL = mbean(
    f"{_LOADER}/FinalizedLevel", Kind.GAUGE, "Level of a feature that the cluster has finalized.", ("featureName",)
)
_FEATURE = ("feature_name",)
MAXIMUM_LEVEL = of_group(
    "node-metrics/maximum-supported-level", Kind.GAUGE, "Highest level of a feature that the node supports.", _FEATURE
)
MINIMUM_LEVEL = of_group(
    "node-metrics/minimum-supported-level", Kind.GAUGE, "Lowest level of a feature that the node supports.", _FEATURE
)
_BROKERS = "broker-metadata-metrics"
BROKER_APPLIED_OFFSET = of_group(
    f"{_BROKERS}/last-applied-record-offset", Kind.GAUGE, "Offset of the image's last record, on a broker."
)
BROKER_APPLIED_TIMESTAMP = of_group(
    f"{_BROKERS}/last-applied-record-timestamp", Kind.GAUGE, "Timestamp of the image's last record, on a broker; ms."
)
SNAPSHOT_BYTES = mbean(
    "server/SnapshotEmitter/LatestSnapshotGeneratedBytes",
    Kind.GAUGE,
    "Bytes of the last snapshot that the node has written since its start; 0 without.",
)
SNAPSHOT_AGE = mbean(
    "server/SnapshotEmitter/LatestSnapshotGeneratedAgeMs",
    Kind.GAUGE,
    "Milliseconds since then; since the node's start if it has written none.",
)

# --- the quorum -----------------------------------------------------------------------------------------------

_RAFT = "raft-metrics"
RAFT_LEADER = of_group(
    f"{_RAFT}/current-leader", Kind.GAUGE, "Id of the quorum's leader; -1 if not known.", joined=JOINED
)
RAFT_EPOCH = of_group(f"{_RAFT}/current-epoch", Kind.GAUGE, "Epoch of the quorum.", joined=JOINED)
RAFT_VOTE = of_group(
    f"{_RAFT}/current-vote", Kind.GAUGE, "Id that this node has voted for in the epoch; -1 if none.", joined=JOINED
)
RAFT_HIGH_WATERMARK = of_group(
    f"{_RAFT}/high-watermark", Kind.GAUGE, "Metadata records that are committed.", joined=JOINED
)
RAFT_END = of_group(f"{_RAFT}/log-end-offset", Kind.GAUGE, "Metadata records in this node's log.", joined=JOINED)
RAFT_APPEND_RATE = of_group(
    f"{_RAFT}/append-records-rate", Kind.GAUGE, "Metadata records that the leader appends in a second.", joined=JOINED
)
RAFT_FETCH_RATE = of_group(
    f"{_RAFT}/fetch-records-rate",
    Kind.GAUGE,
    "Metadata records that another node copies from the leader in a second.",
    joined=JOINED,
)
RAFT_END_EPOCH = of_group(
    f"{_RAFT}/log-end-epoch", Kind.GAUGE, "Epoch of the last metadata record in this node's log.", joined=JOINED
)
RAFT_VOTERS = of_group(f"{_RAFT}/number-of-voters", Kind.GAUGE, "Voters of the quorum.", joined=JOINED)
RAFT_COMMIT_AVG = of_group(
    f"{_RAFT}/commit-latency-avg",
    Kind.GAUGE,
    "Mean of the milliseconds from a record's place in the leader's log to its commit, since the last scrape.",
    joined=JOINED,
)
RAFT_COMMIT_MAX = of_group(
    f"{_RAFT}/commit-latency-max", Kind.GAUGE, "The longest of these, at most an eighth too high.", joined=JOINED
)
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
