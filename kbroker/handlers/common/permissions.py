"""The one table of what each API asks: an operation on a resource.

Handlers ask (``handlers.common.authorization``); this table says what they ask. A test sends a request of each API
without any permission, and with all but one, and compares what was asked and answered with the rows here; the page on
permissions is made from them. The rules are those of ``KafkaApis`` and ``ControllerApis`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.security.authorizer.types import AclOperation as Op
from kbroker.security.authorizer.types import ResourceType


class Shown(enum.Enum):
    """The ways in which a denial shows in the answer."""

    REQUEST = "the whole request is refused"
    ENTRY = "the entry of the resource has the error"
    HIDDEN = "the resource is left out, without an error"
    OPERATIONS = "the field of authorized operations is 0"
    STATUS = "the status of the answer says so"
    CONFIGS = "the entry has no configuration, and says so"


_ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Alternative(NamedTuple):
    """A permission that does as well. With ``any_resource``, to have it on some resource of the type is enough."""

    operation: Op
    resource_type: ResourceType
    any_resource: bool = False


class Permission(NamedTuple):
    """One row: an operation that an API asks on resources of a type."""

    operation: Op
    resource_type: ResourceType
    shown: Shown
    when: str = ""
    """The requests, or the parts of one, that need it; empty if all do."""
    instead: tuple[Alternative, ...] = ()
    """Any of these does as well."""
    denial: ErrorCode | None = None
    """The error of a denial, where it is not that of the resource type."""

    @property
    def error(self) -> ErrorCode:
        """The error of a denial."""
        return _ERRORS[self.resource_type] if self.denial is None else self.denial


_TOPIC: Final = ResourceType.TOPIC
_GROUP: Final = ResourceType.GROUP
_CLUSTER: Final = ResourceType.CLUSTER
_TRANSACTION: Final = ResourceType.TRANSACTIONAL_ID
_REQUEST: Final = Shown.REQUEST
_ENTRY: Final = Shown.ENTRY
_HIDDEN: Final = Shown.HIDDEN
_OPERATIONS: Final = Shown.OPERATIONS

BROKER_PERMISSIONS: Final[Mapping[str, tuple[Permission, ...]]] = {
    "Produce": (
        Permission(Op.WRITE, _TRANSACTION, _REQUEST, "batches of a transaction"),
        Permission(Op.WRITE, _TOPIC, _ENTRY),
    ),
    "Fetch": (
        Permission(Op.READ, _TOPIC, _ENTRY, "consumers"),
        Permission(Op.CLUSTER_ACTION, _CLUSTER, _ENTRY, "followers", denial=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ),
    "ListOffsets": (Permission(Op.DESCRIBE, _TOPIC, _ENTRY),),
    "Metadata": (
        Permission(Op.DESCRIBE, _TOPIC, _ENTRY, "topics that are named"),
        Permission(Op.DESCRIBE, _TOPIC, _HIDDEN, "all topics"),
        Permission(
            Op.CREATE, _TOPIC, _ENTRY, "topics that would be created by it", instead=(Alternative(Op.CREATE, _CLUSTER),)
        ),
        Permission(Op.DESCRIBE, _CLUSTER, _OPERATIONS, "the cluster's authorized operations, if asked for"),
    ),
    "OffsetCommit": (Permission(Op.READ, _GROUP, _REQUEST), Permission(Op.READ, _TOPIC, _ENTRY)),
    "OffsetFetch": (
        Permission(Op.DESCRIBE, _GROUP, _ENTRY),
        Permission(Op.DESCRIBE, _TOPIC, _ENTRY, "topics that are named"),
        Permission(Op.DESCRIBE, _TOPIC, _HIDDEN, "all topics"),
    ),
    "FindCoordinator": (
        Permission(Op.DESCRIBE, _GROUP, _ENTRY, "groups"),
        Permission(Op.DESCRIBE, _TRANSACTION, _ENTRY, "transactional ids"),
        Permission(Op.CLUSTER_ACTION, _CLUSTER, _ENTRY, "share groups"),
    ),
    "JoinGroup": (Permission(Op.READ, _GROUP, _REQUEST),),
    "Heartbeat": (Permission(Op.READ, _GROUP, _REQUEST),),
    "LeaveGroup": (Permission(Op.READ, _GROUP, _REQUEST),),
    "SyncGroup": (Permission(Op.READ, _GROUP, _REQUEST),),
    "DescribeGroups": (Permission(Op.DESCRIBE, _GROUP, _ENTRY),),
    "ListGroups": (Permission(Op.DESCRIBE, _GROUP, _HIDDEN, instead=(Alternative(Op.DESCRIBE, _CLUSTER),)),),
    "SaslHandshake": (),
    "ApiVersions": (),
    "DeleteRecords": (Permission(Op.DELETE, _TOPIC, _ENTRY),),
    "InitProducerId": (
        Permission(
            Op.IDEMPOTENT_WRITE,
            _CLUSTER,
            _REQUEST,
            "without a transactional id",
            instead=(Alternative(Op.WRITE, _TOPIC, any_resource=True),),
        ),
        Permission(Op.WRITE, _TRANSACTION, _REQUEST, "with a transactional id"),
        Permission(Op.TWO_PHASE_COMMIT, _TRANSACTION, _REQUEST, "with two-phase commit"),
    ),
    "OffsetForLeaderEpoch": (
        Permission(Op.DESCRIBE, _TOPIC, _ENTRY, instead=(Alternative(Op.CLUSTER_ACTION, _CLUSTER),)),
    ),
    "AddPartitionsToTxn": (
        Permission(Op.WRITE, _TRANSACTION, _ENTRY, "clients (versions 0 to 3)"),
        Permission(Op.WRITE, _TOPIC, _ENTRY, "clients (versions 0 to 3)"),
        Permission(Op.CLUSTER_ACTION, _CLUSTER, _REQUEST, "brokers (versions 4 and later)"),
    ),
    "AddOffsetsToTxn": (Permission(Op.WRITE, _TRANSACTION, _REQUEST), Permission(Op.READ, _GROUP, _REQUEST)),
    "EndTxn": (Permission(Op.WRITE, _TRANSACTION, _REQUEST),),
    "WriteTxnMarkers": (Permission(Op.CLUSTER_ACTION, _CLUSTER, _REQUEST, instead=(Alternative(Op.ALTER, _CLUSTER),)),),
    "TxnOffsetCommit": (
        Permission(Op.WRITE, _TRANSACTION, _REQUEST),
        Permission(Op.READ, _GROUP, _REQUEST),
        Permission(Op.READ, _TOPIC, _ENTRY),
    ),
    "DescribeConfigs": (
        Permission(Op.DESCRIBE_CONFIGS, _TOPIC, _ENTRY, "topics"),
        Permission(Op.DESCRIBE_CONFIGS, _GROUP, _ENTRY, "groups"),
        Permission(Op.DESCRIBE_CONFIGS, _CLUSTER, _ENTRY, "brokers, their loggers, client metrics"),
    ),
    "AlterReplicaLogDirs": (Permission(Op.ALTER, _CLUSTER, _REQUEST),),
    "SaslAuthenticate": (),
    "DescribeLogDirs": (Permission(Op.DESCRIBE, _CLUSTER, _REQUEST),),
    "DeleteGroups": (Permission(Op.DELETE, _GROUP, _ENTRY),),
    "OffsetDelete": (Permission(Op.DELETE, _GROUP, _REQUEST), Permission(Op.READ, _TOPIC, _ENTRY)),
    "DescribeUserScramCredentials": (Permission(Op.DESCRIBE, _CLUSTER, _REQUEST),),
    "DescribeCluster": (
        Permission(Op.DESCRIBE, _CLUSTER, _OPERATIONS, "the cluster's authorized operations, if asked for"),
    ),
    "DescribeProducers": (Permission(Op.READ, _TOPIC, _ENTRY),),
    "DescribeTransactions": (
        Permission(Op.DESCRIBE, _TRANSACTION, _ENTRY),
        Permission(Op.DESCRIBE, _TOPIC, _HIDDEN, "topics of the transaction"),
    ),
    "ListTransactions": (Permission(Op.DESCRIBE, _TRANSACTION, _HIDDEN),),
    "ConsumerGroupHeartbeat": (
        Permission(Op.READ, _GROUP, _REQUEST),
        Permission(Op.DESCRIBE, _TOPIC, _REQUEST, "topics that are subscribed to by name"),
        Permission(Op.DESCRIBE, _TOPIC, _HIDDEN, "topics that match a regular expression"),
    ),
    "ConsumerGroupDescribe": (
        Permission(Op.DESCRIBE, _GROUP, _ENTRY),
        Permission(Op.DESCRIBE, _TOPIC, _ENTRY, "topics of the members' assignments"),
    ),
    "StreamsGroupHeartbeat": (
        Permission(Op.READ, _GROUP, _REQUEST),
        Permission(Op.DESCRIBE, _TOPIC, _REQUEST, "topics of the topology, when joining"),
        Permission(
            Op.CREATE,
            _TOPIC,
            Shown.STATUS,
            "internal topics that are missing",
            instead=(Alternative(Op.CREATE, _CLUSTER),),
        ),
    ),
    "StreamsGroupDescribe": (
        Permission(Op.DESCRIBE, _GROUP, _ENTRY),
        Permission(Op.DESCRIBE, _TOPIC, _ENTRY, "topics of the topology"),
    ),
    "StreamsGroupTopologyDescriptionUpdate": (Permission(Op.READ, _GROUP, _REQUEST),),
    "DescribeDelegationToken": (
        Permission(
            Op.DESCRIBE,
            ResourceType.DELEGATION_TOKEN,
            _HIDDEN,
            "tokens that the client neither owns, nor has asked for, nor may renew",
            instead=(Alternative(Op.DESCRIBE_TOKENS, ResourceType.USER),),
        ),
    ),
    "DescribeClientQuotas": (Permission(Op.DESCRIBE_CONFIGS, _CLUSTER, _REQUEST),),
    "GetTelemetrySubscriptions": (),
    "PushTelemetry": (),
    "ListConfigResources": (Permission(Op.DESCRIBE_CONFIGS, _CLUSTER, _REQUEST),),
    "DescribeTopicPartitions": (
        Permission(Op.DESCRIBE, _TOPIC, _ENTRY, "topics that are named"),
        Permission(Op.DESCRIBE, _TOPIC, _HIDDEN, "all topics"),
    ),
    "ShareGroupHeartbeat": (
        Permission(Op.READ, _GROUP, _REQUEST),
        Permission(Op.DESCRIBE, _TOPIC, _REQUEST, "topics that are subscribed to"),
    ),
    "ShareGroupDescribe": (
        Permission(Op.DESCRIBE, _GROUP, _ENTRY),
        Permission(Op.DESCRIBE, _TOPIC, _ENTRY, "topics of the members' assignments"),
    ),
    "DescribeShareGroupOffsets": (
        Permission(Op.DESCRIBE, _GROUP, _ENTRY),
        Permission(Op.DESCRIBE, _TOPIC, _ENTRY, "topics that are named"),
        Permission(Op.DESCRIBE, _TOPIC, _HIDDEN, "all topics"),
    ),
    "AlterShareGroupOffsets": (Permission(Op.READ, _GROUP, _REQUEST), Permission(Op.READ, _TOPIC, _ENTRY)),
    "DeleteShareGroupOffsets": (Permission(Op.DELETE, _GROUP, _REQUEST), Permission(Op.READ, _TOPIC, _ENTRY)),
    "ShareFetch": (Permission(Op.READ, _GROUP, _REQUEST), Permission(Op.READ, _TOPIC, _ENTRY)),
    "ShareAcknowledge": (Permission(Op.READ, _GROUP, _REQUEST), Permission(Op.READ, _TOPIC, _ENTRY)),
    "InitializeShareGroupState": (Permission(Op.CLUSTER_ACTION, _CLUSTER, _ENTRY),),
    "ReadShareGroupState": (Permission(Op.CLUSTER_ACTION, _CLUSTER, _ENTRY),),
    "WriteShareGroupState": (Permission(Op.CLUSTER_ACTION, _CLUSTER, _ENTRY),),
    "DeleteShareGroupState": (Permission(Op.CLUSTER_ACTION, _CLUSTER, _ENTRY),),
    "ReadShareGroupStateSummary": (Permission(Op.CLUSTER_ACTION, _CLUSTER, _ENTRY),),
}
"""The APIs that each broker answers itself."""

_BY_BROKERS: Final = (Permission(Op.CLUSTER_ACTION, _CLUSTER, _REQUEST),)
"""Of the APIs that nodes alone may use."""

_ALTERS: Final = (Permission(Op.ALTER, _CLUSTER, _REQUEST),)

_ALTERS_CONFIGS: Final = (
    Permission(Op.ALTER_CONFIGS, _TOPIC, _ENTRY, "topics"),
    Permission(Op.ALTER_CONFIGS, _GROUP, _ENTRY, "groups"),
    Permission(Op.ALTER_CONFIGS, _CLUSTER, _ENTRY, "brokers, client metrics"),
)

_CONTROLLER: Final[Mapping[str, tuple[Permission, ...]]] = {
    "CreateTopics": (
        Permission(Op.CREATE, _TOPIC, _ENTRY, instead=(Alternative(Op.CREATE, _CLUSTER),)),
        Permission(Op.DESCRIBE_CONFIGS, _TOPIC, Shown.CONFIGS),
    ),
    "DeleteTopics": (Permission(Op.DELETE, _TOPIC, _ENTRY, instead=(Alternative(Op.DELETE, _CLUSTER),)),),
    "CreatePartitions": (Permission(Op.ALTER, _TOPIC, _ENTRY),),
    "AlterConfigs": _ALTERS_CONFIGS,
    "IncrementalAlterConfigs": (*_ALTERS_CONFIGS, Permission(Op.ALTER_CONFIGS, _CLUSTER, _ENTRY, "loggers of brokers")),
    "ElectLeaders": _ALTERS,
    "AlterPartitionReassignments": _ALTERS,
    "ListPartitionReassignments": (Permission(Op.DESCRIBE, _CLUSTER, _REQUEST),),
    "UpdateFeatures": _ALTERS,
    "UnregisterBroker": _ALTERS,
    "UnregisterController": _ALTERS,
    "DescribeQuorum": (Permission(Op.DESCRIBE, _CLUSTER, _REQUEST),),
    "DescribeAcls": (Permission(Op.DESCRIBE, _CLUSTER, _REQUEST),),
    "CreateAcls": (Permission(Op.ALTER, _CLUSTER, _ENTRY),),
    "DeleteAcls": (Permission(Op.ALTER, _CLUSTER, _ENTRY),),
    "AlterClientQuotas": (Permission(Op.ALTER_CONFIGS, _CLUSTER, _ENTRY),),
    "AlterUserScramCredentials": (Permission(Op.ALTER, _CLUSTER, _ENTRY),),
    "CreateDelegationToken": (Permission(Op.CREATE_TOKENS, ResourceType.USER, _REQUEST, "another owner's token"),),
    "RenewDelegationToken": (),
    "ExpireDelegationToken": (),
    "AddRaftVoter": _ALTERS,
    "RemoveRaftVoter": _ALTERS,
    "Vote": _BY_BROKERS,
    "BeginQuorumEpoch": _BY_BROKERS,
    "EndQuorumEpoch": _BY_BROKERS,
    "FetchSnapshot": _BY_BROKERS,
    "UpdateRaftVoter": _BY_BROKERS,
    "AlterPartition": _BY_BROKERS,
    "Envelope": _BY_BROKERS,
    "BrokerRegistration": _BY_BROKERS,
    "BrokerHeartbeat": _BY_BROKERS,
    "AllocateProducerIds": _BY_BROKERS,
    "ControllerRegistration": _BY_BROKERS,
    "AssignReplicasToDirs": _BY_BROKERS,
}
"""The APIs that the controller answers, and the one that reads what it writes."""

ON_CONTROLLER: Final[Mapping[str, tuple[Permission, ...]]] = {
    "Fetch": _BY_BROKERS,
    "IncrementalAlterConfigs": (
        *_ALTERS_CONFIGS,
        Permission(Op.CLUSTER_ACTION, _CLUSTER, _ENTRY, "loggers of controllers"),
    ),
    "DescribeCluster": (
        *_ALTERS,
        Permission(Op.DESCRIBE, _CLUSTER, _OPERATIONS, "the cluster's authorized operations, if asked for"),
    ),
}
"""Those of the rows above that differ on a controller's listener."""

PERMISSIONS: Final[Mapping[str, tuple[Permission, ...]]] = {**BROKER_PERMISSIONS, **_CONTROLLER}
"""By the API's name: all that it asks. An API that asks nothing has an empty row."""


def cluster_operation(api: str, *, is_controller: bool = False) -> Op:
    """The operation on the cluster that the whole request needs; ``is_controller``: on a controller's listener.

    ``LookupError`` if the API asks nothing like it.
    """
    rows = PERMISSIONS[api]
    if is_controller:
        rows = ON_CONTROLLER.get(api, rows)
    for row in rows:
        if row.shown is _REQUEST and row.resource_type is _CLUSTER:
            return row.operation
    raise LookupError(f"{api} needs no permission on the cluster")
