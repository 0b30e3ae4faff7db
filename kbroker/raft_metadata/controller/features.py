"""UpdateFeatures: the finalized levels of features change (Kafka's ``FeatureControlManager``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.configs import elr_safety_records
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.raft_metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    FeatureRange,
    unmet_dependency,
)
from kbroker.raft_metadata.metadata_version import CONTROLLER_REGISTRATION, METADATA_CHANGES
from kbroker.value_types import NamedTuple
from kbroker.wire.records.metadata import FeatureLevelRecord, NoOpRecord

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level that UpdateFeatures asks for; 0 removes the feature. ``upgrade_type``: UPGRADE or a downgrade."""

    name: str
    level: int
    upgrade_type: int


_ABSENT = FeatureRange(0, 0)


def update_features(
    view: ControllerView,
    updates: Sequence[FeatureUpdate],
    *,
    kraft_version: int = 1,
    voters: Sequence[int] = (),
    validate_only: bool = False,
) -> ControllerResult[None]:
    """Set levels, all or none; ``ApiError`` INVALID_UPDATE_VERSION. Names must differ.

    ``kraft_version``: the finalized level, which the image does not have. It is raised by the quorum, not by these
    records. ``voters``: the node ids of the quorum's voters, which must all have registered.
    """
    current = {**view.image.features.levels, KRAFT_VERSION: kraft_version}
    proposed = current | {update.name: update.level for update in updates}
    records: list[object] = []
    for update in updates:
        problem = _problem(view, update, current.get(update.name, 0), proposed, voters)
        if problem is not None:
            raise update_failed(problem)
        if update.name == KRAFT_VERSION:
            if update.upgrade_type == UPGRADE:
                # Its level is in the quorum's own records. This one gives the finalized features another epoch.
                records.append(NoOpRecord())
        elif update.level != current.get(update.name, 0):
            records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
    if proposed.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) and ELIGIBLE_LEADER_REPLICAS_VERSION not in current:
        records = [*elr_safety_records(view), *records]
    return ControllerResult(None, [] if validate_only else records)


def update_failed(problem: str | None) -> ApiError:
    """The error of an update of which one feature has a problem, in Kafka's words."""
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"The update failed for all features since the following feature had an error: {problem}",
    )


def _problem(
    view: ControllerView, update: FeatureUpdate, current: int, proposed: Mapping[str, int], voters: Sequence[int]
) -> str | None:
    name, level = update.name, update.level
    reason = _general_problem(view, update, current, voters)
    if reason is None and name == METADATA_VERSION:
        return _metadata_downgrade_problem(current, level, unsafe=update.upgrade_type == UNSAFE_DOWNGRADE)
    if reason is None and name == KRAFT_VERSION and level < current:
        reason = "Can't downgrade the version of this feature."
    if reason is None and name not in SUPPORTED_FEATURES:
        reason = f"Feature {name} not found."
    if reason is None:
        reason = unmet_dependency(name, level, proposed)
    return None if reason is None else f"Invalid update version {level} for feature {name}. {reason}"


def _general_problem(view: ControllerView, update: FeatureUpdate, current: int, voters: Sequence[int]) -> str | None:
    level = update.level
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    unsupported = _unsupported(view, update.name, level, voters)
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


def _unsupported(view: ControllerView, name: str, level: int, voters: Sequence[int]) -> str | None:
    """The first node that cannot work at this level, in Kafka's words; None if all can."""
    image = view.image
    own = SUPPORTED_FEATURES.get(name, _ABSENT)
    nodes: list[tuple[str, tuple[int, int]]] = [(f"Local controller {view.node_id}", own)]
    nodes += [(f"Broker {node.id}", node.features.get(name, _ABSENT)) for node in image.brokers.values()]
    nodes += [
        (f"Controller {node.id}", node.features.get(name, _ABSENT))
        for node in image.controllers.values()
        if node.id != view.node_id
    ]
    for node, (low, high) in nodes:
        if not low <= level <= high:
            return f"{node} only supports versions {low}-{high}" if high else f"{node} does not support this feature."
    if image.features.metadata_version >= CONTROLLER_REGISTRATION:
        for voter in voters:
            if voter != view.node_id and voter not in image.controllers:
                return f"controller {voter} has not registered, and may not support this feature"
    return None


def _metadata_downgrade_problem(current: int, level: int, *, unsafe: bool) -> str | None:
    if not any(level < changed <= current for changed in METADATA_CHANGES):
        return None
    reason = (
        "Unsafe metadata downgrade is not supported in this version."
        if unsafe
        else "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    return f"Unsupported metadata.version downgrade from {current} to {level}. {reason}"
