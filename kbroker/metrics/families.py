"""The table of all metrics that a node has: names by dialect, labels, and what each tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbroker.metrics.dialect import Dialect, Kind, group_names, mbean_names


class Family(NamedTuple):
    """A metric: the values of one name, told apart by labels."""

    names: Mapping[Dialect, str]
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


TOPIC = ("topic",)
PARTITION = ("topic", "partition")

_JOINED = (Dialect.STRIMZI,)
"""``kafka_server_raftmetrics_...``, where the others write ``raft_metrics``."""


def _mbean(path: str, kind: Kind, text: str, labels: tuple[str, ...] = ()) -> Family:
    domain, type_, name = path.split("/")
    return Family(mbean_names(domain, type_, name, kind), kind, text, labels)


def _of_group(
    path: str, kind: Kind, text: str, labels: tuple[str, ...] = (), joined: tuple[Dialect, ...] = _JOINED
) -> Family:
    group, name = path.split("/")
    return Family(group_names(group, name, joined=joined), kind, text, labels)


def _own(name: str, kind: Kind, text: str, labels: tuple[str, ...] = ()) -> Family:
    """A name that is the same in all dialects: kafka-exporter's, Prometheus's own, or kbroker's."""
    return Family(dict.fromkeys(Dialect, name), kind, text, labels)


# --- topics ---------------------------------------------------------------------------------------------------

_TRAFFIC = "server/BrokerTopicMetrics"

TRAFFIC: dict[str, Family] = {
    "bytes_in": _mbean(
        f"{_TRAFFIC}/BytesInPerSec", Kind.COUNTER, "Bytes appended as leader; without a topic, of all topics.", TOPIC
    ),
    "bytes_out": _mbean(f"{_TRAFFIC}/BytesOutPerSec", Kind.COUNTER, "Bytes sent to consumers.", TOPIC),
    "messages_in": _mbean(f"{_TRAFFIC}/MessagesInPerSec", Kind.COUNTER, "Records appended as leader.", TOPIC),
    "produces": _mbean(
        f"{_TRAFFIC}/TotalProduceRequestsPerSec", Kind.COUNTER, "Batches that producers have sent to partitions.", TOPIC
    ),
    "fetches": _mbean(
        f"{_TRAFFIC}/TotalFetchRequestsPerSec", Kind.COUNTER, "Partitions that consumers have read with records.", TOPIC
    ),
    "failed_produces": _mbean(
        f"{_TRAFFIC}/FailedProduceRequestsPerSec", Kind.COUNTER, "Batches that were refused or not written.", TOPIC
    ),
    "failed_fetches": _mbean(
        f"{_TRAFFIC}/FailedFetchRequestsPerSec", Kind.COUNTER, "Partitions that could not be read.", TOPIC
    ),
}
"""By the name of the count in `kbroker.metrics.traffic.TopicTraffic`."""

REPLICATION_BYTES_OUT = _mbean(f"{_TRAFFIC}/ReplicationBytesOutPerSec", Kind.COUNTER, "Bytes sent to followers.")

# --- partitions -----------------------------------------------------------------------------------------------

UNDER_MIN_ISR = _mbean(
    "cluster/Partition/UnderMinIsr", Kind.GAUGE, "1 if the ISR is smaller than min.insync.replicas.", PARTITION
)
AT_MIN_ISR = _mbean(
    "cluster/Partition/AtMinIsr", Kind.GAUGE, "1 if the ISR is as small as min.insync.replicas allows.", PARTITION
)
UNDER_REPLICATED = _mbean(
    "cluster/Partition/UnderReplicated", Kind.GAUGE, "1 if a replica is outside of the ISR.", PARTITION
)
REPLICAS = _mbean("cluster/Partition/ReplicasCount", Kind.GAUGE, "Replicas, by the leader.", PARTITION)
IN_SYNC_REPLICAS = _mbean("cluster/Partition/InSyncReplicasCount", Kind.GAUGE, "Size of the ISR.", PARTITION)
LAST_STABLE_OFFSET_LAG = _mbean(
    "cluster/Partition/LastStableOffsetLag",
    Kind.GAUGE,
    "Records that read_committed cannot see because a transaction before them is open.",
    PARTITION,
)
LOG_SIZE = _mbean("log/Log/Size", Kind.GAUGE, "Bytes of the log.", PARTITION)
LOG_END_OFFSET = _mbean("log/Log/LogEndOffset", Kind.GAUGE, "Offset of the next record.", PARTITION)
LOG_START_OFFSET = _mbean("log/Log/LogStartOffset", Kind.GAUGE, "Offset of the first record that is kept.", PARTITION)
LOG_SEGMENTS = _mbean("log/Log/NumLogSegments", Kind.GAUGE, "Segments of the log.", PARTITION)

