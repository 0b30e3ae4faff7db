"""All APIs of Apache Kafka 4.4.0: keys, versions, header versions, and where their messages are.

Start-up reads this table and none of the message modules; ``ApiDescription.request`` and ``.response`` import
theirs on first use. A test compares every row with the declarations.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

from kbroker.wire.schema import VersionRange

_LISTENERS: Final = {
    "b": frozenset({"broker"}),
    "c": frozenset({"controller"}),
    "bc": frozenset({"broker", "controller"}),
}


class ApiDescription:
    """One API: its key, its name as Kafka spells it, its versions, and on which listeners Kafka serves it."""

    __slots__ = ("_messages", "flexible_from", "key", "listeners", "module", "name", "unstable_last", "valid_versions")

    def __init__(
        self,
        key: int,
        name: str,
        module: str,
        lowest: int,
        highest: int,
        flexible_from: int | None,
        listeners: str,
        unstable_last: bool = False,
    ) -> None:
        self.key = key
        self.name = name
        self.module = module
        """Name of the module in ``kbroker.wire.messages``; mostly the handler's has the same."""
        self.valid_versions = VersionRange(lowest, highest)
        """Versions that the declarations cover, an unstable last one included."""
        self.flexible_from = flexible_from
        self.listeners = _LISTENERS[listeners]
        self.unstable_last = unstable_last
        self._messages: tuple[type[Any], type[Any]] | None = None

    @property
    def stable_versions(self) -> VersionRange:
        """``valid_versions`` without an unstable last one: what Kafka 4.4.0 advertises."""
        lowest, highest = self.valid_versions
        return VersionRange(lowest, highest - self.unstable_last)

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    @property
    def request(self) -> type[Any]:
        """The request's class."""
        return self._load()[0]

    @property
    def response(self) -> type[Any]:
        """The response's class."""
        return self._load()[1]

    def _load(self) -> tuple[type[Any], type[Any]]:
        if self._messages is None:
            module = importlib.import_module(f"kbroker.wire.messages.{self.module}")
            self._messages = getattr(module, f"{self.name}Request"), getattr(module, f"{self.name}Response")
        return self._messages

    def __repr__(self) -> str:
        return f"<{self.name} (key {self.key}) {self.valid_versions}>"


