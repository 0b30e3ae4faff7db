"""Kerberos, with a KDC of its own: stock clients, three nodes that know one another by it, and who is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.client import ClientError, Record
from compat_tests.client_security import Security
from compat_tests.clients import skip_without
from compat_tests.security.conftest import kind_of
from compat_tests.security.servers import SecureServers
from compat_tests.security.test_protocols import works
from compat_tests.security.world import World, all_in_sync, feature, running_world
from tests.kdc import Kdc, missing_program, running_kdc
from tests.patience import LONG, eventually

pytest.importorskip("gssapi", reason="the extra kbroker[gssapi] is not installed")
pytestmark = pytest.mark.skipif(missing_program() is not None, reason=f"there is no KDC here: {missing_program()}")

CLIENTS = ("kafka-python", "aiokafka", "kcat", "java")
"""Those that have it: confluent-kafka's wheels are without, and so is kafkajs."""
TITLE = "Kerberos (GSSAPI), with TLS and without"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A KDC that all processes of this module find, with alice's key for clients that take it from the environment."""
    directory = tmp_path_factory.mktemp("kdc")
    with running_kdc(directory) as kdc:
        kdc.add("kafka/localhost", "alice", "mallory", "other/localhost")
        kdc.keytab("kafka", "kafka/localhost")
        alice = kdc.keytab("alice", "alice")
        kdc.keytab("mallory", "mallory")
        before = dict(os.environ)
        os.environ.update(kdc.environment)
        os.environ["KRB5_CLIENT_KTNAME"] = str(alice)
        os.environ["KRB5CCNAME"] = f"FILE:{directory / 'tickets'}"
        os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.security.krb5.conf={kdc.config}"
        yield kdc
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def nodes(request: pytest.FixtureRequest, kdc: Kdc) -> Iterator[World]:
    """Three nodes, to one another User:kafka by Kerberos over TLS."""
    kinds = [kind_of(request.config)] * 3
    servers = SecureServers(*kinds, mechanism_between="GSSAPI", keytab=kdc.directory / "kafka.keytab")
    with running_world(servers) as world:
        yield world


def by_kerberos(world: World, kdc: Kdc, listener: str, user: str = "alice") -> Security:
    ca = world.servers.authority.pem if listener == "SASL_SSL" else None
    return Security(listener, "GSSAPI", user, ca=ca, keytab=kdc.directory / f"{user}.keytab")


def skip_unless_kerberos(name: str) -> None:
    skip_without(name)
    if name == "kcat" and "sasl_gssapi" not in subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout:
        pytest.skip("this kcat has no GSSAPI")


@pytest.mark.parametrize(
    ("name", "listener"),
    [
        pytest.param(name, listener, marks=feature(name, TITLE))
        for name, listener in zip(CLIENTS, ("SASL_SSL", "SASL_PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"), strict=True)
    ],
)
def test_everything_works_through_it(nodes: World, kdc: Kdc, name: str, listener: str) -> None:
    skip_unless_kerberos(name)
    works(nodes, nodes.client(name, listener, by_kerberos(nodes, kdc, listener)), partitions=3)


def test_a_node_comes_back(nodes: World, kdc: Kdc) -> None:
    """It logs in to the others anew and takes what it missed."""
    topic = nodes.topic(nodes.open_name(), partitions=3)
    eventually(lambda: all_in_sync(nodes.admin, topic))
    dead = (nodes.admin.list_topics(timeout=LONG).controller_id) % 3
    nodes.servers.kill(dead)
    try:
        nodes.peer.produce(topic, [Record(b"meanwhile", partition=each) for each in range(3)])
    finally:
        nodes.servers.revive(dead)
    eventually(lambda: all_in_sync(nodes.admin, topic))


@pytest.mark.parametrize("name", ["java", "kcat"])
def test_who_has_no_rights_is_who_the_ticket_says(nodes: World, kdc: Kdc, name: str) -> None:
    """mallory is let in, and may nothing; a right for User:mallory is for her."""
    skip_unless_kerberos(name)
    topic = nodes.topic()
    client = nodes.client(name, "SASL_PLAINTEXT", by_kerberos(nodes, kdc, "SASL_PLAINTEXT", "mallory"))
    with pytest.raises(ClientError):
        client.produce(topic, [Record(b"no")])
    nodes.allow("mallory", "topic", topic, "write", "describe")
    eventually(lambda: writes(client, topic))
    nodes.done_with(client)


def writes(client: object, topic: str) -> bool:
    try:
        client.produce(topic, [Record(b"yes")])  # type: ignore[attr-defined]
    except ClientError:
        return False
    return True


def test_wrong_key_is_refused(nodes: World, kdc: Kdc, tmp_path: Path) -> None:
    """Keys that the KDC has replaced."""
    skip_unless_kerberos("java")
    kdc.add("leaver")
    keytab = kdc.keytab("leaver", "leaver")
    kdc.change_keys("leaver")
    client = nodes.client("java", "SASL_PLAINTEXT", Security("SASL_PLAINTEXT", "GSSAPI", "leaver", keytab=keytab))
    with pytest.raises(ClientError):
        client.list_topics()


@pytest.mark.parametrize("way", ["keytab", "cache"])
def test_own_commands(nodes: World, kdc: Kdc, tmp_path: Path, way: str) -> None:
    """``--command-config`` of kbroker's commands, with a keytab and with the tickets of kinit."""
    keytab = kdc.directory / "alice.keytab"
    login = f'useKeyTab=true keyTab="{keytab}" principal="alice"'
    if way == "cache":
        cache = tmp_path / "cache"
        subprocess.run(["kinit", "-k", "-t", str(keytab), "-c", str(cache), "alice"], check=True, capture_output=True)
        login = f'useTicketCache=true ticketCache="{cache}"'
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required {login};\n"
    )
    topic = nodes.topic(nodes.open_name())
    bootstrap = nodes.servers.bootstrap("SASL_PLAINTEXT")
    command = [sys.executable, "-m", "kbroker", "topic", "list", "-b", bootstrap, "--command-config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert topic in done.stdout