# --- the broker's replicas ------------------------------------------------------------------------------------

PARTITION_COUNT = _mbean("server/ReplicaManager/PartitionCount", Kind.GAUGE, "Replicas on this broker.")
LEADER_COUNT = _mbean("server/ReplicaManager/LeaderCount", Kind.GAUGE, "Partitions that this broker leads.")
UNDER_REPLICATED_PARTITIONS = _mbean(
    "server/ReplicaManager/UnderReplicatedPartitions", Kind.GAUGE, "Led partitions with a replica outside of the ISR."
)
UNDER_MIN_ISR_PARTITIONS = _mbean(
    "server/ReplicaManager/UnderMinIsrPartitionCount", Kind.GAUGE, "Led partitions that take no acks=all."
)
AT_MIN_ISR_PARTITIONS = _mbean(
    "server/ReplicaManager/AtMinIsrPartitionCount", Kind.GAUGE, "Led partitions that bear the loss of no replica."
)
OFFLINE_REPLICAS = _mbean("server/ReplicaManager/OfflineReplicaCount", Kind.GAUGE, "Replicas in log dirs that failed.")
ISR_SHRINKS = _mbean("server/ReplicaManager/IsrShrinksPerSec", Kind.COUNTER, "Proposals of a smaller ISR.")
ISR_EXPANDS = _mbean("server/ReplicaManager/IsrExpandsPerSec", Kind.COUNTER, "Proposals of a larger ISR.")
MAX_LAG = _mbean(
    "server/ReplicaFetcherManager/MaxLag", Kind.GAUGE, "Most records that a follower of this leader lags behind."
)
OFFLINE_LOG_DIRS = _mbean("log/LogManager/OfflineLogDirectoryCount", Kind.GAUGE, "Log dirs that have failed.")
FETCH_SESSIONS = _mbean(
    "server/FetchSessionCache/NumIncrementalFetchSessions", Kind.GAUGE, "Fetch sessions of consumers and followers."
)
FETCH_SESSION_EVICTIONS = _mbean(
    "server/FetchSessionCache/IncrementalFetchSessionEvictionsPerSec", Kind.COUNTER, "Sessions that made room."
)

# --- the cluster, by its metadata -----------------------------------------------------------------------------

_CONTROLLER = "controller/KafkaController"
ACTIVE_CONTROLLER = _mbean(f"{_CONTROLLER}/ActiveControllerCount", Kind.GAUGE, "1 on the active controller.")
OFFLINE_PARTITIONS = _mbean(f"{_CONTROLLER}/OfflinePartitionsCount", Kind.GAUGE, "Partitions without a leader.")
IMBALANCE = _mbean(
    f"{_CONTROLLER}/PreferredReplicaImbalanceCount", Kind.GAUGE, "Partitions that their first replica does not lead."
)
TOPIC_COUNT = _mbean(f"{_CONTROLLER}/GlobalTopicCount", Kind.GAUGE, "Topics of the cluster.")
ALL_PARTITIONS = _mbean(f"{_CONTROLLER}/GlobalPartitionCount", Kind.GAUGE, "Partitions of the cluster.")
ACTIVE_BROKERS = _mbean(f"{_CONTROLLER}/ActiveBrokerCount", Kind.GAUGE, "Brokers that are not fenced.")
FENCED_BROKERS = _mbean(f"{_CONTROLLER}/FencedBrokerCount", Kind.GAUGE, "Registered brokers that are fenced.")
UNCLEAN_ELECTIONS = _mbean(
    "controller/ControllerStats/UncleanLeaderElectionsPerSec",
    Kind.COUNTER,
    "Leaders from outside of the ISR that this controller has seen elected.",
)

# --- requests and connections ---------------------------------------------------------------------------------

