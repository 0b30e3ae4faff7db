"""The table of metrics of coordinators: groups, transactions, states of share groups."""

from __future__ import annotations

from kbroker.observe.metrics.dialect import Kind
from kbroker.observe.metrics.family import PARTITION, Family, mbean, of_group, own

# --- coordinators ---------------------------------------------------------------------------------------------

# `GroupMetadataManager` is deprecated since Kafka 4.4 (KIP-1301). Dashboards use it.
_GROUPS = "coordinator_group/GroupMetadataManager"
GROUPS = mbean(f"{_GROUPS}/NumGroups", Kind.GAUGE, "Groups of consumers that this broker coordinates.")
GROUP_STATES = ("Dead", "Empty", "Stable", "PreparingRebalance", "CompletingRebalance")
GROUPS_BY_STATE = {
    state: mbean(f"{_GROUPS}/NumGroups{state}", Kind.GAUGE, f"Classic groups in state {state}.")
    for state in GROUP_STATES
}
OLD_OFFSETS = mbean(f"{_GROUPS}/NumOffsets", Kind.GAUGE, "Offsets that groups have committed.")

_NEW = "group-coordinator-metrics"
GROUPS_BY_PROTOCOL = of_group(
    f"{_NEW}/group-count", Kind.GAUGE, "Groups that this broker coordinates, by protocol.", ("protocol",)
)
_STATE = ("state",)
GROUPS_BY_TYPE: dict[str, Family] = {
    kind: of_group(f"{_NEW}/{kind}-group-count", Kind.GAUGE, f"Groups of type {kind} by state (KIP-1301).", _STATE)
    for kind in ("classic", "consumer", "streams", "share")
}
GROUP_TYPE_STATES = {
    "classic": ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "streams": ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),
    "share": ("Empty", "Stable", "Dead"),
}
OFFSETS = of_group(f"{_NEW}/offset-count", Kind.GAUGE, "Offsets that groups have committed (KIP-1301).")

_REBALANCES = {
    "classic": ("group-completed-rebalance", "Rebalances of classic groups that were completed."),
    "consumer": ("consumer-group-rebalance", "Rebalances of consumer groups: group epochs that members have begun."),
    "share": ("share-group-rebalance", "Rebalances of share groups."),
    "streams": ("streams-group-rebalance", "Rebalances of streams groups."),
}
REBALANCE_COUNTS: dict[str, Family] = {
    kind: of_group(f"{_NEW}/{name}-count", Kind.COUNTER, text) for kind, (name, text) in _REBALANCES.items()
}
REBALANCE_RATES: dict[str, Family] = {
    kind: of_group(f"{_NEW}/{name}-rate", Kind.GAUGE, f"{text} In a second, since the last scrape.")
    for kind, (name, text) in _REBALANCES.items()
}
_DESCRIPTION_EVENTS = {
    "set-success": "Descriptions of streams groups' topologies that their keeper has stored (KIP-1331).",
    "set-error": "Descriptions that it has not stored.",
    "get-success": "Descriptions that it has given, or said not to have.",
    "get-error": "Descriptions that it could not give.",
    "delete-success": "Groups of which it has deleted the description.",
    "delete-error": "Groups of which it could not.",
    "cleanup-cycle": "Rounds in which descriptions that nobody needs are deleted.",
    "cleanup-eligible": "Groups that such a round has found.",
}
_DESCRIPTIONS = f"{_NEW}/streams-group-topology-description"
DESCRIPTION_COUNTS: dict[str, Family] = {
    event: of_group(f"{_DESCRIPTIONS}-{event}-count", Kind.COUNTER, text) for event, text in _DESCRIPTION_EVENTS.items()
}
DESCRIPTION_RATES: dict[str, Family] = {
    event: of_group(f"{_DESCRIPTIONS}-{event}-rate", Kind.GAUGE, f"{text} In a second, since the last scrape.")
    for event, text in _DESCRIPTION_EVENTS.items()
}

_COORDINATORS = ("group", "transaction", "share")
_PARTITIONS = "Partitions that this broker coordinates {}s with: loading or active."
_LOAD = "{} of the milliseconds that partitions took to load in the last 30 s; 0 if none was loaded (KIP-484)."
COORDINATOR_PARTITIONS: dict[str, Family] = {
    name: of_group(f"{name}-coordinator-metrics/num-partitions", Kind.GAUGE, _PARTITIONS.format(name), _STATE)
    for name in _COORDINATORS
}
LOAD_TIME_MAX: dict[str, Family] = {
    name: of_group(f"{name}-coordinator-metrics/partition-load-time-max", Kind.GAUGE, _LOAD.format("Maximum"))
    for name in _COORDINATORS
}
LOAD_TIME_AVG: dict[str, Family] = {
    name: of_group(f"{name}-coordinator-metrics/partition-load-time-avg", Kind.GAUGE, _LOAD.format("Mean"))
    for name in _COORDINATORS
}
TRANSACTIONAL_IDS = of_group(
    "transaction-coordinator-metrics/transactional-id-count",
    Kind.GAUGE,
    "Transactional ids that this broker coordinates.",
)

