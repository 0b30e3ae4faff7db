"""Variables in a file of properties: where their values come from, and what is said of those that have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.client.errors import ClientError
from kbroker.client.properties import ClientProperties
from kbroker.config import BrokerConfig, with_provided
from kbroker.config.provided import Provided, provided_names, without_values
from kbroker.config.providers import looked_up
from kbroker.errors import FatalError
from kbroker.tools.cli import main
from kbroker.tools.cli.start import serve
from tests.handlers.metadata_plane import properties as of_node

PACKAGE = "org.apache.kafka.common.config.provider"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A file of properties, and a file that is one value."""
    (tmp_path / "file.properties").write_text("user=alice\npass\\ word = ge\\u0068eim\n")
    (tmp_path / "one").write_text("a value\n")
    (tmp_path / "inner").mkdir()
    return tmp_path


def given(**more: str) -> dict[str, str]:
    return {
        "config.providers": "file,dir,env",
        "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
        "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
        "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
    } | {name.replace("__", "."): value for name, value in more.items()}


def test_files_directories_and_the_environment(secrets: Path) -> None:
    found = looked_up(
        given(
            a=f"x${{file:{secrets}/file.properties:user}}y${{file:{secrets}/file.properties:pass word}}",
            b=f"${{dir:{secrets}:one}}",
            c="${env:HERE}",
            d="${other:HERE} and ${nothing}",
            e="plain",
        ),
        {"HERE": "there"},
    )
    assert [found[name] for name in "abcde"] == [
        "xaliceygeheim",
        "a value\n",
        "there",
        "${other:HERE} and ${nothing}",
        "plain",
    ]
    assert provided_names(found) == {"a", "b", "c"}
    assert found["config.providers"] == "file,dir,env"


def test_without_providers_everything_is_text() -> None:
    assert with_provided({"a": "${env:HOME}"}) == {"a": "${env:HOME}"}


def test_a_value_is_not_looked_into_again() -> None:
    assert looked_up(given(a="${env:A}"), {"A": "${env:B}", "B": "b"})["a"] == "${env:B}"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"a": "${file:/nowhere/at/all:x}"}, "a: ${file:/nowhere/at/all:x}: cannot read /nowhere/at/all: No such file"),
        ({"a": "${file:SECRETS/file.properties:y}"}, "there is no y in SECRETS/file.properties"),
        ({"a": "${file:x}"}, "a: ${file:x}: it names no path"),
        ({"a": "${dir:SECRETS:two}"}, "there is no file two in SECRETS"),
        ({"a": "${dir:SECRETS:inner}"}, "there is no file inner in SECRETS"),
        ({"a": "${dir:SECRETS/inner:../one}"}, "there is no file ../one in SECRETS/inner"),
        ({"a": "${env:MISSING}"}, "a: ${env:MISSING}: there is no such variable in the environment"),
        ({"a": "${env:path:HERE}"}, "variables of the environment have no path"),
        (
            {"config__providers__file__class": "org.example.Vault"},
            "config.providers.file.class: org.example.Vault: Java",
        ),
        ({"config__providers__file__class": f"{PACKAGE}.Other"}, "Java classes cannot be loaded; one of"),
        ({"config__providers": "file,vault"}, "config.providers.vault.class: it is missing; one of"),
        (
            {"config__providers__vault__class": f"{PACKAGE}.EnvVarConfigProvider"},
            "config.providers does not name vault",
        ),
        (
            {"config__providers__file__param__x": "1"},
            "FileConfigProvider has no such parameter, only param.allowed.paths",
        ),
        ({"config__providers__env__param__allowed.paths": "/"}, "no such parameter, only param.allowlist.pattern"),
        ({"config__providers__file__param__allowed.paths": "here"}, "allowed.paths: here is not absolute"),
        ({"config__providers__dir__param__allowed.paths": "/,/nowhere"}, "allowed.paths: /nowhere does not exist"),
        ({"config__providers__env__param__allowlist.pattern": "("}, "allowlist.pattern: (: missing )"),
    ],
)
def test_what_cannot_be_looked_up_is_said_in_a_line(secrets: Path, more: dict[str, str], said: str) -> None:
    written = {name: text.replace("SECRETS", str(secrets)) for name, text in given(**more).items()}
    with pytest.raises(FatalError) as caught:
        looked_up(written, {"HERE": "there"})
    assert said.replace("SECRETS", str(secrets)) in str(caught.value) and "\n" not in str(caught.value)