_REQUESTS = "network/RequestMetrics"
REQUEST = ("request",)
REQUEST_COUNT = _mbean(f"{_REQUESTS}/RequestsPerSec", Kind.COUNTER, "Requests served.", ("request", "version"))
TOTAL_TIME = _mbean(
    f"{_REQUESTS}/TotalTimeMs", Kind.SUMMARY, "Milliseconds from the decoding of a request to its response.", REQUEST
)
LOCAL_TIME = _mbean(f"{_REQUESTS}/LocalTimeMs", Kind.SUMMARY, "Milliseconds of work for a request.", REQUEST)
REMOTE_TIME = _mbean(
    f"{_REQUESTS}/RemoteTimeMs", Kind.SUMMARY, "Milliseconds that a request waits for others, or for records.", REQUEST
)
PROCESSOR_IDLE = _mbean(
    "network/SocketServer/NetworkProcessorAvgIdlePercent", Kind.GAUGE, "Share of time that the event loop sleeps."
)
HANDLER_IDLE = _mbean(
    "server/KafkaRequestHandlerPool/RequestHandlerAvgIdlePercent",
    Kind.IDLE,
    "The same: one event loop reads requests and serves them.",
)
_SOCKETS = "socket-server-metrics"
_SOCKETS_JOINED = (Dialect.CONFLUENT,)
LISTENER = ("listener", "networkProcessor")
CONNECTIONS = _of_group(
    f"{_SOCKETS}/connection-count", Kind.GAUGE, "Connections that are open.", LISTENER, _SOCKETS_JOINED
)
CONNECTION_CREATIONS = _of_group(
    f"{_SOCKETS}/connection-creation-total", Kind.COUNTER, "Connections that were let in.", LISTENER, _SOCKETS_JOINED
)
CONNECTION_CREATION_RATE = _of_group(
    f"{_SOCKETS}/connection-creation-rate", Kind.GAUGE, "The same for each second.", LISTENER, _SOCKETS_JOINED
)
CONNECTION_CLOSE_RATE = _of_group(
    f"{_SOCKETS}/connection-close-rate", Kind.GAUGE, "Connections that end in a second.", LISTENER, _SOCKETS_JOINED
)
CLIENTS = _of_group(
    f"{_SOCKETS}/connections",
    Kind.GAUGE,
    "Open connections by the software of the client (KIP-511).",
    ("client_software_name", "client_software_version", "listener"),
    _SOCKETS_JOINED,
)

# --- the quorum -----------------------------------------------------------------------------------------------

