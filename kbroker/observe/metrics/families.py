"""The table of metrics of topics, partitions, requests, connections and the process, and kafka-exporter's names."""

from __future__ import annotations

from kbroker.observe.metrics.dialect import Dialect, Kind
from kbroker.observe.metrics.family import PARTITION, TOPIC, Family, mbean, of_group, own

# --- topics ---------------------------------------------------------------------------------------------------

_TRAFFIC = "server/BrokerTopicMetrics"

TRAFFIC: dict[str, Family] = {
    "bytes_in": mbean(
        f"{_TRAFFIC}/BytesInPerSec", Kind.COUNTER, "Bytes appended as leader; without a topic, of all topics.", TOPIC
    ),
    "bytes_out": mbean(f"{_TRAFFIC}/BytesOutPerSec", Kind.COUNTER, "Bytes sent to consumers.", TOPIC),
    "messages_in": mbean(f"{_TRAFFIC}/MessagesInPerSec", Kind.COUNTER, "Records appended as leader.", TOPIC),
    "produces": mbean(
        f"{_TRAFFIC}/TotalProduceRequestsPerSec", Kind.COUNTER, "Batches that producers have sent to partitions.", TOPIC
    ),
    "fetches": mbean(
        f"{_TRAFFIC}/TotalFetchRequestsPerSec", Kind.COUNTER, "Partitions that consumers have read with records.", TOPIC
    ),
    "failed_produces": mbean(
        f"{_TRAFFIC}/FailedProduceRequestsPerSec", Kind.COUNTER, "Batches that were refused or not written.", TOPIC
    ),
    "conversions": mbean(
        f"{_TRAFFIC}/ProduceMessageConversionsPerSec",
        Kind.COUNTER,
        "Records of producers that the node has compressed anew, since the topic's `compression.type` is another codec "
        "than the producer's (KIP-188).",
        TOPIC,
    ),
    "share_fetches": mbean(
        f"{_TRAFFIC}/TotalShareFetchRequestsPerSec",
        Kind.COUNTER,
        "Partitions that share consumers have been given an answer for (KIP-1103).",
        TOPIC,
    ),
    "failed_share_fetches": mbean(
        f"{_TRAFFIC}/FailedShareFetchRequestsPerSec", Kind.COUNTER, "Of these, partitions with an error.", TOPIC
    ),
    "share_acknowledgements": mbean(
        f"{_TRAFFIC}/TotalShareAcknowledgementRequestsPerSec",
        Kind.COUNTER,
        "Partitions whose records share consumers have acknowledged, once for each request (KIP-1103).",
        TOPIC,
    ),
    "failed_share_acknowledgements": mbean(
        f"{_TRAFFIC}/FailedShareAcknowledgementRequestsPerSec",
        Kind.COUNTER,
        "Of these, those that were refused.",
        TOPIC,
    ),
    "failed_fetches": mbean(
        f"{_TRAFFIC}/FailedFetchRequestsPerSec", Kind.COUNTER, "Partitions that could not be read.", TOPIC
    ),
}
"""By the name of the count in `kbroker.observe.metrics.traffic.TopicTraffic`."""

REPLICATION_BYTES_OUT = mbean(f"{_TRAFFIC}/ReplicationBytesOutPerSec", Kind.COUNTER, "Bytes sent to followers.")
REPLICATION_BYTES_IN = mbean(
    f"{_TRAFFIC}/ReplicationBytesInPerSec", Kind.COUNTER, "Bytes copied from leaders, as follower."
)
REASSIGNMENT_BYTES_OUT = mbean(
    f"{_TRAFFIC}/ReassignmentBytesOutPerSec",
    Kind.COUNTER,
    "Of the bytes sent to followers, those for replicas that a reassignment adds (KIP-352).",
)
REASSIGNMENT_BYTES_IN = mbean(
    f"{_TRAFFIC}/ReassignmentBytesInPerSec",
    Kind.COUNTER,
    "Of the bytes copied as follower, those of replicas that a reassignment adds (KIP-352).",
)

