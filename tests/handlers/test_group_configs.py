"""Configurations of consumer groups: set, bounded, described, listed, in force."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from kbroker.config import BROKER_CONFIGS, GROUP_CONFIG_SYNONYMS, GroupConfig
from kbroker.config.absent import ALL_GROUP_CONFIGS
from kbroker.errors import ErrorCode as E
from kbroker.raft_metadata.config_schema import group_config
from kbroker.raft_metadata.image import EMPTY_IMAGE, ConfigResource, MetadataDelta
from kbroker.types import OffsetAndEpoch
from kbroker.wire.messages import configs as wire
from tests.handlers.metadata_plane import Plane, metadata_plane

GROUP = 32
SET, DELETE = 0, 1
DEFAULTS = GroupConfig(45_000, 5_000, 1_000)


def converse(path: Path, talk: Callable[[Plane], Awaitable[None]], **more: str) -> None:
    async def main() -> None:
        async with metadata_plane(path, **more) as plane:
            await talk(plane)

    trio.run(main)


def change(name: str, *configs: tuple[str, str | None], kind: int = GROUP) -> wire.IncrementalAlterConfigsRequest:
    return wire.IncrementalAlterConfigsRequest(
        resources=[
            wire.IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    wire.IncrementalAlterableConfig(
                        name=key, config_operation=DELETE if value is None else SET, value=value
                    )
                    for key, value in configs
                ],
            )
        ]
    )


def describe(name: str) -> wire.DescribeConfigsRequest:
    resource = wire.DescribeConfigsResource(resource_type=GROUP, resource_name=name, configuration_keys=None)
    return wire.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)


def in_force(plane: Plane, group_id: str) -> GroupConfig:
    return group_config(plane.metadata.image, plane.services.config, group_id)


def test_every_group_property_has_a_broker_property() -> None:
    assert set(GROUP_CONFIG_SYNONYMS.values()) <= set(BROKER_CONFIGS)


def test_a_groups_configs_are_set_described_listed_and_removed(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        assert in_force(plane, "g") == DEFAULTS
        answer = await plane.ask(change("g", ("consumer.session.timeout.ms", "50000")))
        assert [(entry.error_code, entry.resource_type) for entry in answer.responses] == [(0, GROUP)]
        assert in_force(plane, "g") == GroupConfig(50_000, 5_000, 1_000)
        assert in_force(plane, "other") == DEFAULTS

        result = (await plane.ask(describe("g"))).results[0]
        described = {config.name: config for config in result.configs}
        assert set(described) == {name for name, key in ALL_GROUP_CONFIGS.items() if not key.internal}
        lock = described["share.record.lock.duration.ms"]
        assert (lock.value, lock.config_source) == ("30000", 5)
        assert [(s.name, s.value, s.source) for s in lock.synonyms] == [
            ("group.share.record.lock.duration.ms", "30000", 5)
        ]
        isolation = described["share.isolation.level"]
        assert [(s.name, s.value, s.source) for s in isolation.synonyms] == [
            ("share.isolation.level", "read_uncommitted", 5)
        ]
        session = described["consumer.session.timeout.ms"]
        assert (session.value, session.config_source, session.read_only, session.config_type) == ("50000", 8, False, 3)
        assert [(s.name, s.value, s.source) for s in session.synonyms] == [
            ("consumer.session.timeout.ms", "50000", 8),
            ("group.consumer.session.timeout.ms", "45000", 5),
        ]
        heartbeat = described["consumer.heartbeat.interval.ms"]
        assert (heartbeat.value, heartbeat.config_source) == ("5000", 5)

        listed = await plane.ask(wire.ListConfigResourcesRequest(resource_types=[GROUP]))
        assert [(r.resource_name, r.resource_type) for r in listed.config_resources] == [("g", GROUP)]
        every = await plane.ask(wire.ListConfigResourcesRequest())
        assert [r.resource_type for r in every.config_resources] == [GROUP, 8, 4]

        await plane.ask(change("g", ("consumer.session.timeout.ms", None)))
        assert in_force(plane, "g") == DEFAULTS
        assert not (await plane.ask(wire.ListConfigResourcesRequest(resource_types=[GROUP]))).config_resources

    converse(tmp_path, talk)


def test_the_brokers_own_values_stand_for_what_a_group_has_not_set(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
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

    converse(tmp_path, talk, group_consumer_session_timeout_ms="48000")


def test_values_are_described_in_the_form_that_kafka_gives_them(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        changes = {"consumer.session.timeout.ms": " 50000 ", "share.auto.offset.reset": " latest"}
        answer = await plane.ask(change("g", *changes.items()))
        assert answer.responses[0].error_code == 0
        described = {each.name: each for each in (await plane.ask(describe("g"))).results[0].configs}
        for name, value in changes.items():
            assert (described[name].value, described[name].synonyms[0].value) == (value.strip(), value.strip())

    converse(tmp_path, talk)


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
def test_bad_group_configs(tmp_path: Path, name: str, value: str, code: E, text: str) -> None:
    async def talk(plane: Plane) -> None:
        response = (await plane.ask(change("g", (name, value)))).responses[0]
        assert response.error_code == code and text in response.error_message
        assert (GROUP, "g") not in plane.metadata.image.configs.by_resource

    converse(tmp_path, talk)


def test_a_session_is_longer_than_the_time_between_heartbeats(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        both = change("g", ("consumer.session.timeout.ms", "6000"), ("consumer.heartbeat.interval.ms", "6000"))
        response = (await plane.ask(both)).responses[0]
        assert response.error_code == E.INVALID_CONFIG
        assert response.error_message.endswith(".timeout.ms must be greater than consumer.heartbeat.interval.ms")

    converse(tmp_path, talk, group_consumer_min_session_timeout_ms="5000")


def test_what_was_set_is_in_the_snapshot_and_moved_within_todays_bounds(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        await plane.ask(change("g", ("consumer.session.timeout.ms", "60000")))
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in plane.metadata.image.records():
            delta.replay(record)
        image = delta.apply(OffsetAndEpoch(9, 1))
        assert image.configs.get(ConfigResource(GROUP, "g")) == {"consumer.session.timeout.ms": "60000"}
        tighter = plane.services.config.with_properties({"group.consumer.max.session.timeout.ms": "55000"})
        assert group_config(image, tighter, "g").consumer_session_timeout_ms == 55_000

    converse(tmp_path, talk)
