"""Environment variables of Apache Kafka's image as properties, and the node that they describe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config import BROKER_CONFIGS, BrokerConfig
from kbroker.config.environment import properties_from_environment, property_name, without_effect
from kbroker.errors import FatalError
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.tools.cli.container import DEFAULTS, container_properties
from tests.patience import LONG

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_PROCESS_ROLES", "process.roles"),
        ("KAFKA_CONTROLLER_QUORUM_VOTERS", "controller.quorum.voters"),
        ("KAFKA_A__B_C", "a_b.c"),
        ("KAFKA_A___B_C", "a-b.c"),
        ("KAFKA_A____B", "a-.b"),
        ("KAFKA_A_____B", "a-_b"),
        ("KAFKA_LISTENER_NAME_MY__LISTENER_SSL", "listener.name.my_listener.ssl"),
        ("KAFKA_KAFKA_X", "kafka.x"),
    ],
)
def test_names(variable: str, name: str) -> None:
    assert property_name(variable) == name
    assert properties_from_environment({variable: "v=1 2"}) == {name: "v=1 2"}


def test_what_is_not_a_property_stays_out() -> None:
    environment = {"PATH": "/bin", "KAFKA_HEAP_OPTS": "-Xmx1G", "KAFKA_OPTS": "", "KAFKA_": "x", "MY_KAFKA_X": "y"}
    assert properties_from_environment(environment) == {}
    assert without_effect(environment) == ["KAFKA_HEAP_OPTS"]


@given(st.sampled_from(sorted(BROKER_CONFIGS)), st.text(min_size=1))
def test_every_property_of_kafka_can_be_set(name: str, value: str) -> None:
    variable = "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()
    assert properties_from_environment({variable: value}) == {name: value}


def test_environment_over_file_over_nothing(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=4\nnum.partitions=2\n")
    found = container_properties({"KAFKA_NODE_ID": "5", "HOME": "/"}, file)
    assert found == {"node.id": "5", "num.partitions": "2"}
    assert container_properties({"KAFKA_NODE_ID": "5"}) == {"node.id": "5"}
    assert container_properties({"KAFKA_HEAP_OPTS": "x"}) == DEFAULTS
    BrokerConfig.from_properties(DEFAULTS)


def test_a_broker_listens_where_it_is_advertised() -> None:
    """As with Apache Kafka's image."""
    advertised = {"KAFKA_ADVERTISED_LISTENERS": "INSIDE://kafka-1:19092,OUTSIDE://localhost:29092"}
    listeners = "INSIDE://0.0.0.0:19092,OUTSIDE://0.0.0.0:29092"
    assert container_properties(advertised)["listeners"] == listeners
    assert container_properties({**advertised, "KAFKA_LISTENERS": ""})["listeners"] == listeners
    assert container_properties({**advertised, "KAFKA_LISTENERS": "X://:1"})["listeners"] == "X://:1"
    assert "listeners" not in container_properties({**advertised, "KAFKA_PROCESS_ROLES": "controller"})
    empty = {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ADVERTISED_LISTENERS": ""}
    assert container_properties(empty) == {"process.roles": "controller"}


def test_stores_and_passwords_come_from_the_directory_of_secrets(tmp_path: Path) -> None:
    (tmp_path / "node.p12").write_bytes(b"0")
    (tmp_path / "password").write_text("s3cr3t \n\n")
    environment = {
        "KAFKA_SSL_KEYSTORE_FILENAME": "node.p12",
        "KAFKA_SSL_KEYSTORE_LOCATION": "elsewhere",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "password",
        "KAFKA_SSL_KEY_CREDENTIALS": "password",
        "KAFKA_SSL_TRUSTSTORE_FILENAME": "",
    }
    assert container_properties(environment, secrets=tmp_path) == {
        "ssl.keystore.location": str(tmp_path / "node.p12"),
        "ssl.keystore.password": "s3cr3t ",
        "ssl.key.password": "s3cr3t ",
    }
    with pytest.raises(FatalError, match=r"^KAFKA_SSL_TRUSTSTORE_FILENAME: .*none\.p12 does not exist$"):
        container_properties({"KAFKA_SSL_TRUSTSTORE_FILENAME": "none.p12"}, secrets=tmp_path)
    with pytest.raises(FatalError, match=r"^KAFKA_SSL_KEY_CREDENTIALS: cannot read .*: No such file"):
        container_properties({"KAFKA_SSL_KEY_CREDENTIALS": "none"}, secrets=tmp_path)


def run_container(tmp_path: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kbroker", "container"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )


def node_variables(tmp_path: Path) -> dict[str, str]:
    client, controller = free_ports(2)
    return {
        "KAFKA_NODE_ID": "7",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"7@127.0.0.1:{controller}",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "CLUSTER_ID": "abcdefghijklmnopqrstuv",
    }


def test_a_node_by_its_environment(tmp_path: Path) -> None:
    variables = node_variables(tmp_path)
    for _ in range(2):  # the directories are formatted once
        process = run_container(tmp_path, **variables)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("kbroker ready: 127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=2 * LONG)
        assert process.returncode == 0, errors
        assert "for a JVM, without effect in kbroker: KAFKA_HEAP_OPTS" in errors
    assert "cluster.id=abcdefghijklmnopqrstuv" in (tmp_path / "data" / "meta.properties").read_text()


def test_no_cluster_of_one_by_mistake(tmp_path: Path) -> None:
    variables = node_variables(tmp_path)
    address = variables.pop("KAFKA_CONTROLLER_QUORUM_VOTERS").partition("@")[2]
    process = run_container(tmp_path, **variables, KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS=address)
    _, errors = process.communicate(timeout=2 * LONG)
    assert process.returncode == 1 and "KAFKA_CONTROLLER_QUORUM_VOTERS" in errors.splitlines()[-1]
