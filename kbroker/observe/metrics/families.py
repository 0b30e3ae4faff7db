"""The table of metrics of topics, partitions, requests, connections and the process, and kafka-exporter's names."""

from __future__ import annotations

from kbroker.observe.metrics.dialect import Dialect
from kbroker.observe.metrics.family import OWN, PARTITION, TOPIC, Family, mbean, of_group

# --- topics ---------------------------------------------------------------------------------------------------


_TRAFFIC = mbean("server/BrokerTopicMetrics")
_TOPICS = mbean("server/BrokerTopicMetrics", TOPIC)
TRAFFIC: dict[str, Family] = {
    "bytes_in": _TOPICS.counter("BytesInPerSec", "Bytes appended as leader; without a topic, of all topics."),
    "bytes_out": _TOPICS.counter("BytesOutPerSec", "Bytes sent to consumers."),
    "messages_in": _TOPICS.counter("MessagesInPerSec", "Records appended as leader."),
    "produces": _TOPICS.counter("TotalProduceRequestsPerSec", "Batches that producers have sent to partitions."),
    "fetches": _TOPICS.counter("TotalFetchRequestsPerSec", "Partitions that consumers have read with records."),
    "failed_produces": _TOPICS.counter("FailedProduceRequestsPerSec", "Batches that were refused or not written."),
    "conversions": _TOPICS.counter(
        "ProduceMessageConversionsPerSec",
        "Records of producers that the node has compressed anew, since the topic's `compression.type` is another codec "
        "than the producer's (KIP-188).",
    ),
    "share_fetches": _TOPICS.counter(
        "TotalShareFetchRequestsPerSec", "Partitions that share consumers have been given an answer for (KIP-1103)."
    ),
    "failed_share_fetches": _TOPICS.counter("FailedShareFetchRequestsPerSec", "Of these, partitions with an error."),
    "share_acknowledgements": _TOPICS.counter(
        "TotalShareAcknowledgementRequestsPerSec",
        "Partitions whose records share consumers have acknowledged, once for each request (KIP-1103).",
    ),
    "failed_share_acknowledgements": _TOPICS.counter(
        "FailedShareAcknowledgementRequestsPerSec", "Of these, those that were refused."
    ),
    "failed_fetches": _TOPICS.counter("FailedFetchRequestsPerSec", "Partitions that could not be read."),
}
"""By the name of the count in `kbroker.observe.metrics.traffic.TopicTraffic`."""

REPLICATION_BYTES_OUT = _TRAFFIC.counter("ReplicationBytesOutPerSec", "Bytes sent to followers.")
REPLICATION_BYTES_IN = _TRAFFIC.counter("ReplicationBytesInPerSec", "Bytes copied from leaders, as follower.")
REASSIGNMENT_BYTES_OUT = _TRAFFIC.counter(
    "ReassignmentBytesOutPerSec",
    "Of the bytes sent to followers, those for replicas that a reassignment adds (KIP-352).",
)
REASSIGNMENT_BYTES_IN = _TRAFFIC.counter(
    "ReassignmentBytesInPerSec",
    "Of the bytes copied as follower, those of replicas that a reassignment adds (KIP-352).",
)

# --- partitions -----------------------------------------------------------------------------------------------

_PARTITION = mbean("cluster/Partition", PARTITION)
UNDER_MIN_ISR = _PARTITION.gauge("UnderMinIsr", "1 if the ISR is smaller than min.insync.replicas.")
AT_MIN_ISR = _PARTITION.gauge("AtMinIsr", "1 if the ISR is as small as min.insync.replicas allows.")
UNDER_REPLICATED = _PARTITION.gauge("UnderReplicated", "1 if a replica is outside of the ISR.")
REPLICAS = _PARTITION.gauge("ReplicasCount", "Replicas, by the leader.")
IN_SYNC_REPLICAS = _PARTITION.gauge("InSyncReplicasCount", "Size of the ISR.")
LAST_STABLE_OFFSET_LAG = _PARTITION.gauge(
    "LastStableOffsetLag", "Records that read_committed cannot see because a transaction before them is open."
)
_LOG = mbean("log/Log", PARTITION)
LOG_SIZE = _LOG.gauge("Size", "Bytes of the log.")
LOG_END_OFFSET = _LOG.gauge("LogEndOffset", "Offset of the next record.")
LOG_START_OFFSET = _LOG.gauge("LogStartOffset", "Offset of the first record that is kept.")
LOG_SEGMENTS = _LOG.gauge("NumLogSegments", "Segments of the log.")
RETENTION_PERCENT = _LOG.gauge(
    "RetentionSizeInPercent", "Bytes of the log in percent of retention.bytes; 0 without such a limit (KIP-1257)."
)
LAST_STABLE_OFFSET_HELD = OWN.gauge(
    "kbroker_partition_last_stable_offset_held_seconds",
    "Age of the open transaction that holds the last stable offset, by its first batch: read_committed waits for this "
    "producer. The transactional id is empty where another broker coordinates it.",
    (*PARTITION, "producer_id", "transactional_id"),
)

