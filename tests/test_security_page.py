"""Each block of docs/security/README.md is run in turn, against the secure cluster that the page starts."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.properties_file import parse_properties
from kbroker.tools.cli.cluster_plan import free_ports
from tests.page_node import ROOT, with_command
from tests.patience import LONG

TEXT = (ROOT / "docs" / "security" / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^( *)```(\w+)\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.slow


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has the command."""
    pytest.importorskip("cryptography")
    return with_command(tmp_path / "bin")


@pytest.fixture
def place(tmp_path: Path, environment: dict[str, str]) -> Iterator[tuple[Path, dict[str, str]]]:
    """The directory in which the page's cluster runs, and the environment of a user in it."""
    pytest.importorskip("confluent_kafka")
    assert "kbroker up -n 3 --secure" in BLOCKS[0][2]
    process = subprocess.Popen(
        [str(tmp_path / "bin" / "kbroker"), "up", "-n", "3", "--secure", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("kbroker ready: ")
        yield tmp_path, environment
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(2 * LONG)
        process.stdout.close()


@pytest.mark.everything
def test_the_blocks_in_their_order(place: tuple[Path, dict[str, str]]) -> None:
    directory, environment = place
    told = []
    for indent, language, block in BLOCKS[1:]:
        text = re.sub(f"^{indent}", "", block, flags=re.MULTILINE)
        if language not in ("sh", "python"):
            continue
        command = ["sh", "-eu", "-c", text] if language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=2 * LONG)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        told.append(done.stdout)
    assert "two pizzas" in told[0] and "User:billing" in told[1] and told[2] == "two pizzas\n"
    assert "deleted: " in told[3] and "kafka2.pem" in told[4]


def test_the_properties_are_those_of_a_node() -> None:
    (text,) = (
        re.sub("^ +", "", block, flags=re.MULTILINE) for _, language, block in BLOCKS if language == "properties"
    )
    config = BrokerConfig.from_properties(parse_properties(text))
    assert not config.unknown and not config.absent
    assert config.is_controller and len(config.controller_quorum_voters) == 3


CLIENT = """\
bootstrap.servers=127.0.0.1:PORT
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location=certificates/ca.pem
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="a-pass";
"""
WORK = """\
kbroker topic create orders -r 3 --command-config admin.properties
echo 'two pizzas' | kbroker produce orders --quiet --command-config admin.properties
kbroker consume orders --from start --until now --value-only --command-config admin.properties
"""


def file_of(number: int, text: str, ports: list[int], directory: Path) -> str:
    """The page's server.properties as another node of this machine has it; kafka1 to kafka3 are its ports."""
    here = "127.0.0.1"
    controllers = ports[3:]
    client, controller = ports[number - 1], controllers[number - 1]
    for other, port in enumerate(controllers, 1):
        text = text.replace(f"{other}@kafka{other}:9093", f"{other}@{here}:{port}")
    for old, new in (
        ("node.id=1", f"node.id={number}"),
        ("SASL_SSL://:9092,CONTROLLER://:9093", f"SASL_SSL://{here}:{client},CONTROLLER://{here}:{controller}"),
        ("SASL_SSL://kafka1:9092", f"SASL_SSL://{here}:{client}"),
        ("/etc/kafka/kafka1.pem", f"{directory}/certificates/kafka{number}.pem"),
        ("/etc/kafka/ca.pem", f"{directory}/certificates/ca.pem"),
        ("/var/lib/kafka", "data"),
        ('password="..."', 'password="a-pass"'),
    ):
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.mark.everything
def test_nodes_on_machines_of_their_own_are_one_cluster(tmp_path: Path, environment: dict[str, str]) -> None:
    """The blocks are followed, with a port and a directory for each machine."""
    (certificates,) = (block for _, language, block in BLOCKS if language == "sh" and "kbroker certs" in block)
    (properties,) = (block for _, language, block in BLOCKS if language == "properties")
    (text,) = (block for _, language, block in BLOCKS if language == "text" and "kbroker format" in block)
    assert "--standalone" not in text, "with it on each node, each would be a cluster of its own"
    certificates = re.sub(r"10\.0\.0\.\d", "127.0.0.1", certificates)
    subprocess.run(["sh", "-eu", "-c", certificates], cwd=tmp_path, env=environment, check=True, timeout=2 * LONG)
    ports = free_ports(6)
    script = text.replace("ID", "MkU3OEVBNTcwNTJENDM2Qg", 1).replace("password=...", "password=a-pass")
    nodes = []
    try:
        for number in (1, 2, 3):
            directory = tmp_path / f"kafka{number}"
            directory.mkdir()
            given = re.sub("^ +", "", properties, flags=re.MULTILINE)
            (directory / "server.properties").write_text(file_of(number, given, ports, tmp_path))
            with (directory / "log").open("w") as log:
                nodes.append(
                    subprocess.Popen(
                        ["sh", "-eu", "-c", script.replace("kbroker start", "exec kbroker start")],
                        cwd=directory,
                        env=environment,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                    )
                )
        for number, node in enumerate(nodes, 1):
            assert node.stdout is not None
            lines = iter(node.stdout.readline, "")
            ready = next((line for line in lines if line.startswith("kbroker ready")), None)
            assert ready is not None, (tmp_path / f"kafka{number}" / "log").read_text()
        (tmp_path / "admin.properties").write_text(CLIENT.replace("PORT", str(ports[0])))
        done = subprocess.run(
            ["sh", "-eu", "-c", WORK], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=2 * LONG
        )
        assert done.returncode == 0 and done.stdout.endswith("two pizzas\n"), done
    finally:
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        for node in nodes:
            node.communicate(timeout=2 * LONG)


def test_client_properties_are_those_of_the_client() -> None:
    from kbroker.client.properties import CLIENT_CONFIGS

    table = TEXT[TEXT.index("## Client properties") :]
    named = set()
    for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        whole, stem = "", ""
        for name in re.findall(r"`([^`]+)`", cell):
            whole = f"{stem}{name}" if name.startswith(".") else name
            named.add(whole)
            stem = stem if name.startswith(".") else name.rpartition(".")[0]
    assert named == set(CLIENT_CONFIGS)
