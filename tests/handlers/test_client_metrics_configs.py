"""Subscriptions to clients' metrics as metadata: set, judged, described, listed, removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.wire.messages import configs as inc
from kbroker.wire.messages import configs as lst
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from tests.handlers.metadata_plane import Plane, metadata_plane

METRICS = 16
SET, DELETE = 0, 1


def change(name: str, *configs: tuple[str, int, str | None], dry: bool = False) -> inc.IncrementalAlterConfigsRequest:
    entries = [inc.IncrementalAlterableConfig(name=key, config_operation=op, value=value) for key, op, value in configs]
    resource = inc.IncrementalAlterConfigsResource(resource_type=METRICS, resource_name=name, configs=entries)
    return inc.IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)


async def listed(plane: Plane, version: int = 1) -> list[tuple[str, int]]:
    request = lst.ListConfigResourcesRequest(resource_types=[METRICS] if version else [])
    answer = await plane.ask(request, version)
    return [(entry.resource_name, entry.resource_type) for entry in answer.config_resources]


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
async def test_a_pattern_that_is_none_of_re2_is_refused(tmp_path: Path, pattern: str, text: str) -> None:
    async with metadata_plane(tmp_path) as plane:
        answer = (await plane.ask(change("s", ("match", SET, f"client_id={pattern}")))).responses[0]
        assert answer.error_code == E.INVALID_CONFIG and text in answer.error_message
        assert await listed(plane) == []


async def test_no_client_is_told_that_it_may_send_metrics_without_a_receiver(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        plane.services.telemetry = None
        keys = {api.api_key for api in (await plane.ask(ApiVersionsRequest(), 0)).api_keys}
        assert 18 in keys and not {71, 72} & keys
        plane.services.telemetry = object()
        assert {71, 72} <= {api.api_key for api in (await plane.ask(ApiVersionsRequest(), 0)).api_keys}