# --- the broker's replicas ------------------------------------------------------------------------------------

_REPLICAS = mbean("server/ReplicaManager")
PARTITION_COUNT = _REPLICAS.gauge("PartitionCount", "Replicas on this broker.")
LEADER_COUNT = _REPLICAS.gauge("LeaderCount", "Partitions that this broker leads.")
UNDER_REPLICATED_PARTITIONS = _REPLICAS.gauge(
    "UnderReplicatedPartitions", "Led partitions with a replica outside of the ISR."
)
UNDER_MIN_ISR_PARTITIONS = _REPLICAS.gauge("UnderMinIsrPartitionCount", "Led partitions that take no acks=all.")
AT_MIN_ISR_PARTITIONS = _REPLICAS.gauge("AtMinIsrPartitionCount", "Led partitions that bear the loss of no replica.")
OFFLINE_REPLICAS = _REPLICAS.gauge("OfflineReplicaCount", "Replicas in log dirs that failed.")
DAMAGED_REPLICAS = OWN.gauge(
    "kbroker_damaged_replicas", "Replicas whose logs lack what they once had, until they are healed."
)
ISR_SHRINKS = _REPLICAS.counter("IsrShrinksPerSec", "Proposals of a smaller ISR.")
ISR_EXPANDS = _REPLICAS.counter("IsrExpandsPerSec", "Proposals of a larger ISR.")
MAX_LAG = mbean("server/ReplicaFetcherManager", ("clientId",)).gauge(
    "MaxLag", "Most records that a follower of this leader lags behind."
)
REASSIGNING = _REPLICAS.gauge("ReassigningPartitions", "Led partitions whose replicas are being moved (KIP-352).")
FAILED_ISR_UPDATES = _REPLICAS.counter("FailedIsrUpdatesPerSec", "Proposals of an ISR that the controller refused.")
PRODUCER_IDS = _REPLICAS.gauge("ProducerIdCount", "Producers that the logs remember, of each partition (KIP-847).")
PURGATORY = mbean("server/DelayedOperationPurgatory", ("delayedOperation",)).gauge(
    "PurgatorySize", "Partitions that waiting requests watch."
)
QUEUED_ASSIGNMENTS = mbean("server/AssignmentsManager").gauge(
    "QueuedReplicaToDirAssignments",
    "Replicas in another log directory than the controller knows, on a broker with several (KIP-1100).",
)
_LOG_DIRS = mbean("log/LogManager")
OFFLINE_LOG_DIRS = _LOG_DIRS.gauge("OfflineLogDirectoryCount", "Log dirs that have failed.")
LOG_DIR = ("logDirectory",)
LOG_DIR_OFFLINE = _LOG_DIRS.gauge("LogDirectoryOffline", "1 if the log dir has failed.", LOG_DIR)
CORDONED_LOG_DIRS = _LOG_DIRS.gauge("CordonedLogDirectoryCount", "Log dirs that take no new replicas (KIP-1066).")
LOG_DIR_CORDONED = _LOG_DIRS.gauge("LogDirectoryCordoned", "1 if the log dir is cordoned.", LOG_DIR)
RECOVERING = ("dir",)
LOGS_TO_RECOVER = _LOG_DIRS.gauge(
    "remainingLogsToRecover",
    "Logs of a log dir that are still to be opened; there while a start opens them (KIP-831).",
    RECOVERING,
)
SEGMENTS_TO_RECOVER = _LOG_DIRS.gauge(
    "remainingSegmentsToRecover",
    "Segments of the log at work in a log dir that a start has still to verify after a crash (KIP-831).",
    (*RECOVERING, "threadNum"),
)
LOG_DIR_TOTAL = OWN.gauge("kbroker_log_dir_total_bytes", "Bytes of the file system of a log dir.", LOG_DIR)
LOG_DIR_FREE = OWN.gauge(
    "kbroker_log_dir_free_bytes", "Bytes of the file system of a log dir that the node may use.", LOG_DIR
)
FLUSH_TIME = mbean("log/LogFlushStats").summary(
    "LogFlushRateAndTimeMs", "Milliseconds that flushes of log segments to the disk take, those of a round together."
)
_CLEANER = mbean("log/LogCleanerManager", LOG_DIR)
UNCLEANABLE = _CLEANER.gauge(
    "uncleanable-partitions-count", "Compacted logs that could not be cleaned and are left alone (KIP-346)."
)
UNCLEANABLE_BYTES = _CLEANER.gauge("uncleanable-bytes", "Bytes of these logs (KIP-346).")
OTHER_UP = OWN.gauge(
    "kbroker_other_node_up",
    "1 if another node of the machine has shown its metrics on this page, 0 if it has not answered (`--cores`).",
    ("other",),
)
SCRUBBED = OWN.counter("kbroker_log_scrubbed_bytes_total", "Bytes of logs that the scrubber has read.", LOG_DIR)
SCRUB_PROGRESS = OWN.gauge(
    "kbroker_log_scrub_progress",
    "Share of a log dir that the scrubber's latest round has read, between 0 and 1.",
    LOG_DIR,
)
SCRUB_END = OWN.gauge(
    "kbroker_log_scrub_end_timestamp_seconds",
    "When the scrubber last came to the end of a log dir, in seconds since 1970; 0 if it never has.",
    LOG_DIR,
)
SCRUB_DAMAGE = OWN.gauge(
    "kbroker_log_scrub_damage", "Damaged places that the scrubber's latest round has found.", LOG_DIR
)
_FETCH_SESSIONS = mbean("server/FetchSessionCache")
FETCH_SESSIONS = _FETCH_SESSIONS.gauge("NumIncrementalFetchSessions", "Fetch sessions of consumers and followers.")
FETCH_SESSION_EVICTIONS = _FETCH_SESSIONS.counter("IncrementalFetchSessionEvictionsPerSec", "Sessions that made room.")

