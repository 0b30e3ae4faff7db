"""Feature levels: what the whole cluster has agreed to speak (KIP-584, KIP-1022).

A feature is supported when, and only when, its code is here. kraft.version is finalized in the metadata log's control
records, not by the controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.result import ControllerResult
from kbroker.raft_metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION, TRANSACTION_VERSION
from kbroker.wire.records.metadata import FeatureLevelRecord

if TYPE_CHECKING:
    from kbroker.raft_metadata.controller.controller import Controller

KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
"""1: consumer groups of KIP-848."""


class FeatureRange(NamedTuple):
    """The levels of a feature that this software can work at."""

    min: int
    max: int


LATEST_METADATA_VERSION = 30
"""4.3-IV0, the latest production level of Apache Kafka 4.3."""

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
    }
)

METADATA_CHANGES = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels of ``metadata.version`` that brought records or fields: below one of them they would be lost."""

METADATA_TRANSACTIONS = 14
"""The level of ``metadata.version`` from which several batches of records can be one change (KIP-868)."""

SUPPORTED_FEATURES: Mapping[str, FeatureRange] = MappingProxyType(
    {
        ELIGIBLE_LEADER_REPLICAS_VERSION: FeatureRange(0, 1),
        GROUP_VERSION: FeatureRange(0, 1),
        KRAFT_VERSION: FeatureRange(0, 1),
        METADATA_VERSION: FeatureRange(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
        TRANSACTION_VERSION: FeatureRange(0, 2),
    }
)
"""What this software can do, as nodes register it and ApiVersions tells it."""

TOLERATED_FEATURES: Mapping[str, FeatureRange] = MappingProxyType(
    {
        "share.version": FeatureRange(0, 1),
        "streams.version": FeatureRange(0, 1),
    }
)
"""What Apache Kafka 4.3 finalizes in a fresh cluster and this software cannot do, but does no harm to: a node that
finds such a level in the metadata (its directory was Apache Kafka's) registers as if it could, and serves what it
can."""

_DEFAULT_SINCE: Mapping[tuple[str, int], int] = MappingProxyType(
    {
        (GROUP_VERSION, 1): 22,
        (TRANSACTION_VERSION, 1): 24,
        (TRANSACTION_VERSION, 2): 24,
        (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): 26,
    }
)
"""The level of ``metadata.version`` from which a fresh cluster has this level of a feature."""

_DEPENDENCIES: Mapping[tuple[str, int], Mapping[str, int]] = MappingProxyType(
    {(ELIGIBLE_LEADER_REPLICAS_VERSION, 1): {METADATA_VERSION: 23}}
)
"""The least levels of other features that a level needs."""


def features_to_register(finalized: Mapping[str, int]) -> dict[str, FeatureRange]:
    """What a node tells of itself in a cluster with these levels."""
    tolerated = {name: levels for name, levels in TOLERATED_FEATURES.items() if finalized.get(name, 0) > 0}
    return {**tolerated, **SUPPORTED_FEATURES}


def default_feature_levels(metadata_version: int = LATEST_METADATA_VERSION) -> dict[str, int]:
    """What a fresh cluster at this ``metadata.version`` finalizes; features of level 0 are left out."""
    levels = {METADATA_VERSION: metadata_version}
    for (name, level), since in _DEFAULT_SINCE.items():
        if metadata_version >= since:
            levels[name] = max(level, levels.get(name, 0))
    return levels


def unmet_dependency(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Why a feature cannot have this level among these ``levels`` of the others; None if it can."""
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


UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A wish of UpdateFeatures: ``level`` 0 removes the feature."""

    name: str
    level: int
    upgrade_type: int


class FeatureControl:
    """Decides on levels (Kafka's ``FeatureControlManager``)."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def update(
        self, updates: Sequence[FeatureUpdate], *, kraft_version: int = 1, validate_only: bool = False
    ) -> ControllerResult[None]:
        """Set levels, all or none; ``ApiError`` INVALID_UPDATE_VERSION. Names must differ.

        ``kraft_version`` is what the quorum works at.
        """
        current = {**self._controller.image.features.levels, KRAFT_VERSION: kraft_version}
        proposed = current | {update.name: update.level for update in updates}
        records: list[Any] = []
        for update in updates:
            problem = self._problem(update, current.get(update.name, 0), proposed)
            if problem is not None:
                raise ApiError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"The update failed for all features since the following feature had an error: {problem}",
                )
            if update.level != current.get(update.name, 0):
                records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
        if proposed.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) and ELIGIBLE_LEADER_REPLICAS_VERSION not in current:
            records = [*self._controller.configs.records_for_elr(), *records]
        return ControllerResult(None, [] if validate_only else records)

    def _problem(self, update: FeatureUpdate, current: int, proposed: Mapping[str, int]) -> str | None:
        name, level = update.name, update.level
        reason = self._general_problem(update, current)
        if reason is None and name == METADATA_VERSION:
            return _metadata_downgrade_problem(current, level, unsafe=update.upgrade_type == UNSAFE_DOWNGRADE)
        if reason is None and name == KRAFT_VERSION and level != current:
            if level < current:
                reason = "Can't downgrade the version of this feature."
            else:
                reason = "A quorum of fixed voters cannot become a dynamic one on this node."
        if reason is None and name not in SUPPORTED_FEATURES:
            reason = f"Feature {name} not found."
        if reason is None:
            reason = unmet_dependency(name, level, proposed)
        return None if reason is None else f"Invalid update version {level} for feature {name}. {reason}"

    def _general_problem(self, update: FeatureUpdate, current: int) -> str | None:
        level = update.level
        if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        unsupported = self._unsupported(update.name, level)
        if unsupported is not None:
            return unsupported
        if level < current and update.upgrade_type == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade."
            )
        if level > current and update.upgrade_type != UPGRADE:
            return "Can't downgrade to a newer version."
        return None

    def _unsupported(self, name: str, level: int) -> str | None:
        """Which node cannot work at this level, if any."""
        image = self._controller.image
        nodes: list[tuple[str, tuple[int, int]]] = [
            (f"Local controller {self._controller.node_id}", SUPPORTED_FEATURES.get(name, _ABSENT))
        ]
        nodes += [(f"Broker {node.id}", node.features.get(name, _ABSENT)) for node in image.brokers.values()]
        nodes += [
            (f"Controller {node.id}", node.features.get(name, _ABSENT))
            for node in image.controllers.values()
            if node.id != self._controller.node_id
        ]
        for node, (low, high) in nodes:
            if not low <= level <= high:
                return (
                    f"{node} only supports versions {low}-{high}" if high else f"{node} does not support this feature."
                )
        return None


_ABSENT = FeatureRange(0, 0)


def _metadata_downgrade_problem(current: int, level: int, *, unsafe: bool) -> str | None:
    if not any(level < changed <= current for changed in METADATA_CHANGES):
        return None
    reason = (
        "Unsafe metadata downgrade is not supported in this version."
        if unsafe
        else "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    return f"Unsupported metadata.version downgrade from {current} to {level}. {reason}"