# --- partitions -----------------------------------------------------------------------------------------------

UNDER_MIN_ISR = mbean(
    "cluster/Partition/UnderMinIsr", Kind.GAUGE, "1 if the ISR is smaller than min.insync.replicas.", PARTITION
)
AT_MIN_ISR = mbean(
    "cluster/Partition/AtMinIsr", Kind.GAUGE, "1 if the ISR is as small as min.insync.replicas allows.", PARTITION
)
UNDER_REPLICATED = mbean(
    "cluster/Partition/UnderReplicated", Kind.GAUGE, "1 if a replica is outside of the ISR.", PARTITION
)
REPLICAS = mbean("cluster/Partition/ReplicasCount", Kind.GAUGE, "Replicas, by the leader.", PARTITION)
IN_SYNC_REPLICAS = mbean("cluster/Partition/InSyncReplicasCount", Kind.GAUGE, "Size of the ISR.", PARTITION)
LAST_STABLE_OFFSET_LAG = mbean(
    "cluster/Partition/LastStableOffsetLag",
    Kind.GAUGE,
    "Records that read_committed cannot see because a transaction before them is open.",
    PARTITION,
)
LOG_SIZE = mbean("log/Log/Size", Kind.GAUGE, "Bytes of the log.", PARTITION)
LOG_END_OFFSET = mbean("log/Log/LogEndOffset", Kind.GAUGE, "Offset of the next record.", PARTITION)
LOG_START_OFFSET = mbean("log/Log/LogStartOffset", Kind.GAUGE, "Offset of the first record that is kept.", PARTITION)
LOG_SEGMENTS = mbean("log/Log/NumLogSegments", Kind.GAUGE, "Segments of the log.", PARTITION)
RETENTION_PERCENT = mbean(
    "log/Log/RetentionSizeInPercent",
    Kind.GAUGE,
    "Bytes of the log in percent of retention.bytes; 0 without such a limit (KIP-1257).",
    PARTITION,
)
LAST_STABLE_OFFSET_HELD = own(
    "kbroker_partition_last_stable_offset_held_seconds",
    Kind.GAUGE,
    "Age of the open transaction that holds the last stable offset, by its first batch: read_committed waits for this "
    "producer. The transactional id is empty where another broker coordinates it.",
    (*PARTITION, "producer_id", "transactional_id"),
)

# --- the broker's replicas ------------------------------------------------------------------------------------

