"""The table of metrics of coordinators: groups, transactions, states of share groups."""

from __future__ import annotations

from kbroker.observe.metrics.family import OWN, PARTITION, Family, mbean, of_group

# --- coordinators ---------------------------------------------------------------------------------------------

# `GroupMetadataManager` is deprecated since Kafka 4.4 (KIP-1301). Dashboards use it.
_GROUPS = mbean("coordinator_group/GroupMetadataManager")
GROUPS = _GROUPS.gauge("NumGroups", "Groups of consumers that this broker coordinates.")
GROUP_STATES = ("Dead", "Empty", "Stable", "PreparingRebalance", "CompletingRebalance")
GROUPS_BY_STATE = {
    state: _GROUPS.gauge(f"NumGroups{state}", f"Classic groups in state {state}.") for state in GROUP_STATES
}
OLD_OFFSETS = _GROUPS.gauge("NumOffsets", "Offsets that groups have committed.")

_NEW = of_group("group-coordinator-metrics")
GROUPS_BY_PROTOCOL = _NEW.gauge("group-count", "Groups that this broker coordinates, by protocol.", ("protocol",))
_STATE = ("state",)
GROUPS_BY_TYPE: dict[str, Family] = {
    kind: _NEW.gauge(f"{kind}-group-count", f"Groups of type {kind} by state (KIP-1301).", _STATE)
    for kind in ("classic", "consumer", "streams", "share")
}
GROUP_TYPE_STATES = {
    "classic": ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "streams": ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),
    "share": ("Empty", "Stable", "Dead"),
}
OFFSETS = _NEW.gauge("offset-count", "Offsets that groups have committed (KIP-1301).")