_ROWS: Final = (
    ApiDescription(0, "Produce", "produce", 3, 13, 9, "b"),
    ApiDescription(1, "Fetch", "fetch", 4, 18, 12, "bc"),
    ApiDescription(2, "ListOffsets", "list_offsets", 1, 11, 6, "b"),
    ApiDescription(3, "Metadata", "metadata", 0, 13, 9, "b"),
    ApiDescription(8, "OffsetCommit", "offset_commit", 2, 10, 8, "b"),
    ApiDescription(9, "OffsetFetch", "offset_fetch", 1, 10, 6, "b"),
    ApiDescription(10, "FindCoordinator", "find_coordinator", 0, 6, 3, "b"),
    ApiDescription(11, "JoinGroup", "classic_groups", 0, 9, 6, "b"),
    ApiDescription(12, "Heartbeat", "classic_groups", 0, 4, 4, "b"),
    ApiDescription(13, "LeaveGroup", "classic_groups", 0, 5, 4, "b"),
    ApiDescription(14, "SyncGroup", "classic_groups", 0, 5, 4, "b"),
    ApiDescription(15, "DescribeGroups", "groups", 0, 6, 5, "b"),
    ApiDescription(16, "ListGroups", "groups", 0, 5, 3, "b"),
    ApiDescription(17, "SaslHandshake", "sasl", 0, 1, None, "bc"),
    ApiDescription(18, "ApiVersions", "api_versions", 0, 5, 3, "bc"),
    ApiDescription(19, "CreateTopics", "topics", 2, 7, 5, "bc"),
    ApiDescription(20, "DeleteTopics", "topics", 1, 6, 4, "bc"),
    ApiDescription(21, "DeleteRecords", "delete_records", 0, 2, 2, "b"),
    ApiDescription(22, "InitProducerId", "transactions", 0, 6, 2, "b", unstable_last=True),
    ApiDescription(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4, 4, "b"),
    ApiDescription(24, "AddPartitionsToTxn", "transactions", 0, 5, 3, "b"),
    ApiDescription(25, "AddOffsetsToTxn", "transactions", 0, 4, 3, "b"),
    ApiDescription(26, "EndTxn", "transactions", 0, 5, 3, "b"),
    ApiDescription(27, "WriteTxnMarkers", "write_txn_markers", 1, 2, 1, "b"),
    ApiDescription(28, "TxnOffsetCommit", "txn_offset_commit", 0, 6, 3, "b"),
    ApiDescription(29, "DescribeAcls", "acls", 1, 3, 2, "bc"),
    ApiDescription(30, "CreateAcls", "acls", 1, 3, 2, "bc"),
    ApiDescription(31, "DeleteAcls", "acls", 1, 3, 2, "bc"),
    ApiDescription(32, "DescribeConfigs", "configs", 1, 4, 4, "bc"),
    ApiDescription(33, "AlterConfigs", "configs", 0, 2, 2, "bc"),
    ApiDescription(34, "AlterReplicaLogDirs", "log_dirs", 1, 2, 2, "b"),
    ApiDescription(35, "DescribeLogDirs", "log_dirs", 1, 5, 2, "b"),
    ApiDescription(36, "SaslAuthenticate", "sasl", 0, 2, 2, "bc"),
    ApiDescription(37, "CreatePartitions", "topics", 0, 3, 2, "bc"),
    ApiDescription(38, "CreateDelegationToken", "delegation_tokens", 1, 3, 2, "bc"),
    ApiDescription(39, "RenewDelegationToken", "delegation_tokens", 1, 2, 2, "bc"),
    ApiDescription(40, "ExpireDelegationToken", "delegation_tokens", 1, 2, 2, "bc"),
    ApiDescription(41, "DescribeDelegationToken", "delegation_tokens", 1, 3, 2, "bc"),
    ApiDescription(42, "DeleteGroups", "groups", 0, 3, 2, "b"),
    ApiDescription(43, "ElectLeaders", "elect_leaders", 0, 2, 2, "bc"),
    ApiDescription(44, "IncrementalAlterConfigs", "configs", 0, 1, 1, "bc"),
    ApiDescription(45, "AlterPartitionReassignments", "reassignments", 0, 1, 0, "bc"),
    ApiDescription(46, "ListPartitionReassignments", "reassignments", 0, 0, 0, "bc"),
    ApiDescription(47, "OffsetDelete", "offset_delete", 0, 0, None, "b"),
    ApiDescription(48, "DescribeClientQuotas", "client_quotas", 0, 1, 1, "b"),
    ApiDescription(49, "AlterClientQuotas", "client_quotas", 0, 1, 1, "bc"),
    ApiDescription(50, "DescribeUserScramCredentials", "scram_credentials", 0, 0, 0, "bc"),
    ApiDescription(51, "AlterUserScramCredentials", "scram_credentials", 0, 0, 0, "bc"),
    ApiDescription(52, "Vote", "vote", 0, 2, 0, "c"),
    ApiDescription(53, "BeginQuorumEpoch", "begin_quorum_epoch", 0, 1, 1, "c"),
    ApiDescription(54, "EndQuorumEpoch", "end_quorum_epoch", 0, 1, 1, "c"),
    ApiDescription(55, "DescribeQuorum", "describe_quorum", 0, 2, 0, "bc"),
    ApiDescription(56, "AlterPartition", "alter_partition", 2, 3, 0, "c"),
    ApiDescription(57, "UpdateFeatures", "update_features", 0, 2, 0, "bc"),
    ApiDescription(58, "Envelope", "envelope", 0, 0, 0, "c"),
    ApiDescription(59, "FetchSnapshot", "fetch_snapshot", 0, 1, 0, "c"),
    ApiDescription(60, "DescribeCluster", "describe_cluster", 0, 2, 0, "bc"),
    ApiDescription(61, "DescribeProducers", "described_transactions", 0, 0, 0, "b"),
    ApiDescription(62, "BrokerRegistration", "nodes", 0, 4, 0, "c"),
    ApiDescription(63, "BrokerHeartbeat", "nodes", 0, 2, 0, "c"),
    ApiDescription(64, "UnregisterBroker", "nodes", 0, 0, 0, "bc"),
    ApiDescription(65, "DescribeTransactions", "described_transactions", 0, 0, 0, "b"),
    ApiDescription(66, "ListTransactions", "described_transactions", 0, 2, 0, "b"),
    ApiDescription(67, "AllocateProducerIds", "allocate_producer_ids", 0, 0, 0, "c"),
    ApiDescription(68, "ConsumerGroupHeartbeat", "consumer_groups", 0, 1, 0, "b"),
    ApiDescription(69, "ConsumerGroupDescribe", "consumer_groups", 0, 1, 0, "b"),
    ApiDescription(70, "ControllerRegistration", "nodes", 0, 0, 0, "c"),
    ApiDescription(71, "GetTelemetrySubscriptions", "client_telemetry", 0, 0, 0, "b"),
    ApiDescription(72, "PushTelemetry", "client_telemetry", 0, 0, 0, "b"),
    ApiDescription(73, "AssignReplicasToDirs", "log_dirs", 0, 0, 0, "c"),
    ApiDescription(74, "ListConfigResources", "configs", 0, 1, 0, "b"),
    ApiDescription(75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0, "b"),
    ApiDescription(76, "ShareGroupHeartbeat", "share_groups", 1, 1, 0, "b"),
    ApiDescription(77, "ShareGroupDescribe", "share_groups", 1, 1, 0, "b"),
    ApiDescription(78, "ShareFetch", "share_fetch", 1, 2, 0, "b"),
    ApiDescription(79, "ShareAcknowledge", "share_fetch", 1, 2, 0, "b"),
    ApiDescription(80, "AddRaftVoter", "add_raft_voter", 0, 1, 0, "bc"),
    ApiDescription(81, "RemoveRaftVoter", "remove_raft_voter", 0, 0, 0, "bc"),
    ApiDescription(82, "UpdateRaftVoter", "update_raft_voter", 0, 0, 0, "c"),
    ApiDescription(83, "InitializeShareGroupState", "share_group_state", 0, 0, 0, "b"),
    ApiDescription(84, "ReadShareGroupState", "share_group_state", 0, 0, 0, "b"),
    ApiDescription(85, "WriteShareGroupState", "share_group_state", 0, 1, 0, "b"),
    ApiDescription(86, "DeleteShareGroupState", "share_group_state", 0, 0, 0, "b"),
    ApiDescription(87, "ReadShareGroupStateSummary", "share_group_state", 0, 1, 0, "b"),
    ApiDescription(88, "StreamsGroupHeartbeat", "streams_groups", 0, 1, 0, "b"),
    ApiDescription(89, "StreamsGroupDescribe", "streams_groups", 0, 1, 0, "b"),
    ApiDescription(90, "DescribeShareGroupOffsets", "share_group_offsets", 0, 1, 0, "b"),
    ApiDescription(91, "AlterShareGroupOffsets", "share_group_offsets", 0, 0, 0, "b"),
    ApiDescription(92, "DeleteShareGroupOffsets", "share_group_offsets", 0, 0, 0, "b"),
    ApiDescription(93, "StreamsGroupTopologyDescriptionUpdate", "streams_groups", 0, 0, 0, "b"),
    ApiDescription(94, "UnregisterController", "nodes", 0, 0, 0, "bc"),
)

API_KEYS: Final[Mapping[int, ApiDescription]] = {row.key: row for row in _ROWS}
"""By key. 4 to 7 are missing: Kafka 4.0 removed them."""

FETCH_KEY: Final = 1
API_VERSIONS_KEY: Final = 18

ASKED_BY_NODES: Final = frozenset({27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 83, 84, 85, 86, 87})
"""Keys of the APIs that brokers and controllers ask one another; WriteTxnMarkers comes from administrators, too."""


def api_named(name: str) -> ApiDescription:
    """An API by Kafka's spelling of its name; ``KeyError`` if there is none."""
    for row in _ROWS:
        if row.name == name:
            return row
    raise KeyError(name)


def request_header_version(api_key: int, api_version: int) -> int:
    """1, or 2 (tagged fields) for flexible versions. ``KeyError`` for an unknown key."""
    return 2 if API_KEYS[api_key].is_flexible(api_version) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """0, or 1 (tagged fields) for flexible versions. ``KeyError`` for an unknown key.

    ApiVersions has 0 always: its reader does not know yet which versions the broker has (KIP-511).
    """
    if api_key == API_VERSIONS_KEY:
        return 0
    return 1 if API_KEYS[api_key].is_flexible(api_version) else 0