PARTITION_COUNT = mbean("server/ReplicaManager/PartitionCount", Kind.GAUGE, "Replicas on this broker.")
LEADER_COUNT = mbean("server/ReplicaManager/LeaderCount", Kind.GAUGE, "Partitions that this broker leads.")
UNDER_REPLICATED_PARTITIONS = mbean(
    "server/ReplicaManager/UnderReplicatedPartitions", Kind.GAUGE, "Led partitions with a replica outside of the ISR."
)
UNDER_MIN_ISR_PARTITIONS = mbean(
    "server/ReplicaManager/UnderMinIsrPartitionCount", Kind.GAUGE, "Led partitions that take no acks=all."
)
AT_MIN_ISR_PARTITIONS = mbean(
    "server/ReplicaManager/AtMinIsrPartitionCount", Kind.GAUGE, "Led partitions that bear the loss of no replica."
)
OFFLINE_REPLICAS = mbean("server/ReplicaManager/OfflineReplicaCount", Kind.GAUGE, "Replicas in log dirs that failed.")
DAMAGED_REPLICAS = own(
    "kbroker_damaged_replicas", Kind.GAUGE, "Replicas whose logs lack what they once had, until they are healed."
)
ISR_SHRINKS = mbean("server/ReplicaManager/IsrShrinksPerSec", Kind.COUNTER, "Proposals of a smaller ISR.")
ISR_EXPANDS = mbean("server/ReplicaManager/IsrExpandsPerSec", Kind.COUNTER, "Proposals of a larger ISR.")
MAX_LAG = mbean(
    "server/ReplicaFetcherManager/MaxLag",
    Kind.GAUGE,
    "Most records that a follower of this leader lags behind.",
    ("clientId",),
)
REASSIGNING = mbean(
    "server/ReplicaManager/ReassigningPartitions",
    Kind.GAUGE,
    "Led partitions whose replicas are being moved (KIP-352).",
)
FAILED_ISR_UPDATES = mbean(
    "server/ReplicaManager/FailedIsrUpdatesPerSec", Kind.COUNTER, "Proposals of an ISR that the controller refused."
)
PRODUCER_IDS = mbean(
    "server/ReplicaManager/ProducerIdCount",
    Kind.GAUGE,
    "Producers that the logs remember, of each partition (KIP-847).",
)
PURGATORY = mbean(
    "server/DelayedOperationPurgatory/PurgatorySize",
    Kind.GAUGE,
    "Partitions that waiting requests watch.",
    ("delayedOperation",),
)
QUEUED_ASSIGNMENTS = mbean(
    "server/AssignmentsManager/QueuedReplicaToDirAssignments",
    Kind.GAUGE,
    "Replicas in another log directory than the controller knows, on a broker with several (KIP-1100).",
)
OFFLINE_LOG_DIRS = mbean("log/LogManager/OfflineLogDirectoryCount", Kind.GAUGE, "Log dirs that have failed.")
LOG_DIR = ("logDirectory",)
LOG_DIR_OFFLINE = mbean("log/LogManager/LogDirectoryOffline", Kind.GAUGE, "1 if the log dir has failed.", LOG_DIR)
CORDONED_LOG_DIRS = mbean(
    "log/LogManager/CordonedLogDirectoryCount", Kind.GAUGE, "Log dirs that take no new replicas (KIP-1066)."
)
LOG_DIR_CORDONED = mbean("log/LogManager/LogDirectoryCordoned", Kind.GAUGE, "1 if the log dir is cordoned.", LOG_DIR)
RECOVERING = ("dir",)
LOGS_TO_RECOVER = mbean(
    "log/LogManager/remainingLogsToRecover",
    Kind.GAUGE,
    "Logs of a log dir that are still to be opened; there while a start opens them (KIP-831).",
    RECOVERING,
)
SEGMENTS_TO_RECOVER = mbean(
    "log/LogManager/remainingSegmentsToRecover",
    Kind.GAUGE,
    "Segments of the log at work in a log dir that a start has still to verify after a crash (KIP-831).",
    (*RECOVERING, "threadNum"),
)
LOG_DIR_TOTAL = own("kbroker_log_dir_total_bytes", Kind.GAUGE, "Bytes of the file system of a log dir.", LOG_DIR)
LOG_DIR_FREE = own(
    "kbroker_log_dir_free_bytes", Kind.GAUGE, "Bytes of the file system of a log dir that the node may use.", LOG_DIR
)
FLUSH_TIME = mbean(
    "log/LogFlushStats/LogFlushRateAndTimeMs",
    Kind.SUMMARY,
    "Milliseconds that flushes of log segments to the disk take, those of a round together.",
)
UNCLEANABLE = mbean(
    "log/LogCleanerManager/uncleanable-partitions-count",
    Kind.GAUGE,
    "Compacted logs that could not be cleaned and are left alone (KIP-346).",
    LOG_DIR,
)
UNCLEANABLE_BYTES = mbean(
    "log/LogCleanerManager/uncleanable-bytes", Kind.GAUGE, "Bytes of these logs (KIP-346).", LOG_DIR
)
OTHER_UP = own(
    "kbroker_other_node_up",
    Kind.GAUGE,
    "1 if another node of the machine has shown its metrics on this page, 0 if it has not answered (`--cores`).",
    ("other",),
)
SCRUBBED = own("kbroker_log_scrubbed_bytes_total", Kind.COUNTER, "Bytes of logs that the scrubber has read.", LOG_DIR)
SCRUB_PROGRESS = own(
    "kbroker_log_scrub_progress",
    Kind.GAUGE,
    "Share of a log dir that the scrubber's latest round has read, between 0 and 1.",
    LOG_DIR,
)
SCRUB_END = own(
    "kbroker_log_scrub_end_timestamp_seconds",
    Kind.GAUGE,
    "When the scrubber last came to the end of a log dir, in seconds since 1970; 0 if it never has.",
    LOG_DIR,
)
SCRUB_DAMAGE = own(
    "kbroker_log_scrub_damage", Kind.GAUGE, "Damaged places that the scrubber's latest round has found.", LOG_DIR
)
FETCH_SESSIONS = mbean(
    "server/FetchSessionCache/NumIncrementalFetchSessions", Kind.GAUGE, "Fetch sessions of consumers and followers."
)
FETCH_SESSION_EVICTIONS = mbean(
    "server/FetchSessionCache/IncrementalFetchSessionEvictionsPerSec", Kind.COUNTER, "Sessions that made room."
)

