"""A registry is asked as rarely as can be, and what it does not give is told in one line."""

from __future__ import annotations

import json
import socket
import ssl
from pathlib import Path

import pytest

from kbroker.client.properties import ClientProperties
from kbroker.client.schemas.registry import KEPT_SCHEMAS, Schema, SchemaRegistry
from kbroker.client.schemas.settings import registry_settings
from kbroker.client.schemas.wire_format import RegistryError, UndecodableRecord
from kbroker.errors import FatalError
from kbroker.security.sasl.oauthbearer.http import Limits
from kbroker.tools.cli.certificate_files import LOCAL_HOSTS, CertificateFiles
from tests.patience import LONG
from tests.schemas.registry_server import Registry, running_registry


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def asking(url: str, clock: Clock | None = None, kept: int = KEPT_SCHEMAS, **properties: str) -> SchemaRegistry:
    settings = registry_settings(url, ClientProperties({name.replace("_", "."): v for name, v in properties.items()}))
    assert settings is not None
    return SchemaRegistry(settings, clock=clock or Clock(), kept=kept, limits=Limits(LONG, LONG))


def test_a_schema_is_asked_for_once(registry: Registry) -> None:
    first, second = registry.add("a-value", '"string"'), registry.add("b-value", "{}", "JSON")
    asked = asking(f"{registry.url}/")
    for _ in range(3):
        assert asked.schema(first) == Schema("AVRO", '"string"')
        assert asked.schema(second) == Schema("JSON", "{}")
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]


def test_a_schema_that_is_not_there_is_asked_for_again_after_a_while(registry: Registry) -> None:
    clock = Clock()
    asked = asking(registry.url, clock)
    for _ in range(3):
        with pytest.raises(UndecodableRecord, match="the registry has no schema 1"):
            asked.schema(1)
    assert len(registry.asked) == 1
    registry.add("late", '"long"')
    clock.now += 31
    assert asked.schema(1).text == '"long"'


def test_references_come_before_what_needs_them(registry: Registry) -> None:
    registry.add("c", "c")
    registry.add("b", "b", references=(("C", "c", 1),))
    top = registry.add("a", "a", references=(("B", "b", 1), ("C", "c", 1)))
    asked = asking(registry.url)
    for _ in range(2):
        assert [(name, each.text) for name, each in asked.references(asked.schema(top))] == [("C", "c"), ("B", "b")]
    assert registry.asked[1:] == ["/subjects/b/versions/1?deleted=true", "/subjects/c/versions/1?deleted=true"]


def test_references_in_a_circle_are_refused(registry: Registry) -> None:
    registry.add("a", "a", references=(("B", "b", 1),))
    registry.add("b", "b", references=(("A", "a", 1),))
    asked = asking(registry.url)
    with pytest.raises(UndecodableRecord, match="have no end"):
        asked.references(asked.schema(1))
    missing = registry.add("d", "d", references=(("X", "x/y", 3),))
    with pytest.raises(UndecodableRecord, match="the registry has no version 3 of subject x/y"):
        asked.references(asked.schema(missing))


def test_who_asks_is_said_by_properties(registry: Registry, tmp_path: Path) -> None:
    registry.add("a", '"int"')
    registry.authorization = "Basic YW5uOnM6ZWNyZXQ="
    assert asking(registry.url, basic_auth_user_info="ann:s:ecret").schema(1).text == '"int"'
    with pytest.raises(RegistryError) as caught:
        asking(registry.url, basic_auth_user_info="ann:wrong").schema(1)
    assert "status 401" in str(caught.value) and "basic.auth.user.info" in str(caught.value)
    assert "wrong" not in str(caught.value)

    # A token out of a file, by a config provider.
    registry.authorization = "Bearer abc.def"
    (tmp_path / "token").write_text("abc.def\n")
    file = tmp_path / "client.properties"
    file.write_text(
        "config.providers=dir\n"
        "config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider\n"
        f"schema.registry.url={registry.url}\nbearer.auth.token=${{dir:{tmp_path}:token}}\n"
    )
    settings = registry_settings(None, ClientProperties.read(file))
    assert settings is not None and SchemaRegistry(settings).schema(1).text == '"int"'