# --- share groups ---------------------------------------------------------------------------------------------

SHARE_SESSIONS = mbean("server/ShareSessionCache/ShareSessionsCount", Kind.GAUGE, "Share sessions of members.")
SHARE_SESSION_PARTITIONS = mbean(
    "server/ShareSessionCache/SharePartitionsCount", Kind.GAUGE, "Partitions in these sessions."
)
SHARE_SESSION_EVICTIONS = mbean(
    "server/ShareSessionCache/ShareSessionEvictionsPerSec", Kind.COUNTER, "Share sessions that ended with a connection."
)
_SHARE_GROUP = ("group",)
_OF_GROUPS = "server/ShareGroupMetrics"
ACKNOWLEDGEMENTS = mbean(
    f"{_OF_GROUPS}/RecordAcknowledgementsPerSec",
    Kind.COUNTER,
    "Records that members have acknowledged: Accept, Release, Reject or Renew.",
    ("ackType",),
)
SHARE_LOAD_TIME = mbean(
    f"{_OF_GROUPS}/PartitionLoadTimeMs", Kind.SUMMARY, "Milliseconds in which a share partition was loaded."
)
SHARE_FETCH_RATIO = mbean(
    f"{_OF_GROUPS}/RequestTopicPartitionsFetchRatio",
    Kind.SUMMARY,
    "Percent of the partitions of a ShareFetch that were read for it.",
    _SHARE_GROUP,
)
DEAD_LETTERS = mbean(
    f"{_OF_GROUPS}/DeadLetterQueueRecordCount",
    Kind.COUNTER,
    "Records of a group that were written to a dead-letter topic (KIP-1191).",
    _SHARE_GROUP,
)
DEAD_LETTER_REQUESTS = mbean(
    f"{_OF_GROUPS}/DeadLetterQueueTotalProduceRequestsPerSec",
    Kind.COUNTER,
    "Attempts to write a batch of them (KIP-1191).",
    _SHARE_GROUP,
)
FAILED_DEAD_LETTER_REQUESTS = mbean(
    f"{_OF_GROUPS}/DeadLetterQueueFailedProduceRequestsPerSec",
    Kind.COUNTER,
    "Of these, the last ones, after which a batch was given up (KIP-1191).",
    _SHARE_GROUP,
)
_OF_STATES = "share-coordinator-metrics"
STATE_WRITE_RATE = of_group(
    f"{_OF_STATES}/write-rate", Kind.GAUGE, "States of share partitions that were to be kept, in a second."
)
STATE_WRITES = of_group(f"{_OF_STATES}/write-total", Kind.COUNTER, "All of these.")
STATE_WRITE_TIME_MAX = of_group(
    f"{_OF_STATES}/write-latency-max",
    Kind.GAUGE,
    "Maximum of the milliseconds until a request to keep states was done, since the last scrape.",
)
STATE_WRITE_TIME_AVG = of_group(f"{_OF_STATES}/write-latency-avg", Kind.GAUGE, "Mean of these.")
PRUNED_OFFSET = of_group(
    f"{_OF_STATES}/last-pruned-offset",
    Kind.GAUGE,
    "Offset up to which old records of a partition of `__share_group_state` were deleted last.",
    PARTITION,
)
_SHARE_PARTITION = ("group", "topic", "partition")
_OF_PARTITIONS = "server/SharePartitionMetrics"
EXPIRED_LOCKS = mbean(
    f"{_OF_PARTITIONS}/AcquisitionLockTimeoutPerSec",
    Kind.COUNTER,
    "Records that came back as their members held them for too long.",
    _SHARE_PARTITION,
)
SHARE_BATCHES_IN_FLIGHT = mbean(
    f"{_OF_PARTITIONS}/InFlightBatchCount",
    Kind.GAUGE,
    "Ranges of offsets that are in one state, from the start offset on.",
    _SHARE_PARTITION,
)
SHARE_BATCH_SIZE = mbean(
    f"{_OF_PARTITIONS}/InFlightBatchMessageCount",
    Kind.SUMMARY,
    "Records that are handed out together for the first time.",
    _SHARE_PARTITION,
)
SHARE_IN_FLIGHT = mbean(
    "server/SharePartitionMetrics/InFlightMessageCount",
    Kind.GAUGE,
    "Records of a share group between its start and end offset that are not done with.",
    _SHARE_PARTITION,
)
SHARE_START_OFFSET = own(
    "kbroker_share_partition_start_offset",
    Kind.GAUGE,
    "First offset that a share group is not done with, by the partition's leader.",
    _SHARE_PARTITION,
)
SHARE_LAG = own(
    "kbroker_share_partition_lag",
    Kind.GAUGE,
    "Records up to the high watermark that a share group is not done with, by the partition's leader.",
    _SHARE_PARTITION,
)