# --- requests and connections ---------------------------------------------------------------------------------

REQUEST = ("request",)
_REQUESTS = mbean("network/RequestMetrics")
REQUEST_COUNT = _REQUESTS.counter("RequestsPerSec", "Requests served.", ("request", "version"))
ERRORS = _REQUESTS.counter(
    "ErrorsPerSec",
    "Errors in responses by their code, those of parts included. What has none is not counted as NONE, as Kafka does.",
    ("request", "error"),
)
STAGES: dict[str, Family] = {
    "queue": _REQUESTS.summary(
        "RequestQueueTimeMs",
        "Milliseconds from the begin of the event loop's turn to that of the request's work: it waits for others.",
        REQUEST,
    ),
    "local": _REQUESTS.summary("LocalTimeMs", "Milliseconds of work for a request.", REQUEST),
    "remote": _REQUESTS.summary(
        "RemoteTimeMs", "Milliseconds that a request waits for others, or for records.", REQUEST
    ),
    "response_queue": _REQUESTS.summary(
        "ResponseQueueTimeMs",
        "Milliseconds that a complete response waits for earlier ones of its connection, and for its round's end.",
        REQUEST,
    ),
    "send": _REQUESTS.summary(
        "ResponseSendTimeMs",
        "Milliseconds until the socket has taken the response, with what is queued behind it.",
        REQUEST,
    ),
    "total": _REQUESTS.summary("TotalTimeMs", "The sum of all these.", REQUEST),
}
"""By the name of the stage in `kbroker.observe.metrics.requests.StageTimes`."""
REQUEST_BYTES = _REQUESTS.summary("RequestBytes", "Bytes of requests.", REQUEST)
PROCESSOR_IDLE = mbean("network/SocketServer").gauge(
    "NetworkProcessorAvgIdlePercent", "Share of time that the event loop sleeps."
)
_HANDLERS = mbean("server/KafkaRequestHandlerPool")
HANDLER_IDLE = _HANDLERS.idle(
    "RequestHandlerAvgIdlePercent", "The same: one event loop reads requests and serves them."
)
BROKER_HANDLER_IDLE = _HANDLERS.idle("BrokerRequestHandlerAvgIdlePercent", "The same, on a broker (KIP-1207).")
CONTROLLER_HANDLER_IDLE = _HANDLERS.idle(
    "ControllerRequestHandlerAvgIdlePercent", "The same, on a controller (KIP-1207)."
)
_SOCKETS_JOINED = (Dialect.CONFLUENT,)
LISTENER = ("listener", "networkProcessor")
_SOCKETS = of_group("socket-server-metrics", joined=_SOCKETS_JOINED)
CONNECTIONS = _SOCKETS.gauge("connection-count", "Connections that are open.", LISTENER)
CONNECTION_CREATIONS = _SOCKETS.counter("connection-creation-total", "Connections that were let in.", LISTENER)
CONNECTION_CREATION_RATE = _SOCKETS.gauge("connection-creation-rate", "The same for each second.", LISTENER)
CONNECTION_CLOSE_RATE = _SOCKETS.gauge("connection-close-rate", "Connections that end in a second.", LISTENER)
CLIENTS = _SOCKETS.gauge(
    "connections",
    "Open connections by the software of the client (KIP-511).",
    ("client_software_name", "client_software_version", "listener"),
)

