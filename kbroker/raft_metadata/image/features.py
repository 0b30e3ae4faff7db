"""Finalized feature levels, ``metadata.version`` among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbroker.raft_metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION
from kbroker.value_types import dataclass, field
from kbroker.wire.records import metadata as rec


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """Finalized feature levels by name (``metadata.version`` among them); a missing name is level 0."""

    levels: Mapping[str, int] = field(default_factory=dict)

    @property
    def metadata_version(self) -> int:
        """The level of ``metadata.version``; 0 before the bootstrap records."""
        return self.levels.get(METADATA_VERSION, 0)

    @property
    def elr_enabled(self) -> bool:
        """Whether the controller keeps eligible leader replicas (KIP-966)."""
        return self.levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1

    def records(self) -> Iterator[rec.FeatureLevelRecord]:
        """The levels as records; ``metadata.version`` comes first, since it decides how the others are read."""
        names = sorted(self.levels, key=lambda name: (name != METADATA_VERSION, name))
        for name in names:
            yield rec.FeatureLevelRecord(name=name, feature_level=self.levels[name])


class FeaturesDelta:
    """The changes of feature levels."""

    def __init__(self, image: FeaturesImage) -> None:
        self._image = image
        self._levels: dict[str, int] | None = None

    @property
    def changed(self) -> bool:
        """Whether a level was set."""
        return self._levels is not None

    def apply(self) -> FeaturesImage:
        """The next image."""
        return self._image if self._levels is None else FeaturesImage(self._levels)

    def on_feature_level(self, record: rec.FeatureLevelRecord) -> None:
        """Set a level; 0 removes the feature."""
        if self._levels is None:
            self._levels = dict(self._image.levels)
        if record.feature_level == 0:
            self._levels.pop(record.name, None)
        else:
            self._levels[record.name] = record.feature_level
