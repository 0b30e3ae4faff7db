"""Feature levels: what the whole cluster has agreed to speak (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.result import ControllerResult
from kbroker.raft_metadata.image import METADATA_VERSION
from kbroker.wire.records.metadata import FeatureLevelRecord

if TYPE_CHECKING:
    from kbroker.raft_metadata.controller.controller import Controller

KRAFT_VERSION = "kraft.version"


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

SUPPORTED_FEATURES: Mapping[str, FeatureRange] = MappingProxyType(
    {
        KRAFT_VERSION: FeatureRange(0, 1),
        METADATA_VERSION: FeatureRange(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
    }
)
"""What this software can do, as nodes register it and ApiVersions tells it. A feature is here when, and only when, its
code is: transaction.version, group.version, share.version, streams.version and eligible.leader.replicas.version
come with theirs."""

DEFAULT_FEATURE_LEVELS: Mapping[str, int] = MappingProxyType({METADATA_VERSION: LATEST_METADATA_VERSION})
"""What a fresh cluster finalizes in its bootstrap records. kraft.version is finalized in the log's control records."""


UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A wish of UpdateFeatures: ``level`` 0 removes the feature."""

    name: str
    level: int
    upgrade_type: int


class FeatureControl:
    """Decides on levels."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def update(self, updates: list[FeatureUpdate], *, validate_only: bool = False) -> ControllerResult[None]:
        """Set levels, all or none. ``ApiError``: INVALID_UPDATE_VERSION, INVALID_REQUEST, FEATURE_UPDATE_FAILED."""
        records: list[FeatureLevelRecord] = []
        levels = self._controller.image.features.levels
        for update in updates:
            current = levels.get(update.name, 0)
            supported = SUPPORTED_FEATURES.get(update.name)
            problem = self._problem(update, current, supported)
            if problem is not None:
                raise ApiError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    "The update failed for all features since the following feature had an error: "
                    f"Invalid update version {update.level} for feature {update.name}. {problem}",
                )
            if update.level != current:
                records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
        return ControllerResult(None, [] if validate_only else list(records))

    def _problem(self, update: FeatureUpdate, current: int, supported: FeatureRange | None) -> str | None:
        level = update.level
        node = f"Local controller {self._controller.node_id}"
        if level < 0:
            return "A feature version cannot be less than 0."
        if supported is None:
            return None if level == 0 and current == 0 else f"{node} does not support this feature."
        if update.name == KRAFT_VERSION:
            return "kraft.version cannot be changed after the cluster has been formatted."
        if update.name == METADATA_VERSION and level == 0:
            return "metadata.version cannot be removed."
        if level and not supported.min <= level <= supported.max:
            return f"{node} only supports versions {supported.min}-{supported.max}"
        for broker in self._controller.image.brokers.values():
            low, high = broker.features.get(update.name, (0, 0))
            if level and not low <= level <= high:
                return f"Broker {broker.id} only supports versions {low}-{high}"
        if level < current and update.upgrade_type == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade."
            )
        if level < current and update.name == METADATA_VERSION:
            return f"Refusing to downgrade from {current} to {level}: records of the newer version would be lost."
        return None