DISK_READS = OWN.counter(
    "kbroker_record_disk_reads_total",
    "Times that records for a consumer or a follower were not in the page cache and were read from a disk (Linux).",
)
DISK_READ_BYTES = OWN.counter("kbroker_record_disk_read_bytes_total", "Bytes of these pieces, up to 1 MiB each.")

# --- the node -------------------------------------------------------------------------------------------------

_SERVER = mbean("server/KafkaServer")
BROKER_STATE = _SERVER.gauge(
    "BrokerState",
    "3 once the broker was unfenced, 2 from its registration until then and while its logs are opened, 1 before.",
)
START_TIME = OWN.gauge("kafka_server_app_info_starttimems", "Time of the node's start, in ms (KIP-436).", ("id",))
LINUX_DISK: dict[str, Family] = {
    "read_bytes": _SERVER.gauge("linux-disk-read-bytes", "Bytes that the process has had read from disks."),
    "write_bytes": _SERVER.gauge("linux-disk-write-bytes", "Bytes that the process has had written to disks."),
    "rchar": _SERVER.gauge("linux-disk-rchar", "Bytes that the process has read, from the page cache or a socket."),
    "wchar": _SERVER.gauge("linux-disk-wchar", "Bytes that the process has written, to the page cache or a socket."),
    "syscr": _SERVER.gauge("linux-disk-syscr", "System calls that read."),
    "syscw": _SERVER.gauge("linux-disk-syscw", "System calls that write."),
    "cancelled_write_bytes": _SERVER.gauge(
        "linux-disk-cancelled-write-bytes", "Bytes that were deleted before they were written to disks."
    ),
}
"""By the name in ``/proc/self/io`` (KIP-551, KIP-1291)."""
MAJOR_FAULTS = OWN.counter(
    "process_major_page_faults_total",
    "Times that the process has waited for a page from a disk: indexes and code that were not in memory. Records that "
    "were not are counted apart.",
)
CPU_SECONDS = OWN.counter("process_cpu_seconds_total", "Seconds of processor time, user and system.")
RESIDENT_BYTES = OWN.gauge("process_resident_memory_bytes", "Bytes of memory.")
OPEN_FILES = OWN.gauge("process_open_fds", "Open files.")
MAX_FILES = OWN.gauge("process_max_fds", "Most files that may be open.")
START_SECONDS = OWN.gauge("process_start_time_seconds", "Time of the node's start, in seconds since 1970.")
LOOP_TURN = OWN.summary(
    "kbroker_event_loop_turn_ms", "Milliseconds that a turn of the event loop takes: a new request waits for so long."
)

