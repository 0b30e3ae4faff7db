"""Properties of what kbroker does not have: described with Kafka's defaults, refused when they are to be set."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

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
FACTS = json.loads((Path(__file__).parent.parent / "facts" / "kafka_configs.json").read_text())["configs"]


def converse(path: Path, talk: Callable[[Plane], Awaitable[None]], **more: str) -> None:
    async def main() -> None:
        async with metadata_plane(path, **more) as plane:
            await talk(plane)

    trio.run(main)


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


def test_a_broker_describes_every_property_of_kafka(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        found = await described(plane)
        facts = {row[1]: row for row in FACTS if row[0] == "broker" and not row[6]}
        assert len(facts) == 350 and set(facts) <= set(found)
        for name in ("ssl.client.auth", "sasl.kerberos.ticket.renew.jitter", "remote.log.reader.threads"):
            config, default = found[name], facts[name][3]
            assert (config.value, config.config_source) == (default, 5)
            assert [(s.name, s.value, s.source) for s in config.synonyms] == [(name, default, 5)]
            assert not config.read_only and not config.is_sensitive and config.documentation
        secret = found["delegation.token.secret.key"]
        assert (secret.value, secret.is_sensitive, secret.read_only, secret.synonyms) == (None, True, True, [])

    converse(tmp_path, talk)


def test_what_the_file_sets_is_described_as_set(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        found = await described(plane)
        config = found["group.share.max.size"]
        assert (config.value, config.config_source) == ("300", 4)
        assert [(s.value, s.source) for s in config.synonyms] == [("300", 4), ("200", 5)]
        assert (found["ssl.key.password"].value, found["ssl.key.password"].config_source) == (None, 4)
        assert "hunter2" not in repr(found["ssl.key.password"])

    converse(tmp_path, talk, group_share_max_size="300", ssl_key_password="hunter2")


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
def test_a_change_while_the_node_runs_is_refused(tmp_path: Path, broker: str, name: str, value: str, text: str) -> None:
    async def talk(plane: Plane) -> None:
        answer = (await plane.ask(change(broker, (name, value)))).responses[0]
        assert answer.error_code == E.INVALID_REQUEST and text in answer.error_message
        assert name not in plane.metadata.image.configs.get(ConfigResource(BROKER, broker))

    converse(tmp_path, talk)


def test_lists_are_lists(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        name = "sasl.kerberos.principal.to.local.rules"
        assert (await plane.ask(change("1", (name, "x"), operation=APPEND))).responses[0].error_code == 0
        assert (await described(plane))[name].value == "DEFAULT,x"

    converse(tmp_path, talk)


def test_what_has_no_effect_may_be_set_and_unset(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        name = "remote.log.reader.threads"
        assert (await plane.ask(change("", (name, "20")))).responses[0].error_code == 0
        assert ((await described(plane))[name].value, (await described(plane))[name].config_source) == ("20", 3)
        assert (await plane.ask(change("", (name, None)))).responses[0].error_code == 0
        assert (await described(plane))[name].config_source == 5

    converse(tmp_path, talk)


def test_what_an_earlier_release_stored_does_not_stand_in_the_way(tmp_path: Path) -> None:
    stored = ConfigRecord(resource_type=BROKER, resource_name="", name="remote.log.reader.threads", value="20")
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(stored)
    image = delta.apply(OffsetAndEpoch(1, 1))

    async def talk(plane: Plane) -> None:
        schema = plane.metadata.schema
        validate_broker_config(schema, image.configs, {stored.name: "20", "log.cleaner.threads": "2"}, broker_id=None)
        entry = next(e for e in broker_entries(schema, image.configs) if e.name == stored.name)
        assert (entry.value, entry.source) == ("20", 3)

    converse(tmp_path, talk)