@pytest.mark.parametrize(
    ("url", "properties", "problem"),
    [
        ("ftp://there", {}, "no URL of https, http or file"),
        ("http://ann:secret@there", {}, "basic.auth.user.info"),
        ("file:///x", {}, "a file's"),
        ("http://there", {"basic.auth.user.info": "secret"}, "USER:PASSWORD"),
        ("http://there", {"basic.auth.user.info": "a:secret", "bearer.auth.token": "secret"}, "exclude each other"),
        ("http://there", {"bearer.auth.token": "se cret"}, "is no token"),
        ("https://there", {"schema.registry.ssl.truststore.location": "/nowhere/secret.pem"}, "/nowhere"),
    ],
)
def test_settings_without_sense_are_told(url: str, properties: dict[str, str], problem: str) -> None:
    with pytest.raises(FatalError, match=problem) as caught:
        registry_settings(url, ClientProperties(properties))
    assert "cret" not in str(caught.value).replace("/nowhere/secret.pem", "")


def test_no_registry_is_no_error() -> None:
    assert registry_settings(None, None) is None
    assert registry_settings(None, ClientProperties({"client.id": "x"})) is None


def test_a_registry_that_is_not_there_rests_for_a_moment() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    clock = Clock()
    asked = asking(f"http://127.0.0.1:{port}", clock)
    for schema_id in (1, 2):
        with pytest.raises(RegistryError, match=f"http://127.0.0.1:{port}"):
            asked.schema(schema_id)


def test_the_next_address_is_tried(registry: Registry) -> None:
    registry.add("a", '"int"')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert asking(f"http://127.0.0.1:{port},{registry.url}").schema(1).text == '"int"'


def test_a_registry_that_fails_is_left_alone_and_asked_again(registry: Registry) -> None:
    registry.add("a", '"int"')
    clock = Clock()
    asked = asking(registry.url, clock)
    registry.fails_with = 503
    for _ in range(3):
        with pytest.raises(RegistryError, match="status 503"):
            asked.schema(1)
    assert len(registry.asked) == 1
    registry.fails_with = None
    clock.now += 6
    assert asked.schema(1).text == '"int"'


def test_an_answer_that_is_none(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.schemas.append({"schemaType": "AVRO", "schema": None, "references": [{"name": "x"}]})
    with pytest.raises(UndecodableRecord, match="the registry's answer about schema 1 is none"):
        asking(registry.url).schema(1)
    monkeypatch.setattr("kbroker.client.schemas.registry.ask", lambda *_, **__: b"<html>")
    with pytest.raises(RegistryError, match="is it a schema registry"):
        asking(registry.url).schema(1)


def test_a_registry_without_serialized_schemas_is_told(registry: Registry) -> None:
    registry.add("a", "AAAA", "PROTOBUF")
    registry.knows_serialized = False
    with pytest.raises(UndecodableRecord, match="format=serialized"):
        asking(registry.url).schema(1)


def test_tls_by_the_registrys_own_properties(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.issue("registry", LOCAL_HOSTS)[0])
    with running_registry(context) as registry:
        registry.add("a", '"int"')
        trusted = {"truststore.type": "PEM", "truststore.location": str(files.ca_file)}
        trusted = {f"schema.registry.ssl.{name}": value for name, value in trusted.items()}
        settings = registry_settings(registry.url, ClientProperties(trusted))
        assert settings is not None and SchemaRegistry(settings).schema(1).text == '"int"'
        with pytest.raises(RegistryError, match="certificate is not accepted"):
            asking(registry.url).schema(1)


def test_kept_schemas_are_bounded(registry: Registry) -> None:
    for number in range(3):
        registry.add("a", json.dumps(f"type{number}"))
    asked = asking(registry.url, kept=2)
    for schema_id in (1, 2, 1, 3, 1, 2):
        asked.schema(schema_id)
    assert registry.asked == [f"/schemas/ids/{number}" for number in (1, 2, 3, 2)]