# --- kafka-exporter's -----------------------------------------------------------------------------------------

BROKER_INFO = OWN.gauge("kafka_broker_info", "1 for each broker, by itself.", ("address", "id"))
BROKERS = OWN.gauge("kafka_brokers", "Brokers that clients see: those that are not fenced; on every node.")
TOPIC_PARTITIONS = OWN.gauge(
    "kafka_topic_partitions", "Partitions of a topic, by the leader of the first one that has a leader.", TOPIC
)
CURRENT_OFFSET = OWN.gauge("kafka_topic_partition_current_offset", "High watermark, by the leader.", PARTITION)
OLDEST_OFFSET = OWN.gauge("kafka_topic_partition_oldest_offset", "Log start offset, by the leader.", PARTITION)
IN_SYNC_REPLICA = OWN.gauge("kafka_topic_partition_in_sync_replica", "Size of the ISR, by the leader.", PARTITION)
REPLICA = OWN.gauge("kafka_topic_partition_replicas", "Replicas, by the leader.", PARTITION)
LEADER = OWN.gauge("kafka_topic_partition_leader", "Id of the leader, by itself.", PARTITION)
LEADER_IS_PREFERRED = OWN.gauge(
    "kafka_topic_partition_leader_is_preferred", "1 if the first replica leads, by the leader.", PARTITION
)
UNDER_REPLICATED_PARTITION = OWN.gauge(
    "kafka_topic_partition_under_replicated_partition",
    "1 if a replica is outside of the ISR, by the leader.",
    PARTITION,
)
_GROUP_PARTITION = ("consumergroup", "topic", "partition")
GROUP_OFFSET = OWN.gauge(
    "kafka_consumergroup_current_offset", "Committed offset, by the coordinator.", _GROUP_PARTITION
)
GROUP_LAG = OWN.gauge(
    "kafka_consumergroup_lag",
    "Records between the committed offset and the high watermark. Where the coordinator has no replica, the leader "
    "tells it, up to 30 s ago; absent if it does not.",
    _GROUP_PARTITION,
)
_GROUP_TOPIC = ("consumergroup", "topic")
GROUP_LAG_SUM = OWN.gauge(
    "kafka_consumergroup_lag_sum",
    "The sum of a group's lags in a topic; absent where one of them is not known.",
    _GROUP_TOPIC,
)
GROUP_OFFSET_SUM = OWN.gauge(
    "kafka_consumergroup_current_offset_sum", "The sum of a group's committed offsets in a topic.", _GROUP_TOPIC
)
GROUP_LAG_SECONDS = OWN.gauge(
    "kafka_consumergroup_lag_seconds",
    "Age of the oldest record that the group has not committed: seconds since the timestamp of the first record of its "
    "batch, by the node's clock; 0 if all is committed. Absent where the group is behind and the coordinator has no "
    "replica of the partition, or the batch has no timestamp.",
    _GROUP_PARTITION,
)
GROUP_MEMBERS = OWN.gauge("kafka_consumergroup_members", "Members, by the coordinator.", ("consumergroup",))

# --- Tables that topics are followed into, beside this node (`--tables`) --------------------------------------------

_TABLE = ("topic", "table")
TABLES = {
    "lag": OWN.gauge("kbroker_table_lag", "Records of the topic that the table has not.", _TABLE),
    "seconds": OWN.gauge("kbroker_table_lag_seconds", "Age of the oldest record that the table has not.", _TABLE),
    "rows": OWN.counter("kbroker_table_rows_total", "Rows that were added since the follower's start.", _TABLE),
    "commits": OWN.counter("kbroker_table_commits_total", "Commits since then.", _TABLE),
    "dead_letters": OWN.counter("kbroker_table_dead_letters_total", "Dead letters since then.", _TABLE),
    "errors": OWN.counter("kbroker_table_errors_total", "Errors since then, after which it tried again.", _TABLE),
}
TABLE_FOLLOWED = OWN.gauge(
    "kbroker_table_followed", "1 while the table gets rows; 0 if it is paused, or tried again.", _TABLE
)