# --- requests and connections ---------------------------------------------------------------------------------

_REQUESTS = "network/RequestMetrics"
REQUEST = ("request",)
REQUEST_COUNT = mbean(f"{_REQUESTS}/RequestsPerSec", Kind.COUNTER, "Requests served.", ("request", "version"))
ERRORS = mbean(
    f"{_REQUESTS}/ErrorsPerSec",
    Kind.COUNTER,
    "Errors in responses by their code, those of parts included. What has none is not counted as NONE, as Kafka does.",
    ("request", "error"),
)
STAGES: dict[str, Family] = {
    "queue": mbean(
        f"{_REQUESTS}/RequestQueueTimeMs",
        Kind.SUMMARY,
        "Milliseconds from the begin of the event loop's turn to that of the request's work: it waits for others.",
        REQUEST,
    ),
    "local": mbean(f"{_REQUESTS}/LocalTimeMs", Kind.SUMMARY, "Milliseconds of work for a request.", REQUEST),
    "remote": mbean(
        f"{_REQUESTS}/RemoteTimeMs",
        Kind.SUMMARY,
        "Milliseconds that a request waits for others, or for records.",
        REQUEST,
    ),
    "response_queue": mbean(
        f"{_REQUESTS}/ResponseQueueTimeMs",
        Kind.SUMMARY,
        "Milliseconds that a complete response waits for earlier ones of its connection, and for its round's end.",
        REQUEST,
    ),
    "send": mbean(
        f"{_REQUESTS}/ResponseSendTimeMs",
        Kind.SUMMARY,
        "Milliseconds until the socket has taken the response, with what is queued behind it.",
        REQUEST,
    ),
    "total": mbean(f"{_REQUESTS}/TotalTimeMs", Kind.SUMMARY, "The sum of all these.", REQUEST),
}
"""By the name of the stage in `kbroker.observe.metrics.requests.StageTimes`."""
REQUEST_BYTES = mbean(f"{_REQUESTS}/RequestBytes", Kind.SUMMARY, "Bytes of requests.", REQUEST)
PROCESSOR_IDLE = mbean(
    "network/SocketServer/NetworkProcessorAvgIdlePercent", Kind.GAUGE, "Share of time that the event loop sleeps."
)
HANDLER_IDLE = mbean(
    "server/KafkaRequestHandlerPool/RequestHandlerAvgIdlePercent",
    Kind.IDLE,
    "The same: one event loop reads requests and serves them.",
)
BROKER_HANDLER_IDLE = mbean(
    "server/KafkaRequestHandlerPool/BrokerRequestHandlerAvgIdlePercent", Kind.IDLE, "The same, on a broker (KIP-1207)."
)
CONTROLLER_HANDLER_IDLE = mbean(
    "server/KafkaRequestHandlerPool/ControllerRequestHandlerAvgIdlePercent",
    Kind.IDLE,
    "The same, on a controller (KIP-1207).",
)
_SOCKETS = "socket-server-metrics"
_SOCKETS_JOINED = (Dialect.CONFLUENT,)
LISTENER = ("listener", "networkProcessor")
CONNECTIONS = of_group(
    f"{_SOCKETS}/connection-count", Kind.GAUGE, "Connections that are open.", LISTENER, _SOCKETS_JOINED
)
CONNECTION_CREATIONS = of_group(
    f"{_SOCKETS}/connection-creation-total", Kind.COUNTER, "Connections that were let in.", LISTENER, _SOCKETS_JOINED
)
CONNECTION_CREATION_RATE = of_group(
    f"{_SOCKETS}/connection-creation-rate", Kind.GAUGE, "The same for each second.", LISTENER, _SOCKETS_JOINED
)
CONNECTION_CLOSE_RATE = of_group(
    f"{_SOCKETS}/connection-close-rate", Kind.GAUGE, "Connections that end in a second.", LISTENER, _SOCKETS_JOINED
)
CLIENTS = of_group(
    f"{_SOCKETS}/connections",
    Kind.GAUGE,
    "Open connections by the software of the client (KIP-511).",
    ("client_software_name", "client_software_version", "listener"),
    _SOCKETS_JOINED,
)

