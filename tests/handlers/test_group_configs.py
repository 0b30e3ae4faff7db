"""Configurations of consumer groups: set, bounded, described, listed, in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.config import BROKER_CONFIGS, GROUP_CONFIG_SYNONYMS, GroupConfig
from kbroker.errors import ErrorCode as E
from kbroker.raft_metadata.config_schema import group_config
from kbroker.raft_metadata.image import EMPTY_IMAGE, ConfigResource, MetadataDelta
from kbroker.types import OffsetAndEpoch
from kbroker.wire.messages import configs as dc
from kbroker.wire.messages import configs as inc
from tests.handlers.metadata_plane import Plane, metadata_plane

GROUP = 32
SET, DELETE = 0, 1
DEFAULTS = GroupConfig(45_000, 5_000, 1_000)


def change(name: str, *configs: tuple[str, str | None], kind: int = GROUP) -> inc.IncrementalAlterConfigsRequest:
    return inc.IncrementalAlterConfigsRequest(
        resources=[
            inc.IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    inc.IncrementalAlterableConfig(
                        name=key, config_operation=DELETE if value is None else SET, value=value
                    )
                    for key, value in configs
                ],
            )
        ]
    )


def describe(name: str) -> dc.DescribeConfigsRequest:
    resource = dc.DescribeConfigsResource(resource_type=GROUP, resource_name=name, configuration_keys=None)
    return dc.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)


def in_force(plane: Plane, group_id: str) -> GroupConfig:
    return group_config(plane.metadata.image, plane.services.config, group_id)


def test_every_group_property_has_a_broker_property() -> None:
    assert set(GROUP_CONFIG_SYNONYMS.values()) <= set(BROKER_CONFIGS)


async def test_the_brokers_own_values_stand_for_what_a_group_has_not_set(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path, group_consumer_session_timeout_ms="48000") as plane:
        assert in_force(plane, "g") == GroupConfig(48_000, 5_000, 1_000)
        dynamic = change("", ("group.consumer.assignment.interval.ms", "7000"), kind=4)
        assert (await plane.ask(dynamic)).responses[0].error_code == 0
        assert in_force(plane, "g") == GroupConfig(48_000, 5_000, 7_000)
        beyond = change("", ("group.consumer.assignment.interval.ms", "15001"), kind=4)
        assert (await plane.ask(beyond)).responses[0].error_code == E.INVALID_REQUEST
        described = {config.name: config for config in (await plane.ask(describe("g"))).results[0].configs}
        assert [(s.value, s.source) for s in described["consumer.session.timeout.ms"].synonyms] == [
            ("48000", 4),
            ("45000", 5),
        ]
        assert [(s.value, s.source) for s in described["consumer.assignment.interval.ms"].synonyms] == [
            ("7000", 3),
            ("1000", 5),
        ]


async def test_values_are_described_in_the_form_that_kafka_gives_them(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        changes = {"consumer.session.timeout.ms": " 50000 ", "share.auto.offset.reset": " latest"}
        answer = await plane.ask(change("g", *changes.items()))
        assert answer.responses[0].error_code == 0
        described = {each.name: each for each in (await plane.ask(describe("g"))).results[0].configs}
        for name, value in changes.items():
            assert (described[name].value, described[name].synonyms[0].value) == (value.strip(), value.strip())


@pytest.mark.parametrize(
    ("name", "value", "code", "text"),
    [
        ("consumer.session.timeout.ms", "0", E.INVALID_CONFIG, "at least 1"),
        ("share.session.timeout.ms", "44999", E.INVALID_CONFIG, "must be in the range "),
        ("share.auto.offset.reset", "by_duration:soon", E.INVALID_CONFIG, "must be either"),
        ("errors.deadletterqueue.topic.name", "__dlq", E.INVALID_CONFIG, "DLQ topic name must not start with '__'"),
        ("streams.num.standby.replicas", "3", E.INVALID_CONFIG, "less than or equal to"),
    ],
)
async def test_bad_group_configs(tmp_path: Path, name: str, value: str, code: E, text: str) -> None:
    async with metadata_plane(tmp_path) as plane:
        response = (await plane.ask(change("g", (name, value)))).responses[0]
        assert response.error_code == code and text in response.error_message
        assert (GROUP, "g") not in plane.metadata.image.configs.by_resource


async def test_a_session_is_longer_than_the_time_between_heartbeats(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path, group_consumer_min_session_timeout_ms="5000") as plane:
        both = change("g", ("consumer.session.timeout.ms", "6000"), ("consumer.heartbeat.interval.ms", "6000"))
        response = (await plane.ask(both)).responses[0]
        assert response.error_code == E.INVALID_CONFIG
        assert response.error_message.endswith(".timeout.ms must be greater than consumer.heartbeat.interval.ms")


async def test_what_was_set_is_in_the_snapshot_and_moved_within_todays_bounds(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(change("g", ("consumer.session.timeout.ms", "60000")))
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in plane.metadata.image.records():
            delta.replay(record)
        image = delta.apply(OffsetAndEpoch(9, 1))
        assert image.configs.get(ConfigResource(GROUP, "g")) == {"consumer.session.timeout.ms": "60000"}
        tighter = plane.services.config.with_properties({"group.consumer.max.session.timeout.ms": "55000"})
        assert group_config(image, tighter, "g").consumer_session_timeout_ms == 55_000
