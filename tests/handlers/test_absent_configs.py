"""Properties of what kbroker does not have: described with Kafka's defaults, refused when they are to be set."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.raft_metadata.config_entries import broker_entries
from kbroker.raft_metadata.controller.configs import validate_broker_config
from kbroker.raft_metadata.image import EMPTY_IMAGE, ConfigResource, MetadataDelta
from kbroker.types import OffsetAndEpoch
from kbroker.wire.messages import configs as wire
from kbroker.wire.records.metadata import ConfigRecord
from tests.handlers.metadata_plane import Plane, metadata_plane

BROKER = 4
SET, DELETE, APPEND = 0, 1, 2
_OAUTH = "listener.name.plaintext.oauthbearer.sasl.oauthbearer"


def change(
    name: str, *configs: tuple[str, str | None], operation: int = SET, dry: bool = False
) -> wire.IncrementalAlterConfigsRequest:
    entries = [
        wire.IncrementalAlterableConfig(name=key, config_operation=DELETE if value is None else operation, value=value)
        for key, value in configs
    ]
    resource = wire.IncrementalAlterConfigsResource(resource_type=BROKER, resource_name=name, configs=entries)
    return wire.IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)


async def described(plane: Plane) -> dict[str, wire.DescribeConfigsResourceResult]:
    resource = wire.DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    request = wire.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    result = (await plane.ask(request)).results[0]
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


async def test_what_the_file_sets_is_described_as_set(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path, group_share_max_size="300", ssl_key_password="hunter2") as plane:
        found = await described(plane)
        config = found["group.share.max.size"]
        assert (config.value, config.config_source) == ("300", 4)
        assert [(s.value, s.source) for s in config.synonyms] == [("300", 4), ("200", 5)]
        assert (found["ssl.key.password"].value, found["ssl.key.password"].config_source) == (None, 4)
        assert "hunter2" not in repr(found["ssl.key.password"])


@pytest.mark.parametrize(
    ("broker", "name", "value", "text"),
    [
        (
            "",
            "listener.name.plaintext.ssl.keystore.type",
            "PEM",
            "Cannot update these configs at default cluster level",
        ),
        ("1", "sasl.oauthbearer.jwks.endpoint.url", "file:///etc/passwd", "Cannot update these configs dynamically"),
        ("1", f"{_OAUTH}.jwks.endpoint.url", "file:///etc/passwd", "cannot be set over the wire"),
        ("1", f"{_OAUTH}.token.endpoint.url", "http://10.0.0.1/", "cannot be set over the wire"),
        ("1", f"{_OAUTH}.assertion.file", "/etc/passwd", "cannot be set over the wire"),
        ("", "sasl.enabled.mechanisms", "PLAIN", "Cannot update these configs at default cluster level"),
        ("1", "group.share.max.size", "201", "Cannot update these configs dynamically: [group.share.max.size]"),
        ("1", "ssl.keystore.location", "/tmp/x", "only per-listener using the listener prefix"),
        ("", "remote.log.reader.threads", "many", "Not a number of type INT"),
        ("", "remote.log.reader.threads", "0", "Value must be at least 1"),
    ],
)
async def test_a_change_while_the_node_runs_is_refused(
    tmp_path: Path, broker: str, name: str, value: str, text: str
) -> None:
    async with metadata_plane(tmp_path) as plane:
        answer = (await plane.ask(change(broker, (name, value)))).responses[0]
        assert answer.error_code == E.INVALID_REQUEST and text in answer.error_message
        assert name not in plane.metadata.image.configs.get(ConfigResource(BROKER, broker))


async def test_lists_are_lists(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        name = "sasl.kerberos.principal.to.local.rules"
        assert (await plane.ask(change("1", (name, "x"), operation=APPEND))).responses[0].error_code == 0
        assert (await described(plane))[name].value == "DEFAULT,x"


async def test_what_an_earlier_release_stored_does_not_stand_in_the_way(tmp_path: Path) -> None:
    stored = ConfigRecord(resource_type=BROKER, resource_name="", name="remote.log.reader.threads", value="20")
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(stored)
    image = delta.apply(OffsetAndEpoch(1, 1))

    async with metadata_plane(tmp_path) as plane:
        schema = plane.metadata.schema
        validate_broker_config(schema, image.configs, {stored.name: "20", "log.cleaner.threads": "2"}, broker_id=None)
        entry = next(e for e in broker_entries(schema, image.configs) if e.name == stored.name)
        assert (entry.value, entry.source) == ("20", 3)
