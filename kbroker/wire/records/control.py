"""Control records: transaction markers, and those of the metadata log."""

from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Int64, Str, UInt16, UuidField, field, message, struct


@message(versions="0")
class ControlRecordTypeSchema:
    """Key of a control record, after its version."""

    type: Int16 = 0


@message(versions="0")
class EndTxnMarker:
    """Control record EndTxnMarker."""

    coordinator_epoch: Int32 = 0


@struct
class Voter:
    """Part of LeaderChangeMessage."""

    voter_id: Int32 = 0
    voter_directory_id: UuidField = field("1+")


@message(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """Control record LeaderChangeMessage."""

    version: Int16 = 0
    leader_id: Int32 = 0
    voters: list[Voter] = field()
    granting_voters: list[Voter] = field()


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """Control record SnapshotHeaderRecord."""

    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


@message(versions="0", flexible="0+")
class SnapshotFooterRecord:
    """Control record SnapshotFooterRecord."""

    version: Int16 = 0


@message(versions="0", flexible="0+")
class KRaftVersionRecord:
    """Control record KRaftVersionRecord."""

    version: Int16 = 0
    kraft_version: Int16 = 0


@struct
class Endpoint:
    """Part of VotersRecord."""

    name: Str = ""
    host: Str = ""
    port: UInt16 = 0


@struct
class KRaftVersionFeature:
    """Part of VotersRecord."""

    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@struct
class VotersRecordVoter:
    """Part of VotersRecord."""

    voter_id: Int32 = 0
    voter_directory_id: UuidField = ZERO_UUID
    endpoints: list[Endpoint] = field()
    kraft_version_feature: KRaftVersionFeature = field()


@message(versions="0", flexible="0+")
class VotersRecord:
    """Control record VotersRecord."""

    version: Int16 = 0
    voters: list[VotersRecordVoter] = field()
