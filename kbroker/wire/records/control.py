"""Control records: transaction markers, and those of the metadata log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kbroker.types import ZERO_UUID
from kbroker.wire.compiler import decode, encode
from kbroker.wire.control_batch import ControlRecordType
from kbroker.wire.errors import WireError
from kbroker.wire.primitives import Buffer
from kbroker.wire.records.versioned import decode_versioned, encode_versioned
from kbroker.wire.schema import Int16, Int32, Int64, Str, UInt16, UuidField, field, message, struct


@message(versions="0")
class ControlRecordTypeSchema:
    """Key of a control record, after its version."""

    type: Int16 = 0


@message(versions="0")
class EndTxnMarker:
    coordinator_epoch: Int32 = 0


@struct
class Voter:
    voter_id: Int32 = 0
    voter_directory_id: UuidField = field("1+")


@message(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    version: Int16 = 0
    leader_id: Int32 = 0
    voters: list[Voter] = field()
    granting_voters: list[Voter] = field()


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


@message(versions="0", flexible="0+")
class SnapshotFooterRecord:
    version: Int16 = 0


@message(versions="0", flexible="0+")
class KRaftVersionRecord:
    version: Int16 = 0
    kraft_version: Int16 = 0


@struct
class Endpoint:
    name: Str = ""
    host: Str = ""
    port: UInt16 = 0


@struct
class KRaftVersionFeature:
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@struct
class VotersRecordVoter:
    voter_id: Int32 = 0
    voter_directory_id: UuidField = ZERO_UUID
    endpoints: list[Endpoint] = field()
    kraft_version_feature: KRaftVersionFeature = field()


@message(versions="0", flexible="0+")
class VotersRecord:
    version: Int16 = 0
    voters: list[VotersRecordVoter] = field()


ControlRecord = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
"""The values of the metadata log's control records. Each is written in version 0, as in Kafka 4.3.1."""

_QUORUM_RECORDS: Final[Mapping[int, type[ControlRecord]]] = {
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}


def encode_control_key(record_type: ControlRecordType) -> bytes:
    """The key of a control record."""
    return encode_versioned(ControlRecordTypeSchema(type=record_type), 0)


def decode_control_key(buffer: Buffer) -> int:
    """The type in a control record's key, known or not; readers pass over those they do not know."""
    return decode_versioned(ControlRecordTypeSchema, buffer, newer_as_newest=True)[0].type


def encode_control_value(record: ControlRecord) -> bytes:
    """The value of a control record of the metadata log."""
    return encode(record, 0)


def decode_control_value(record_type: int, buffer: Buffer) -> ControlRecord:
    """The value of a control record of the metadata log; ``WireError`` for any other type."""
    cls = _QUORUM_RECORDS.get(record_type)
    if cls is None:
        raise WireError(f"control record type {record_type} is none of the metadata log's")
    return decode(cls, 0, buffer)[0]


def decode_end_txn_marker(buffer: Buffer) -> int:
    """The coordinator epoch in the value of a COMMIT or ABORT marker."""
    return decode_versioned(EndTxnMarker, buffer, newer_as_newest=True)[0].coordinator_epoch