_RAFT = "raft-metrics"
RAFT_LEADER = _of_group(f"{_RAFT}/current-leader", Kind.GAUGE, "Id of the quorum's leader; -1 if not known.")
RAFT_EPOCH = _of_group(f"{_RAFT}/current-epoch", Kind.GAUGE, "Epoch of the quorum.")
RAFT_VOTE = _of_group(f"{_RAFT}/current-vote", Kind.GAUGE, "Id that this node has voted for in the epoch; -1 if none.")
RAFT_HIGH_WATERMARK = _of_group(f"{_RAFT}/high-watermark", Kind.GAUGE, "Metadata records that are committed.")
RAFT_END = _of_group(f"{_RAFT}/log-end-offset", Kind.GAUGE, "Metadata records in this node's log.")
RAFT_APPEND_RATE = _of_group(
    f"{_RAFT}/append-records-rate", Kind.GAUGE, "Metadata records that the leader appends in a second."
)
RAFT_FETCH_RATE = _of_group(
    f"{_RAFT}/fetch-records-rate", Kind.GAUGE, "Metadata records that another node copies from the leader in a second."
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

# --- coordinators ---------------------------------------------------------------------------------------------

_GROUPS = "coordinator_group/GroupMetadataManager"
GROUPS = _mbean(f"{_GROUPS}/NumGroups", Kind.GAUGE, "Groups of consumers that this broker coordinates.")
GROUP_STATES = ("Dead", "Empty", "Stable", "PreparingRebalance", "CompletingRebalance")
GROUPS_BY_STATE = {
    state: _mbean(f"{_GROUPS}/NumGroups{state}", Kind.GAUGE, f"Classic groups in state {state}.")
    for state in GROUP_STATES
}
TRANSACTIONAL_IDS = _of_group(
    "transaction-coordinator-metrics/transactional-id-count",
    Kind.GAUGE,
    "Transactional ids that this broker coordinates.",
    joined=(),
)

# --- the node -------------------------------------------------------------------------------------------------

BROKER_STATE = _mbean("server/KafkaServer/BrokerState", Kind.GAUGE, "3 while the broker runs, 1 while it is fenced.")
DISK_READ = _mbean("server/KafkaServer/linux-disk-read-bytes", Kind.GAUGE, "Bytes that the process has read.")
DISK_WRITE = _mbean("server/KafkaServer/linux-disk-write-bytes", Kind.GAUGE, "Bytes that the process has written.")
CPU_SECONDS = _own("process_cpu_seconds_total", Kind.COUNTER, "Seconds of processor time, user and system.")
RESIDENT_BYTES = _own("process_resident_memory_bytes", Kind.GAUGE, "Bytes of memory.")
OPEN_FILES = _own("process_open_fds", Kind.GAUGE, "Open files.")
MAX_FILES = _own("process_max_fds", Kind.GAUGE, "Most files that may be open.")
START_SECONDS = _own("process_start_time_seconds", Kind.GAUGE, "Time of the node's start, in seconds since 1970.")
LOOP_TURN = _own(
    "kbroker_event_loop_turn_ms",
    Kind.SUMMARY,
    "Milliseconds that a turn of the event loop takes: a new request waits for so long.",
)

# --- kafka-exporter's -----------------------------------------------------------------------------------------

BROKER_INFO = _own("kafka_broker_info", Kind.GAUGE, "1 for each broker of the cluster.", ("address", "id"))
TOPIC_PARTITIONS = _own("kafka_topic_partitions", Kind.GAUGE, "Partitions of a topic.", TOPIC)
_P = "kafka_topic_partition"
CURRENT_OFFSET = _own(f"{_P}_current_offset", Kind.GAUGE, "High watermark, by the leader.", PARTITION)
OLDEST_OFFSET = _own(f"{_P}_oldest_offset", Kind.GAUGE, "Log start offset, by the leader.", PARTITION)
IN_SYNC_REPLICA = _own(f"{_P}_in_sync_replica", Kind.GAUGE, "Size of the ISR, by the leader.", PARTITION)
REPLICA = _own(f"{_P}_replicas", Kind.GAUGE, "Replicas, by the leader.", PARTITION)
LEADER = _own(f"{_P}_leader", Kind.GAUGE, "Id of the leader, by itself.", PARTITION)
LEADER_IS_PREFERRED = _own(
    f"{_P}_leader_is_preferred", Kind.GAUGE, "1 if the first replica leads, by the leader.", PARTITION
)
UNDER_REPLICATED_PARTITION = _own(
    f"{_P}_under_replicated_partition", Kind.GAUGE, "1 if a replica is outside of the ISR, by the leader.", PARTITION
)
_G = "kafka_consumergroup"
_GROUP_PARTITION = ("consumergroup", "topic", "partition")
GROUP_OFFSET = _own(f"{_G}_current_offset", Kind.GAUGE, "Committed offset, by the coordinator.", _GROUP_PARTITION)
GROUP_LAG = _own(
    f"{_G}_lag",
    Kind.GAUGE,
    "Records between the committed offset and the high watermark, where the coordinator has a replica.",
    _GROUP_PARTITION,
)
GROUP_MEMBERS = _own(f"{_G}_members", Kind.GAUGE, "Members, by the coordinator.", ("consumergroup",))


# --- what dashboards ask for and a node does not have ------------------------------------------------------------

_CHANNEL = ("incoming_byte", "outgoing_byte", "request", "response")

ABSENT: dict[str, tuple[str, ...]] = {
    "The quorum's requests are not counted apart from others": (
        *(f"kafka_server_raftchannelmetrics_{name}_total" for name in _CHANNEL),
        *(f"kafka_server_raft_channel_metrics_{name}" for name in _CHANNEL),
    ),
    "Times of the quorum and of the controller's queue are not measured": (
        "kafka_server_raftmetrics_commit_latency_avg",
        "kafka_server_raft_metrics_commit_latency_avg",
        "kafka_server_raft_metrics_election_latency_max",
        "kafka_controller_controllereventmanager_eventqueueprocessingtimems",
        "kafka_controller_controllereventmanager_eventqueuetimems",
        "kafka_controller_kafkacontroller_lastappliedrecordlagms",
    ),
    "A node that meets an error in the metadata stops": ("kafka_controller_kafkacontroller_metadataerrorcount",),
    "One event loop reads, serves and sends: there are no queues between threads": (
        "kafka_network_requestchannel_requestqueuesize",
        "kafka_network_requestchannel_responsequeuesize",
        "kafka_network_requestmetrics_requestqueuetimems",
        "kafka_network_requestmetrics_responsequeuetimems",
        "kafka_network_requestmetrics_responsesendtimems",
        "kafka_network_acceptor_acceptorblockedpercent",
    ),
    "Errors are not counted by their codes": ("kafka_network_requestmetrics_errorspersec",),
    "Batches are never converted (Kafka 4 does not, either)": (
        "kafka_server_brokertopicmetrics_fetchmessageconversionspersec",
        "kafka_server_brokertopicmetrics_producemessageconversionspersec",
    ),
    "There is no tiered storage": ("kafka_log_log_tiersize",),
    "Not counted": (
        "kafka_server_replicafetchermanager_minfetchrate",
        "kafka_server_replicamanager_straypartitionscount",
        "kafka_server_replicamanager_straypartitionsmisclassifiedcount",
        "kafka_server_replicamanager_straypartitionstotalsize",
    ),
}
"""Names in published dashboards that a node does not serve, by the reason."""


def all_families() -> list[Family]:
    """Every family, in the order of this table."""
    found: list[Family] = []
    for value in globals().values():
        if isinstance(value, Family):
            found.append(value)
        elif isinstance(value, dict):
            found.extend(family for family in value.values() if isinstance(family, Family))
    return found