_REBALANCES = {
    "classic": ("group-completed-rebalance", "Rebalances of classic groups that were completed."),
    "consumer": ("consumer-group-rebalance", "Rebalances of consumer groups: group epochs that members have begun."),
    "share": ("share-group-rebalance", "Rebalances of share groups."),
    "streams": ("streams-group-rebalance", "Rebalances of streams groups."),
}
REBALANCE_COUNTS: dict[str, Family] = {
    kind: _NEW.counter(f"{name}-count", text) for kind, (name, text) in _REBALANCES.items()
}
REBALANCE_RATES: dict[str, Family] = {
    kind: _NEW.gauge(f"{name}-rate", f"{text} In a second, since the last scrape.")
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
DESCRIPTION_COUNTS: dict[str, Family] = {
    event: _NEW.counter(f"streams-group-topology-description-{event}-count", text)
    for event, text in _DESCRIPTION_EVENTS.items()
}
DESCRIPTION_RATES: dict[str, Family] = {
    event: _NEW.gauge(f"streams-group-topology-description-{event}-rate", f"{text} In a second, since the last scrape.")
    for event, text in _DESCRIPTION_EVENTS.items()
}

_COORDINATORS = ("group", "transaction", "share")
_PARTITIONS = "Partitions that this broker coordinates {}s with: loading or active."
_LOAD = "{} of the milliseconds that partitions took to load in the last 30 s; 0 if none was loaded (KIP-484)."
COORDINATOR_PARTITIONS: dict[str, Family] = {
    name: of_group(f"{name}-coordinator-metrics", _STATE).gauge("num-partitions", _PARTITIONS.format(name))
    for name in _COORDINATORS
}
LOAD_TIME_MAX: dict[str, Family] = {
    name: of_group(f"{name}-coordinator-metrics").gauge("partition-load-time-max", _LOAD.format("Maximum"))
    for name in _COORDINATORS
}
LOAD_TIME_AVG: dict[str, Family] = {
    name: of_group(f"{name}-coordinator-metrics").gauge("partition-load-time-avg", _LOAD.format("Mean"))
    for name in _COORDINATORS
}
TRANSACTIONAL_IDS = of_group("transaction-coordinator-metrics").gauge(
    "transactional-id-count", "Transactional ids that this broker coordinates."
)

# --- share groups ---------------------------------------------------------------------------------------------

_SESSIONS = mbean("server/ShareSessionCache")
SHARE_SESSIONS = _SESSIONS.gauge("ShareSessionsCount", "Share sessions of members.")
SHARE_SESSION_PARTITIONS = _SESSIONS.gauge("SharePartitionsCount", "Partitions in these sessions.")
SHARE_SESSION_EVICTIONS = _SESSIONS.counter(
    "ShareSessionEvictionsPerSec", "Share sessions that ended with a connection."
)
_SHARE_GROUP = ("group",)
_OF_GROUPS = mbean("server/ShareGroupMetrics")
ACKNOWLEDGEMENTS = _OF_GROUPS.counter(
    "RecordAcknowledgementsPerSec",
    "Records that members have acknowledged: Accept, Release, Reject or Renew.",
    ("ackType",),
)
SHARE_LOAD_TIME = _OF_GROUPS.summary("PartitionLoadTimeMs", "Milliseconds in which a share partition was loaded.")
SHARE_FETCH_RATIO = _OF_GROUPS.summary(
    "RequestTopicPartitionsFetchRatio", "Percent of the partitions of a ShareFetch that were read for it.", _SHARE_GROUP
)
DEAD_LETTERS = _OF_GROUPS.counter(
    "DeadLetterQueueRecordCount",
    "Records of a group that were written to a dead-letter topic (KIP-1191).",
    _SHARE_GROUP,
)
DEAD_LETTER_REQUESTS = _OF_GROUPS.counter(
    "DeadLetterQueueTotalProduceRequestsPerSec", "Attempts to write a batch of them (KIP-1191).", _SHARE_GROUP
)
FAILED_DEAD_LETTER_REQUESTS = _OF_GROUPS.counter(
    "DeadLetterQueueFailedProduceRequestsPerSec",
    "Of these, the last ones, after which a batch was given up (KIP-1191).",
    _SHARE_GROUP,
)
_OF_STATES = of_group("share-coordinator-metrics")
STATE_WRITE_RATE = _OF_STATES.gauge("write-rate", "States of share partitions that were to be kept, in a second.")
STATE_WRITES = _OF_STATES.counter("write-total", "All of these.")
STATE_WRITE_TIME_MAX = _OF_STATES.gauge(
    "write-latency-max", "Maximum of the milliseconds until a request to keep states was done, since the last scrape."
)
STATE_WRITE_TIME_AVG = _OF_STATES.gauge("write-latency-avg", "Mean of these.")
PRUNED_OFFSET = _OF_STATES.gauge(
    "last-pruned-offset",
    "Offset up to which old records of a partition of `__share_group_state` were deleted last.",
    PARTITION,
)
_SHARE_PARTITION = ("group", "topic", "partition")
_OF_PARTITIONS = mbean("server/SharePartitionMetrics", _SHARE_PARTITION)
EXPIRED_LOCKS = _OF_PARTITIONS.counter(
    "AcquisitionLockTimeoutPerSec", "Records that came back as their members held them for too long."
)
SHARE_BATCHES_IN_FLIGHT = _OF_PARTITIONS.gauge(
    "InFlightBatchCount", "Ranges of offsets that are in one state, from the start offset on."
)
SHARE_BATCH_SIZE = _OF_PARTITIONS.summary(
    "InFlightBatchMessageCount", "Records that are handed out together for the first time."
)
SHARE_IN_FLIGHT = _OF_PARTITIONS.gauge(
    "InFlightMessageCount", "Records of a share group between its start and end offset that are not done with."
)
SHARE_START_OFFSET = OWN.gauge(
    "kbroker_share_partition_start_offset",
    "First offset that a share group is not done with, by the partition's leader.",
    _SHARE_PARTITION,
)
SHARE_LAG = OWN.gauge(
    "kbroker_share_partition_lag",
    "Records up to the high watermark that a share group is not done with, by the partition's leader.",
    _SHARE_PARTITION,
)
