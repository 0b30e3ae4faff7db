"""Records of the metadata log (``__cluster_metadata``), by record type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kbroker.types import ZERO_UUID
from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import WireError
from kbroker.wire.primitives import Buffer, decode_uvarint, encode_uvarint
from kbroker.wire.schema import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Str,
    UInt16,
    UuidField,
    field,
    message,
    struct,
    struct_spec,
)


@struct
class BrokerEndpoint:
    name: Str = ""
    host: Str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class BrokerFeature:
    name: Str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(api_key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    broker_id: Int32 = 0
    is_migrating_zk_broker: Bool = field("2+")
    incarnation_id: UuidField = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: list[BrokerEndpoint] = field()
    features: list[BrokerFeature] = field()
    rack: Str | None = field(nullable="0+")
    fenced: Bool = True
    in_controlled_shutdown: Bool = field("1+")
    log_dirs: list[UuidField] = field("3+", tag=0)
    cordoned_log_dirs: list[UuidField] | None = field("4+", nullable="4+", tag=1, default=None)


@message(api_key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


@message(api_key=2, versions="0", flexible="0+")
class TopicRecord:
    name: Str = ""
    topic_id: UuidField = ZERO_UUID


@message(api_key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    partition_id: Int32 = -1
    topic_id: UuidField = ZERO_UUID
    replicas: list[Int32] = field()
    isr: list[Int32] = field()
    removing_replicas: list[Int32] = field()
    adding_replicas: list[Int32] = field()
    leader: Int32 = -1
    leader_recovery_state: Int8 = field(tag=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: list[UuidField] = field("1+")
    eligible_leader_replicas: list[Int32] | None = field("2+", nullable="2+", tag=1, default=None)
    last_known_elr: list[Int32] | None = field("2+", nullable="2+", tag=2, default=None)


@message(api_key=4, versions="0", flexible="0+")
class ConfigRecord:
    resource_type: Int8 = 0
    resource_name: Str = ""
    name: Str = ""
    value: Str | None = field(nullable="0+")


@message(api_key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    partition_id: Int32 = -1
    topic_id: UuidField = ZERO_UUID
    isr: list[Int32] | None = field(nullable="0+", tag=0, default=None)
    leader: Int32 = field(tag=1, default=-2)
    replicas: list[Int32] | None = field(nullable="0+", tag=2, default=None)
    removing_replicas: list[Int32] | None = field(nullable="0+", tag=3, default=None)
    adding_replicas: list[Int32] | None = field(nullable="0+", tag=4, default=None)
    leader_recovery_state: Int8 = field(tag=5, default=-1)
    directories: list[UuidField] | None = field("1+", nullable="1+", tag=8, default=None)
    eligible_leader_replicas: list[Int32] | None = field("2+", nullable="2+", tag=6, default=None)
    last_known_elr: list[Int32] | None = field("2+", nullable="2+", tag=7, default=None)


@message(api_key=7, versions="0", flexible="0+")
class FenceBrokerRecord:
    id: Int32 = 0
    epoch: Int64 = 0


@message(api_key=8, versions="0", flexible="0+")
class UnfenceBrokerRecord:
    id: Int32 = 0
    epoch: Int64 = 0


@message(api_key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    topic_id: UuidField = ZERO_UUID


@message(api_key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    owner: Str = ""
    requester: Str = ""
    renewers: list[Str] = field()
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: Str = ""


@message(api_key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    name: Str = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


@message(api_key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    name: Str = ""
    feature_level: Int16 = 0


@struct
class EntityData:
    entity_type: Str = ""
    entity_name: Str | None = field(nullable="0+")


@message(api_key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    entity: list[EntityData] = field()
    key: Str = ""
    value: Float64 = 0.0
    remove: Bool = False


@message(api_key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


@message(api_key=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Int8 = field(tag=0)
    in_controlled_shutdown: Int8 = field("1+", tag=1)
    log_dirs: list[UuidField] = field("2+", tag=2)
    cordoned_log_dirs: list[UuidField] | None = field("3+", nullable="3+", tag=3, default=None)


@message(api_key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    id: UuidField = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: Str = ""
    pattern_type: Int8 = 0
    principal: Str = ""
    host: Str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(api_key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    id: UuidField = ZERO_UUID


@message(api_key=20, versions="0", flexible="0+")
class NoOpRecord:
    pass


@message(api_key=21, versions="0", flexible="0+")
class ZkMigrationStateRecord:
    zk_migration_state: Int8 = 0


@message(api_key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    name: Str = ""
    mechanism: Int8 = 0


@message(api_key=23, versions="0", flexible="0+")
class BeginTransactionRecord:
    name: Str | None = field(nullable="0+", tag=0, default=None)


@message(api_key=24, versions="0", flexible="0+")
class EndTransactionRecord:
    pass


@message(api_key=25, versions="0", flexible="0+")
class AbortTransactionRecord:
    reason: Str | None = field(nullable="0+", tag=0, default=None)


@message(api_key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    token_id: Str = ""


@struct
class ControllerEndpoint:
    name: Str = ""
    host: Str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class ControllerFeature:
    name: Str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(api_key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    controller_id: Int32 = 0
    incarnation_id: UuidField = ZERO_UUID
    zk_migration_ready: Bool = False
    end_points: list[ControllerEndpoint] = field()
    features: list[ControllerFeature] = field()


@message(api_key=28, versions="0", flexible="0+")
class ClearElrRecord:
    topic_name: Str = ""


@message(api_key=29, versions="0", flexible="0+")
class UnregisterControllerRecord:
    controller_id: Int32 = 0


MetadataRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | RemoveUserScramCredentialRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RemoveDelegationTokenRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | UnregisterControllerRecord
)
"""Any record of the metadata log."""

RECORD_TYPES: Final[Mapping[int, type[MetadataRecord]]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
    29: UnregisterControllerRecord,
}
"""Classes by record type."""

_FRAME_VERSION: Final = 1


def encode_metadata_record(record: MetadataRecord, version: int) -> bytes:
    """The value of a record in the metadata log.

    Frame version, type and version as varints, then the body.
    """
    cls: Any = type(record)
    return _head(cls, version) + encode(record, version)


@cache
def _head(cls: type[Any], version: int) -> bytes:
    key = struct_spec(cls).api_key
    assert key is not None
    return encode_uvarint(_FRAME_VERSION) + encode_uvarint(key) + encode_uvarint(version)


def decode_metadata_record(buffer: Buffer) -> tuple[MetadataRecord, int]:
    """``(record, its version)`` from a value of the metadata log.

    ``WireError`` for an unknown type or version, and for bytes left over: those are damage here, as in Kafka.
    """
    frame_version, position = decode_uvarint(buffer, 0)
    if frame_version != _FRAME_VERSION:
        raise WireError(f"metadata record with frame version {frame_version}")
    type_id, position = decode_uvarint(buffer, position)
    version, position = decode_uvarint(buffer, position)
    cls = _class_of(type_id, version)
    record, position = decode(cls, version, buffer, position)
    if position != len(buffer):
        raise WireError(f"{len(buffer) - position} bytes left over after {cls.__name__}")
    return record, version


@cache
def _class_of(type_id: int, version: int) -> type[MetadataRecord]:
    cls = RECORD_TYPES.get(type_id)
    if cls is None:
        raise WireError(f"metadata record of unknown type {type_id}")
    if version not in struct_spec(cls).versions:
        raise WireError(f"{cls.__name__} of unknown version {version}")
    return cls
