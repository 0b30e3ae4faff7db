"""UpdateFeatures, and what the features carry with them: answers compared with those of Apache Kafka 4.4.0."""

from __future__ import annotations

from pathlib import Path

from kbroker.errors import ErrorCode as E
from kbroker.raft_metadata.controller.configs import SET, ConfigChange, incremental_alter_configs
from kbroker.raft_metadata.image import ConfigResource
from kbroker.wire.messages import api_versions as av
from kbroker.wire.messages import update_features as uf
from kbroker.wire.records.metadata import ClearElrRecord
from tests.handlers.metadata_plane import Plane, metadata_plane
from tests.handlers.test_group_configs import change, describe

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


async def test_a_fresh_cluster_finalizes_what_is_there_and_nothing_else(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        assert levels(plane) == FRESH
        assert plane.metadata.image.configs.for_broker(None) == {MIN_ISR: "1"}
        answer = await plane.ask(av.ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        assert {f.name: (f.min_version, f.max_version) for f in answer.supported_features} == {
            ELR: (0, 1),
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 33),
            "share.version": (0, 2),
            "streams.version": (0, 1),
            "transaction.version": (0, 2),
        }
        assert {f.name: f.max_version_level for f in answer.finalized_features} == {**FRESH, "kraft.version": 1}


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


async def test_eligible_leader_replicas_need_one_min_isr_for_all_brokers(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path, min_insync_replicas="3") as plane:
        for request, reason in (
            (change("1", (MIN_ISR, "1"), kind=4), f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."),
            (change("1", (MIN_ISR, None), kind=4), f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."),
            (change("", (MIN_ISR, None), kind=4), f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."),
        ):
            response = (await plane.ask(request)).responses[0]
            assert (response.error_code, response.error_message) == (E.INVALID_CONFIG, reason)
        assert (await plane.ask(change("", (MIN_ISR, "2"), kind=4))).responses[0].error_code == 0
        assert plane.metadata.image.configs.for_broker(None) == {MIN_ISR: "2"}

        # Without the feature each broker may have its own; with it again, those go and the default comes back.
        assert (await update(plane, (ELR, 0, SAFE))).error_code == 0
        assert (await plane.ask(change("1", (MIN_ISR, "1"), kind=4))).responses[0].error_code == 0
        assert (await plane.ask(change("", (MIN_ISR, None), kind=4))).responses[0].error_code == 0
        assert (await update(plane, (ELR, 1, UPGRADE))).error_code == 0
        assert dict(plane.metadata.image.configs.by_resource) == {(4, ""): {MIN_ISR: "3"}}


async def test_another_min_isr_clears_the_eligible_leaders(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        changes = {ConfigResource(4, ""): [ConfigChange(MIN_ISR, SET, "2")]}
        result = incremental_alter_configs(plane.metadata.controller.view(), changes)
        assert result.records[1:] == [ClearElrRecord(topic_name="")]


async def test_the_brokers_default_is_a_synonym_of_its_own(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        request = describe("1")
        request.resources[0].resource_type = 4
        request.resources[0].configuration_keys = [MIN_ISR]
        entry = (await plane.ask(request)).results[0].configs[0]
        assert (entry.value, entry.config_source) == ("1", 3)
        assert [(s.name, s.value, s.source) for s in entry.synonyms] == [(MIN_ISR, "1", 3), (MIN_ISR, "1", 5)]
