"""The ``quorum-state`` file of a KRaft node (as JSON there; the schema gives names and versions)."""

from __future__ import annotations

from kbroker.wire.schema import Int32, Int64, Str, UuidField, field, message, struct


@struct
class Voter:
    voter_id: Int32 = field("0")


@message(versions="0-1", flexible="0+")
class QuorumStateData:
    """A node's vote and leader."""

    cluster_id: Str = field("0")
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    voted_id: Int32 = -1
    voted_directory_id: UuidField = field("1+")
    applied_offset: Int64 = field("0")
    current_voters: list[Voter] | None = field("0", nullable="0")
