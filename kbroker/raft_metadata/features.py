"""Features: levels that the whole cluster has agreed to speak (KIP-584, KIP-1022), and those this software supports.

A feature is supported when, and only when, its code is here. ``kraft.version`` is finalized in control records of the
metadata log, all others by the controller (``controller.features``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kbroker.raft_metadata.metadata_version import (
    ELIGIBLE_LEADER_REPLICAS,
    LATEST_METADATA_VERSION,
    METADATA_VERSION_NAMES,
    MINIMUM_METADATA_VERSION,
)
from kbroker.value_types import NamedTuple

ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
"""1: eligible leader replicas (KIP-966)."""
GROUP_VERSION = "group.version"
"""1: consumer groups of KIP-848."""
KRAFT_VERSION = "kraft.version"
"""1: a quorum whose voters can change (KIP-853)."""
METADATA_VERSION = "metadata.version"
"""The records that the metadata log may have (``metadata_version``)."""
SHARE_VERSION = "share.version"
"""1: share groups (KIP-932); 2: their dead-letter queues (KIP-1191)."""
DEAD_LETTERS = 2
"""The level of ``share.version`` with dead-letter queues."""
STREAMS_VERSION = "streams.version"
"""1: streams groups (KIP-1071)."""
TRANSACTION_VERSION = "transaction.version"
"""1: flexible records of the coordinator; 2: a new epoch for each transaction (KIP-890)."""


class FeatureRange(NamedTuple):
    """The levels of a feature that this software can work at."""

    min: int
    max: int


SUPPORTED_FEATURES: Mapping[str, FeatureRange] = MappingProxyType(
    {
        ELIGIBLE_LEADER_REPLICAS_VERSION: FeatureRange(0, 1),
        GROUP_VERSION: FeatureRange(0, 1),
        KRAFT_VERSION: FeatureRange(0, 1),
        METADATA_VERSION: FeatureRange(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
        SHARE_VERSION: FeatureRange(0, 2),
        STREAMS_VERSION: FeatureRange(0, 1),
        TRANSACTION_VERSION: FeatureRange(0, 2),
    }
)
"""The features that nodes register and ApiVersions lists."""

_DEFAULT_SINCE: Mapping[tuple[str, int], int] = MappingProxyType(
    {
        (GROUP_VERSION, 1): 22,
        (TRANSACTION_VERSION, 1): 24,
        (TRANSACTION_VERSION, 2): 24,
        (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): 26,
        (SHARE_VERSION, 1): 28,
        (STREAMS_VERSION, 1): 29,
        (SHARE_VERSION, 2): 31,
    }
)
"""The level of ``metadata.version`` from which a fresh cluster has this level of a feature."""

_DEPENDENCIES: Mapping[tuple[str, int], Mapping[str, int]] = MappingProxyType(
    {(ELIGIBLE_LEADER_REPLICAS_VERSION, 1): {METADATA_VERSION: ELIGIBLE_LEADER_REPLICAS}}
)
"""The least levels of other features that a level needs."""


def default_feature_levels(metadata_version: int = LATEST_METADATA_VERSION) -> dict[str, int]:
    """The levels that a fresh cluster at this ``metadata.version`` finalizes; features of level 0 are left out."""
    levels = {METADATA_VERSION: metadata_version}
    for (name, level), since in _DEFAULT_SINCE.items():
        if metadata_version >= since:
            levels[name] = max(level, levels.get(name, 0))
    return levels


def unmet_dependency(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """The reason for which a feature cannot have this level beside ``levels`` of the others; None if it can."""
    if level >= 1 and levels.get(METADATA_VERSION, 0) < MINIMUM_METADATA_VERSION:
        least_name = METADATA_VERSION_NAMES[MINIMUM_METADATA_VERSION]
        return (
            f"{name} could not be set to {level} because it depends on "
            f"{METADATA_VERSION}={MINIMUM_METADATA_VERSION} ({least_name})"
        )
    for other, least in _DEPENDENCIES.get((name, level), {}).items():
        if levels.get(other, 0) < least:
            return f"{name} could not be set to {level} because it depends on {other} level {least}"
    return None