def test_paths_are_limited_links_included(secrets: Path) -> None:
    inner = secrets / "inner"
    (inner / "own.properties").write_text("x=1")
    (inner / "link").symlink_to(secrets / "file.properties")
    limits = {
        "config.providers.file.param.allowed.paths": str(inner),
        "config.providers.dir.param.allowed.paths": f"{inner},{inner}",
    }
    assert looked_up(given() | limits | {"a": f"${{file:{inner}/own.properties:x}}"})["a"] == "1"
    for text in (
        f"${{file:{secrets}/file.properties:user}}",
        f"${{file:{inner}/../file.properties:user}}",
        f"${{file:{inner}/link:user}}",
        f"${{dir:{secrets}:one}}",
        f"${{file:{inner}-other/x:user}}",
    ):
        with pytest.raises(FatalError, match=r"allowed.paths does not allow"):
            looked_up(given() | limits | {"a": text})


def test_variables_of_the_environment_are_limited() -> None:
    limit = {"config.providers.env.param.allowlist.pattern": "KAFKA_.*"}
    environment = {"KAFKA_X": "x", "HOME": "/", "NOT_KAFKA_X": "y"}
    assert looked_up(given() | limit | {"a": "${env:KAFKA_X}"}, environment)["a"] == "x"
    for name in ("HOME", "NOT_KAFKA_X"):
        with pytest.raises(FatalError, match=r"allowlist.pattern does not allow it"):
            looked_up(given() | limit | {"a": f"${{env:{name}}}"}, environment)


def test_an_error_does_not_tell_the_value(secrets: Path) -> None:
    (secrets / "one").write_text("geheim")
    properties = with_provided(of_node(secrets) | given(num__partitions=f"${{dir:{secrets}:one}}"))
    with pytest.raises(FatalError) as caught:
        BrokerConfig.from_properties(properties)
    assert "num.partitions" in str(caught.value) and "[hidden]" in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert without_values("about x and xy", [Provided("x"), "about"]) == "about [hidden] and xy"


def test_a_client_takes_its_login_from_a_file(secrets: Path) -> None:
    file = secrets / "client.properties"
    lines = given(
        sasl__jaas__config=f'module required password="${{file:{secrets}/file.properties:pass word}}";',
        bootstrap__servers="localhost:1",
    )
    file.write_text("\n".join(f"{name}={value}" for name, value in lines.items()))
    properties = ClientProperties.read(file)
    assert properties["sasl.jaas.config"].value == 'module required password="geheim";'
    assert properties.without_effect == () and "geheim" not in repr(properties)
    file.write_text(file.read_text() + "\nsasl.login.connect.timeout.ms=${dir:" + str(secrets) + ":one}")
    with pytest.raises(ClientError) as caught:
        ClientProperties.read(file)
    assert "a value" not in str(caught.value)


def test_a_command_says_in_a_line_what_it_cannot_look_up(secrets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = secrets / "server.properties"
    lines = of_node(secrets) | given(log__dirs=f"${{file:{secrets}/file.properties:missing}}")
    file.write_text("\n".join(f"{name}={value}" for name, value in lines.items()))
    assert main(["info", "-c", str(file)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"there is no missing in {secrets}/file.properties" in said


def test_a_node_that_does_not_start_does_not_tell_values(secrets: Path) -> None:
    (secrets / "one").write_text(f"{secrets}/nowhere")
    properties = with_provided(of_node(secrets) | given(log__dirs=f"${{dir:{secrets}:one}}"))
    with pytest.raises(FatalError, match=r"no meta.properties in \[hidden\]: format the node first"):
        serve(BrokerConfig.from_properties(properties))
