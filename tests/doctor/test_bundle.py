"""``kbroker bundle``: what is in it, and that no secret and no record is."""

from __future__ import annotations

import json
import os
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of
from kbroker.client.topics import NewTopic
from kbroker.config.properties_file import format_properties
from kbroker.config.secret_names import is_secret_property
from kbroker.errors import FatalError
from kbroker.testing import running_broker
from kbroker.tools.cli import main
from kbroker.tools.cli.secure_setup import login_line
from kbroker.tools.doctor.bundle import Bundle, data_files
from kbroker.tools.doctor.secrets import Secrets, hidden
from kbroker.wire.record_batch import Record
from tests.doctor.conftest import PATIENT, QUIET, create
from tests.with_each import examples

PLANTED = {
    "keystore": "planted-keystore-pass",
    "jaas": "planted-jaas-pass",
    "token": "planted-token-secret",
    "custom": "planted-custom-value",
    "provided": "planted-provided-value",
    "logged": "planted-logged-password",
    "bearer": "planted.bearer.token",
    "url": "planted-url-pass",
    "key": "planted-record-key",
    "value": "planted-record-value",
    "environment": "planted-environment",
}


def members(path: Path) -> dict[str, bytes]:
    """The files of a bundle, without the folder that they are in."""
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive.getmembers():
            file = archive.extractfile(entry)
            assert file is not None and entry.mode == 0o600
            found[entry.name.partition("/")[2]] = file.read()
        return found


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A bundle of a secured node with secrets in its file, its log, the client's file, its data."""
    directory = tmp_path_factory.mktemp("bundle")
    config, log, client_file, output = (
        directory / name for name in ("server.properties", "node.log", "client.properties", "b.tar.gz")
    )
    (directory / "secret.txt").write_text(PLANTED["provided"])
    with (
        running_broker(QUIET, security="sasl_plaintext", users={"alice": PLANTED["jaas"]}) as broker,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("KBROKER_SOMETHING", PLANTED["environment"])
        properties = broker.client_properties()
        client_file.write_text(format_properties(properties | {"ssl.key.password": PLANTED["keystore"]}, ""))
        with Client(broker.bootstrap_servers, security=security_of(ClientProperties(properties))) as client:
            create(client, NewTopic("orders", 1, 1))
            refused: list[object] = []
            producer = Producer(client, "orders", [0], on_refused=refused.append)
            producer.send(Record(0, time.time_ns() // 10**6, PLANTED["key"].encode(), PLANTED["value"].encode()), 0)
            producer.flush()
            assert not refused
        config.write_text(
            format_properties(
                {
                    "node.id": "1",
                    "process.roles": "broker,controller",
                    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                    "inter.broker.listener.name": "SASL_PLAINTEXT",
                    "sasl.enabled.mechanisms": "PLAIN",
                    "sasl.mechanism.inter.broker.protocol": "PLAIN",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.voters": "1@127.0.0.1:9093",
                    "log.dirs": str(broker.data_dir),
                    "ssl.keystore.password": PLANTED["keystore"],
                    "delegation.token.secret.key": PLANTED["token"],
                    "listener.name.sasl_plaintext.plain.sasl.jaas.config": login_line(
                        "PLAIN", {"username": "a", "password": PLANTED["jaas"], "user_a": PLANTED["jaas"]}
                    ),
                    "my.own.thing": PLANTED["custom"],
                    "config.providers": "file",
                    "config.providers.file.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
                    "broker.rack": f"${{file:{directory}:secret.txt}}",
                },
                "",
            )
        )
        log.write_text(
            f"INFO started\nINFO password={PLANTED['logged']} given\nWARN {PLANTED['keystore']} was refused\n"
            f"INFO Authorization: Bearer {PLANTED['bearer']}\nINFO http://me:{PLANTED['url']}@proxy:1/\nINFO the end\n"
        )
        words = ["bundle", str(output), "--config", str(config), "--log", str(log), "--look-again", "0", *PATIENT]
        assert main([*words, "--command-config", str(client_file)]) == 0
    assert output.stat().st_mode & 0o777 == 0o600
    return members(output)


def test_the_parts_are_there(bundle: dict[str, bytes]) -> None:
    assert set(bundle) == {
        *("README.txt", "versions.json", "machine.json", "configuration.properties", "client.properties"),
        *("facts.json", "configs.json", "doctor.txt", "doctor.json", "data.json", "logs/node.log"),
    }
    facts = json.loads(bundle["facts.json"])["cluster"]
    assert [each["name"] for each in (topic["description"] for topic in facts["topics"])] == ["orders"]
    [(_directory, data)] = json.loads(bundle["data.json"]).items()
    assert data["files"]["orders-0"]["00000000000000000000.log"] > 0 and data["bytes"] > 0
    assert json.loads(bundle["versions.json"])["packages"]["trio"]
    assert "KBROKER_SOMETHING" in json.loads(bundle["machine.json"])["environment"]
    assert b"node.id=1" in bundle["configuration.properties"].replace(b" ", b"")
    log = bundle["logs/node.log"].decode()
    assert "INFO started" in log and "INFO the end" in log and log.count("[hidden]") == 4
    assert json.loads(bundle["configs.json"])["1"]["num.partitions"]["value"] == "1"


@pytest.mark.parametrize("secret", PLANTED)
def test_no_secret_and_no_record_is_in_it(secret: str, bundle: dict[str, bytes]) -> None:
    assert [name for name, content in bundle.items() if PLANTED[secret].encode() in content] == []


def test_what_is_there_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.tar.gz").write_text("mine")
    assert main(["bundle", str(tmp_path / "b.tar.gz"), "--data-dir", str(tmp_path / "data")]) == 1
    assert "is there already" in capsys.readouterr().err and (tmp_path / "b.tar.gz").read_text() == "mine"


def test_a_log_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bundle", str(tmp_path / "b.tar.gz"), "--data-dir", str(tmp_path / "data"), "--log"]
    assert main([*words, str(tmp_path / "no.log")]) == 1
    assert "no.log" in capsys.readouterr().err
    assert main([*words, str(tmp_path)]) == 1
    assert "no file *.log" in capsys.readouterr().err


def test_the_latest_lines_of_a_directory_of_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "node-1.log").write_text("".join(f"line {index}\n" for index in range(5000)))
    output = tmp_path / "b.tar.gz"
    words = ["bundle", str(output), "--data-dir", str(tmp_path / "data"), "--log", str(tmp_path), "--json"]
    assert main(words) == 0
    assert "logs/node-1.log" in json.loads(capsys.readouterr().out)["files"]
    lines = members(output)["logs/node-1.log"].decode().splitlines()
    assert len(lines) == 2000 and lines[-1] == "line 4999"


TEXT = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8)
SECRET_NAMES = st.sampled_from(
    [
        "ssl.keystore.password",
        "sasl.jaas.config",
        "listener.name.x.ssl.key.password",
        "delegation.token.secret.key",
        "own",
    ]
)


@settings(max_examples=examples(50))
@given(SECRET_NAMES, TEXT, st.text(), st.text())
def test_a_secret_of_a_property_is_nowhere(name: str, value: str, before: str, after: str) -> None:
    secrets = Secrets()
    secrets.add({name: value}, is_secret_property)
    assert value not in hidden({name: value}, is_secret_property).values()
    assert value not in secrets.removed(f"{before}{value}{after}") or value in before + after + "[hidden]"


@pytest.mark.parametrize(
    "line",
    [
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required password="XYZZY-1";',
        "ssl.key.password: XYZZY-1",
        '{"client_secret": "XYZZY-1"}',
        "user_alice='XYZZY-1'",
        "kafka://me:XYZZY-1@host",
        "redis://:XY@ZZY-1@host",
        "passwd=XYZZY-1",
        "api_key: XYZZY-1",
        "-----BEGIN PRIVATE KEY-----\nXYZZY-1\n-----END PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_secret_is_hidden(line: str) -> None:
    assert "XYZZY-1" not in Secrets().removed(f"before\n{line}\nafter")


def test_a_long_line_takes_no_long_time() -> None:
    began = time.process_time()
    for text in ("ab" * 20_000, "password" * 3_000, "user_" * 8_000):
        assert Secrets().removed(text) == text
    assert time.process_time() - began < 1.5


def test_an_address_with_a_password_is_hidden_in_properties() -> None:
    bundle = Bundle()
    bundle.add_client_properties({"schema.registry.url": "https://ann:XYZZY-1@registry:8081", "client.id": "me"})
    bundle.add_node_properties({"sasl.oauthbearer.token.endpoint.url": "https://ann:XYZZY-1@idp/token?client_id=a"})
    assert b"https://ann:[hidden]@registry:8081" in bundle.files["client.properties"]
    assert b"client.id=me" in bundle.files["client.properties"]
    assert b"XYZZY-1" not in b"".join(bundle.files.values())


def test_logs_of_the_same_name_are_kept_both(tmp_path: Path) -> None:
    bundle = Bundle()
    for node in ("1", "2"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "server.log").write_text(f"node {node}\n")
        bundle.add_log(tmp_path / node)
    assert bundle.files == {"logs/server.log": b"node 1\n", "logs/server.log.2": b"node 2\n"}


def test_what_a_node_deletes_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a-0", "b-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log").write_text("x")
    scan = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("a-0"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return scan(path)

    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", scandir)
        found = data_files([str(tmp_path)])
    assert found == {str(tmp_path): {"problem": "", "bytes": 1, "files": {"b-0": {"0.log": 1}}}}
    missing = str(tmp_path / "missing")
    assert data_files([missing]) == {
        missing: {"problem": f"{missing}: No such file or directory", "bytes": 0, "files": {}}
    }


def test_half_an_archive_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    bundle = Bundle(files={"README.txt": b"x"})
    with monkeypatch.context() as patch, pytest.raises(FatalError, match="No space left"):
        patch.setattr(tarfile.TarFile, "addfile", full)
        bundle.write(tmp_path / "b.tar.gz")
    bundle.write(tmp_path / "b.tar.gz")
    with pytest.raises(FatalError, match="is there already"):
        bundle.write(tmp_path / "b.tar.gz")
