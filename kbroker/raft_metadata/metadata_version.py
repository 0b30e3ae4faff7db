"""The levels of ``metadata.version``: their names, and the level from which on each record or field is allowed.

Code that makes a record asks here for the fields that the level has; :mod:`kbroker.raft_metadata.raft.batches` writes
the record in the version of the level. Source of the rules: Kafka's ``MetadataVersion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LATEST_METADATA_VERSION = 33
"""4.4-IV2, the latest production level of Apache Kafka 4.4."""

MINIMUM_METADATA_VERSION = 7
"""3.3-IV3, the oldest level that a 4.x node can join."""

METADATA_VERSION_NAMES: Mapping[int, str] = MappingProxyType(
    {
        7: "3.3-IV3",
        8: "3.4-IV0",
        9: "3.5-IV0",
        10: "3.5-IV1",
        11: "3.5-IV2",
        12: "3.6-IV0",
        13: "3.6-IV1",
        14: "3.6-IV2",
        15: "3.7-IV0",
        16: "3.7-IV1",
        17: "3.7-IV2",
        18: "3.7-IV3",
        19: "3.7-IV4",
        20: "3.8-IV0",
        21: "3.9-IV0",
        22: "4.0-IV0",
        23: "4.0-IV1",
        24: "4.0-IV2",
        25: "4.0-IV3",
        26: "4.1-IV0",
        27: "4.1-IV1",
        28: "4.2-IV0",
        29: "4.2-IV1",
        30: "4.3-IV0",
        31: "4.4-IV0",
        32: "4.4-IV1",
        33: "4.4-IV2",
    }
)

METADATA_CHANGES = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33})
"""Levels that brought records or fields, which a downgrade below them would lose."""

MIGRATION = 8
"""RegisterBrokerRecord has a flag for brokers in migration from ZooKeeper (KIP-866)."""

NO_EPOCH_BUMP_ON_ISR_SHRINK = 12
"""Brokers need no new leader epoch when the ISR shrinks (KAFKA-15021)."""

SCRAM = 11
"""SCRAM credentials are records of the metadata (3.5-IV2, KIP-900)."""

METADATA_TRANSACTIONS = 13
"""A change can have several batches of records (KIP-868)."""

DELEGATION_TOKENS = 14
"""Delegation tokens are records of the metadata (3.6-IV2, KAFKA-15219)."""

CONTROLLER_REGISTRATION = 15
"""Controllers register (KIP-919)."""

DIRECTORIES = 17
"""Records have the log directories of brokers, and of each replica (KIP-858)."""

ELIGIBLE_LEADER_REPLICAS = 23
"""Records have eligible leader replicas (KIP-966)."""

CORDONED_DIRECTORIES = 30
"""Records have cordoned directories (KIP-1066)."""

CIDR_HOSTS_OF_ACLS = 32
"""ACLs may have ranges of addresses as hosts (KIP-1276, 4.4-IV1)."""

CONTROLLER_UNREGISTRATION = 33
"""Controllers can be unregistered (KIP-1312, 4.4-IV2)."""


def metadata_version_name(level: int) -> str:
    """The name of a level, or its number if it has none here."""
    return METADATA_VERSION_NAMES.get(level, str(level))