DISK_READS = own(
    "kbroker_record_disk_reads_total",
    Kind.COUNTER,
    "Times that records for a consumer or a follower were not in the page cache and were read from a disk (Linux).",
)
DISK_READ_BYTES = own("kbroker_record_disk_read_bytes_total", Kind.COUNTER, "Bytes of these pieces, up to 1 MiB each.")

# --- the node -------------------------------------------------------------------------------------------------

BROKER_STATE = mbean(
    "server/KafkaServer/BrokerState",
    Kind.GAUGE,
    "3 once the broker was unfenced, 2 from its registration until then and while its logs are opened, 1 before.",
)
START_TIME = own("kafka_server_app_info_starttimems", Kind.GAUGE, "Time of the node's start, in ms (KIP-436).", ("id",))
_LINUX = "server/KafkaServer/linux-disk"
LINUX_DISK: dict[str, Family] = {
    "read_bytes": mbean(f"{_LINUX}-read-bytes", Kind.GAUGE, "Bytes that the process has had read from disks."),
    "write_bytes": mbean(f"{_LINUX}-write-bytes", Kind.GAUGE, "Bytes that the process has had written to disks."),
    "rchar": mbean(f"{_LINUX}-rchar", Kind.GAUGE, "Bytes that the process has read, from the page cache or a socket."),
    "wchar": mbean(f"{_LINUX}-wchar", Kind.GAUGE, "Bytes that the process has written, to the page cache or a socket."),
    "syscr": mbean(f"{_LINUX}-syscr", Kind.GAUGE, "System calls that read."),
    "syscw": mbean(f"{_LINUX}-syscw", Kind.GAUGE, "System calls that write."),
    "cancelled_write_bytes": mbean(
        f"{_LINUX}-cancelled-write-bytes", Kind.GAUGE, "Bytes that were deleted before they were written to disks."
    ),
}
"""By the name in ``/proc/self/io`` (KIP-551, KIP-1291)."""
MAJOR_FAULTS = own(
    "process_major_page_faults_total",
    Kind.COUNTER,
    "Times that the process has waited for a page from a disk: indexes and code that were not in memory. Records that "
    "were not are counted apart.",
)
CPU_SECONDS = own("process_cpu_seconds_total", Kind.COUNTER, "Seconds of processor time, user and system.")
RESIDENT_BYTES = own("process_resident_memory_bytes", Kind.GAUGE, "Bytes of memory.")
OPEN_FILES = own("process_open_fds", Kind.GAUGE, "Open files.")
MAX_FILES = own("process_max_fds", Kind.GAUGE, "Most files that may be open.")
START_SECONDS = own("process_start_time_seconds", Kind.GAUGE, "Time of the node's start, in seconds since 1970.")
LOOP_TURN = own(
    "kbroker_event_loop_turn_ms",
    Kind.SUMMARY,
    "Milliseconds that a turn of the event loop takes: a new request waits for so long.",
)

# --- kafka-exporter's -----------------------------------------------------------------------------------------

