"""Environment variables of Apache Kafka's image as properties, and the node that they describe."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config import BROKER_CONFIGS, BrokerConfig
from kbroker.config.environment import properties_from_environment, property_name, without_effect
from kbroker.errors import FatalError
from kbroker.security.sasl.jaas import parse_jaas
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.tools.cli.container import DEFAULTS, container_properties
from kbroker.tools.cli.kafka_opts import with_java_options
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


def test_bitnamis_variables(tmp_path: Path) -> None:
    given = {"KAFKA_CFG_NODE_ID": "0", "KAFKA_CFG_PROCESS_ROLES": "broker,controller", "KAFKA_ENABLE_KRAFT": "yes"}
    assert container_properties(given) == {
        "node.id": "0",
        "process.roles": "broker,controller",
        "log.dirs": "/bitnami/kafka/data",
    }
    assert container_properties(given | {"KAFKA_CFG_LOG_DIRS": "/x"})["log.dirs"] == "/x"
    assert "log.dirs" not in container_properties({"KAFKA_NODE_ID": "0"})


def test_a_node_by_bitnamis_variables(tmp_path: Path) -> None:
    variables = {f"KAFKA_CFG_{name.removeprefix('KAFKA_')}": value for name, value in node_variables(tmp_path).items()}
    variables["KAFKA_KRAFT_CLUSTER_ID"] = variables.pop("KAFKA_CFG_CLUSTER_ID")
    del variables["KAFKA_CFG_HEAP_OPTS"]
    process = run_container(tmp_path, **variables)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("kbroker ready: 127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=2 * LONG)
    assert process.returncode == 0 and "WARNING" not in errors, errors
    assert "cluster.id=abcdefghijklmnopqrstuv" in (tmp_path / "data" / "meta.properties").read_text()


JAAS_FILE = """
/* users of the listeners */
KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required
    username="node" password="between nodes" user_node="between nodes" user_ann="a \\"quoted\\" word";
  org.apache.kafka.common.security.scram.ScramLoginModule required;
};
controller.KafkaServer { // those of the controller
  org.apache.kafka.common.security.plain.PlainLoginModule required user_node="x";
};
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="z"; };
"""


def test_the_files_of_kafka_opts(tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(JAAS_FILE)
    environment = {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={path} -Djava.security.krb5.conf=/k.conf"}
    given = {
        "listeners": "IN://:1,CONTROLLER://:2",
        "controller.listener.names": "CONTROLLER",
        "listener.name.in.scram-sha-256.sasl.jaas.config": "mine",
    }
    found = with_java_options(given, environment)
    assert environment["KRB5_CONFIG"] == "/k.conf"
    lines = {name.removeprefix("listener.name.").removesuffix(".sasl.jaas.config") for name in found.keys() - given}
    assert lines == {"in.plain", "in.scram-sha-512", "controller.plain"}
    assert found["listener.name.in.scram-sha-256.sasl.jaas.config"] == "mine"
    entry = parse_jaas(found["listener.name.in.plain.sasl.jaas.config"])
    assert entry.options["user_ann"] == 'a "quoted" word' and entry.options["username"] == "node"
    assert parse_jaas(found["listener.name.controller.plain.sasl.jaas.config"]).options == {"user_node": "x"}
    assert without_effect(environment) == ["KAFKA_OPTS"]
    assert without_effect({"KAFKA_OPTS": f"-Djava.security.auth.login.config={path}"}) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot read"),
        ("KafkaServer {", "does not end with };"),
        ("KafkaServer org.apache", "NAME { MODULE FLAG OPTIONS; };"),
        ("KafkaServer { com.example.Mine required; };", "is not one of the login modules"),
    ],
)
def test_files_of_kafka_opts_that_cannot_be_used(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "jaas.conf"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FatalError, match=re.escape(problem)):
        with_java_options({"listeners": "A://:1"}, {"KAFKA_OPTS": f"-Djava.security.auth.login.config={path}"})


def test_clients_log_in_by_a_jaas_file(tmp_path: Path) -> None:
    [port, controller] = free_ports(2)
    (tmp_path / "jaas.conf").write_text(JAAS_FILE)
    variables = node_variables(tmp_path) | {
        "KAFKA_LISTENERS": f"IN://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"7@127.0.0.1:{controller}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "IN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "IN",
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
        "KAFKA_OPTS": f"-Djava.security.auth.login.config={tmp_path / 'jaas.conf'}",
    }
    process = run_container(tmp_path, **variables)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("kbroker ready: 127.0.0.1:")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    for password, enters in (('a "quoted" word', True), ("another", False)):
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", **login, "sasl.password": password})
        if enters:
            assert admin.list_topics(timeout=LONG).brokers
        else:
            with pytest.raises(KafkaException):
                admin.list_topics(timeout=3)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=2 * LONG)
    assert process.returncode == 0 and "KAFKA_OPTS" not in errors, errors
