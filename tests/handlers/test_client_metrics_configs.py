"""Subscriptions to clients' metrics as metadata: set, judged, described, listed, removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from kbroker.errors import ErrorCode as E
from kbroker.raft_metadata.image import ConfigResource
from kbroker.wire.messages import configs as wire
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from tests.handlers.metadata_plane import Plane, metadata_plane

METRICS = 16
SET, DELETE = 0, 1


def converse(path: Path, talk: Callable[[Plane], Awaitable[None]]) -> None:
    async def main() -> None:
        async with metadata_plane(path) as plane:
            await talk(plane)

    trio.run(main)


def change(name: str, *configs: tuple[str, int, str | None], dry: bool = False) -> wire.IncrementalAlterConfigsRequest:
    entries = [
        wire.IncrementalAlterableConfig(name=key, config_operation=op, value=value) for key, op, value in configs
    ]
    resource = wire.IncrementalAlterConfigsResource(resource_type=METRICS, resource_name=name, configs=entries)
    return wire.IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)


async def described(plane: Plane, name: str) -> dict[str, tuple[str | None, int, int, list[tuple[str, str, int]]]]:
    resource = wire.DescribeConfigsResource(resource_type=METRICS, resource_name=name, configuration_keys=None)
    request = wire.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    result = (await plane.ask(request)).results[0]
    assert result.error_code == 0
    assert not any(config.read_only or config.is_sensitive for config in result.configs)
    assert all(config.documentation for config in result.configs)
    return {
        config.name: (
            config.value,
            config.config_source,
            config.config_type,
            [(s.name, s.value, s.source) for s in config.synonyms],
        )
        for config in result.configs
    }


async def listed(plane: Plane, version: int = 1) -> list[tuple[str, int]]:
    request = wire.ListConfigResourcesRequest(resource_types=[METRICS] if version else [])
    answer = await plane.ask(request, version)
    return [(entry.resource_name, entry.resource_type) for entry in answer.config_resources]


def test_a_subscription_is_set_described_listed_and_removed(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        unset: dict[str, tuple[str, int, int, list[object]]] = {
            "interval.ms": ("300000", 5, 3, []),
            "match": ("", 5, 7, []),
            "metrics": ("", 5, 7, []),
        }
        assert await described(plane, "s") == unset
        wanted = (
            ("interval.ms", SET, "1000"),
            ("match", SET, "client_software_name=Java, client_software_version = 11.1.*"),
            ("metrics", SET, "org.apache.kafka.producer.,org.apache.kafka.consumer."),
        )
        assert (await plane.ask(change("s", *wanted, dry=True))).responses[0].error_code == 0
        assert await listed(plane) == []
        assert (await plane.ask(change("s", *wanted))).responses[0].error_code == 0
        assert dict(plane.metadata.image.configs.get(ConfigResource(METRICS, "s"))) == {
            name: value for name, _, value in wanted
        }
        match = "client_software_name=Java,client_software_version = 11.1.*"
        assert await described(plane, "s") == {
            "interval.ms": ("1000", 7, 3, [("interval.ms", "1000", 7)]),
            "match": (match, 7, 7, [("match", match, 7)]),
            "metrics": (wanted[2][2], 7, 7, [("metrics", wanted[2][2], 7)]),
        }
        assert await listed(plane) == [("s", METRICS)]
        assert [name for name, _ in await listed(plane, 0)] == ["s"]
        resource = wire.AlterConfigsResource(
            resource_type=METRICS, resource_name="s", configs=[wire.AlterableConfig(name="metrics", value="*")]
        )
        assert (await plane.ask(wire.AlterConfigsRequest(resources=[resource]))).responses[0].error_code == 0
        assert await described(plane, "s") == unset | {"metrics": ("*", 7, 7, [("metrics", "*", 7)])}
        assert (await plane.ask(change("s", ("metrics", DELETE, None)))).responses[0].error_code == 0
        assert await listed(plane) == []

    converse(tmp_path, talk)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a**", "Illegal client matching pattern: client_id=a**"),
        ("(?!b)a", "(?!b)a: kbroker matches with RE2, which does not"),
        ("(a)\\1", "\\1: kbroker matches with RE2, which does not"),
        ("a*+", "a*+: kbroker matches with RE2, which does not"),
        ("(" * 20_000, "Illegal client matching pattern"),
    ],
)
def test_a_pattern_that_is_none_of_re2_is_refused(tmp_path: Path, pattern: str, text: str) -> None:
    async def talk(plane: Plane) -> None:
        answer = (await plane.ask(change("s", ("match", SET, f"client_id={pattern}")))).responses[0]
        assert answer.error_code == E.INVALID_CONFIG and text in answer.error_message
        assert await listed(plane) == []

    converse(tmp_path, talk)


def test_no_client_is_told_that_it_may_send_metrics_without_a_receiver(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        plane.services.telemetry = None
        keys = {api.api_key for api in (await plane.ask(ApiVersionsRequest(), 0)).api_keys}
        assert 18 in keys and not {71, 72} & keys
        plane.services.telemetry = object()
        assert {71, 72} <= {api.api_key for api in (await plane.ask(ApiVersionsRequest(), 0)).api_keys}

    converse(tmp_path, talk)
