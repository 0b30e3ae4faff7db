"""UpdateFeatures, and what the features carry with them: answers compared with those of Apache Kafka 4.4.0."""

from __future__ import annotations

from pathlib import Path

from kbroker.errors import ErrorCode as E
from kbroker.raft_metadata.controller.configs import SET, ConfigChange, incremental_alter_configs
from kbroker.raft_metadata.image import ConfigResource
from kbroker.wire.messages import update_features as uf
from kbroker.wire.records.metadata import ClearElrRecord
from tests.handlers.metadata_plane import Plane, metadata_plane

UPGRADE, SAFE, UNSAFE = 1, 2, 3
MIN_ISR = "min.insync.replicas"
ELR = "eligible.leader.replicas.version"


async def update(
    plane: Plane, *wanted: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> uf.UpdateFeaturesResponse:
    request = uf.UpdateFeaturesRequest(
        feature_updates=[
            uf.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level, upgrade_type in wanted
        ],
        validate_only=validate_only,
    )
    answer: uf.UpdateFeaturesResponse = await plane.ask(request, version)
    return answer


def levels(plane: Plane) -> dict[str, int]:
    return dict(plane.metadata.image.features.levels)


FRESH = {
    "metadata.version": 33,
    ELR: 1,
    "group.version": 1,
    "share.version": 2,
    "streams.version": 1,
    "transaction.version": 2,
}


async def test_all_or_none_and_the_later_of_two(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        answer = await update(plane, ("group.version", 0, SAFE), ("share.version", 3, UPGRADE))
        assert answer.error_code == E.INVALID_UPDATE_VERSION and levels(plane) == FRESH
        answer = await update(plane, ("group.version", 0, SAFE), ("group.version", 1, UPGRADE), version=1)
        assert [(r.feature, r.error_code, r.error_message) for r in answer.results] == [("group.version", 0, "NONE")]
        assert levels(plane) == FRESH


async def test_share_groups_are_turned_off_and_on_whatever_the_level_of_the_metadata(tmp_path: Path) -> None:
    """``kafka-features downgrade --release-version`` names every feature of Apache Kafka, at its level of that
    release."""

    async with metadata_plane(tmp_path) as plane:
        for level, kind in ((1, SAFE), (0, SAFE), (0, SAFE), (1, UPGRADE), (2, UPGRADE)):
            assert (await update(plane, ("share.version", level, kind), ("group.version", 1, SAFE))).error_code == 0
            assert levels(plane).get("share.version", 0) == level
        assert (await update(plane, ("foo.version", 0, SAFE))).error_code == E.INVALID_UPDATE_VERSION


async def test_another_min_isr_clears_the_eligible_leaders(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        changes = {ConfigResource(4, ""): [ConfigChange(MIN_ISR, SET, "2")]}
        result = incremental_alter_configs(plane.metadata.controller.view(), changes)
        assert [*result.records][1:] == [ClearElrRecord(topic_name="")]