BROKER_INFO = own("kafka_broker_info", Kind.GAUGE, "1 for each broker, by itself.", ("address", "id"))
BROKERS = own("kafka_brokers", Kind.GAUGE, "Brokers that clients see: those that are not fenced; on every node.")
TOPIC_PARTITIONS = own(
    "kafka_topic_partitions",
    Kind.GAUGE,
    "Partitions of a topic, by the leader of the first one that has a leader.",
    TOPIC,
)
_P = "kafka_topic_partition"
CURRENT_OFFSET = own(f"{_P}_current_offset", Kind.GAUGE, "High watermark, by the leader.", PARTITION)
OLDEST_OFFSET = own(f"{_P}_oldest_offset", Kind.GAUGE, "Log start offset, by the leader.", PARTITION)
IN_SYNC_REPLICA = own(f"{_P}_in_sync_replica", Kind.GAUGE, "Size of the ISR, by the leader.", PARTITION)
REPLICA = own(f"{_P}_replicas", Kind.GAUGE, "Replicas, by the leader.", PARTITION)
LEADER = own(f"{_P}_leader", Kind.GAUGE, "Id of the leader, by itself.", PARTITION)
LEADER_IS_PREFERRED = own(
    f"{_P}_leader_is_preferred", Kind.GAUGE, "1 if the first replica leads, by the leader.", PARTITION
)
UNDER_REPLICATED_PARTITION = own(
    f"{_P}_under_replicated_partition", Kind.GAUGE, "1 if a replica is outside of the ISR, by the leader.", PARTITION
)
_G = "kafka_consumergroup"
_GROUP_PARTITION = ("consumergroup", "topic", "partition")
GROUP_OFFSET = own(f"{_G}_current_offset", Kind.GAUGE, "Committed offset, by the coordinator.", _GROUP_PARTITION)
GROUP_LAG = own(
    f"{_G}_lag",
    Kind.GAUGE,
    "Records between the committed offset and the high watermark. Where the coordinator has no replica, the leader "
    "tells it, up to 30 s ago; absent if it does not.",
    _GROUP_PARTITION,
)
_GROUP_TOPIC = ("consumergroup", "topic")
GROUP_LAG_SUM = own(
    f"{_G}_lag_sum",
    Kind.GAUGE,
    "The sum of a group's lags in a topic; absent where one of them is not known.",
    _GROUP_TOPIC,
)
GROUP_OFFSET_SUM = own(
    f"{_G}_current_offset_sum", Kind.GAUGE, "The sum of a group's committed offsets in a topic.", _GROUP_TOPIC
)
GROUP_LAG_SECONDS = own(
    f"{_G}_lag_seconds",
    Kind.GAUGE,
    "Age of the oldest record that the group has not committed: seconds since the timestamp of the first record of its "
    "batch, by the node's clock; 0 if all is committed. Absent where the group is behind and the coordinator has no "
    "replica of the partition, or the batch has no timestamp.",
    _GROUP_PARTITION,
)
GROUP_MEMBERS = own(f"{_G}_members", Kind.GAUGE, "Members, by the coordinator.", ("consumergroup",))

# --- Tables that topics are followed into, beside this node (`--tables`) --------------------------------------------

_TABLE = ("topic", "table")
TABLES = {
    "lag": own("kbroker_table_lag", Kind.GAUGE, "Records of the topic that the table has not.", _TABLE),
    "seconds": own("kbroker_table_lag_seconds", Kind.GAUGE, "Age of the oldest record that the table has not.", _TABLE),
    "rows": own("kbroker_table_rows_total", Kind.COUNTER, "Rows that were added since the follower's start.", _TABLE),
    "commits": own("kbroker_table_commits_total", Kind.COUNTER, "Commits since then.", _TABLE),
    "dead_letters": own("kbroker_table_dead_letters_total", Kind.COUNTER, "Dead letters since then.", _TABLE),
    "errors": own("kbroker_table_errors_total", Kind.COUNTER, "Errors since then, after which it tried again.", _TABLE),
}
TABLE_FOLLOWED = own(
    "kbroker_table_followed", Kind.GAUGE, "1 while the table gets rows; 0 if it is paused, or tried again.", _TABLE
)
