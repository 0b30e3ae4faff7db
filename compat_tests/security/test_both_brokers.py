"""Apache Kafka and kbroker with the same security: in one cluster, and one after the other on the same files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from compat_tests.client import Record
from compat_tests.client_security import Security
from compat_tests.security.conftest import FULL
from compat_tests.security.servers import SecureServers
from compat_tests.security.test_delegation_tokens import Tokens, holder, logs_in_with
from compat_tests.security.test_protocols import works
from compat_tests.security.world import World, all_in_sync, logs_in, running_world
from tests.patience import eventually


def _refreshed(tokens: Tokens, alice: Security, made: list[tuple[str, ...]]) -> bool:
    return sorted(tokens.shown(alice, "alice")) == sorted(made)


@pytest.fixture(autouse=True)
def _both(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") != "kbroker" or request.config.getoption("--bootstrap"):
        pytest.skip("kbroker's nodes are judged together with Apache Kafka's")
    if not FULL:
        pytest.skip("a minute of Apache Kafka's starts: KBROKER_COMPAT_SECURITY_FULL=1")
    if not shutil.which("java"):
        pytest.skip("java is not installed")


def _started(*kinds: str, mechanism_between: str) -> Iterator[World]:
    servers = SecureServers(*kinds, mechanism_between=mechanism_between)
    with running_world(servers, checks_log=False) as world:
        yield world


@pytest.fixture
def mixed() -> Iterator[World]:
    """Two nodes of kbroker and one of Apache Kafka, all of them brokers and controllers."""
    yield from _started("kbroker", "apache", "kbroker", mechanism_between="SCRAM-SHA-512")


@pytest.fixture(params=["apache", "kbroker"])
def alone(request: pytest.FixtureRequest) -> Iterator[World]:
    """A node of the broker that writes the files first; the parameter says which."""
    yield from _started(request.param, mechanism_between="PLAIN")


def test_one_cluster_of_both(mixed: World, tmp_path: Path) -> None:
    user, password = mixed.user("both", "SCRAM-SHA-512")
    security = mixed.servers.sasl("SASL_SSL", "SCRAM-SHA-512", user, password)
    client = mixed.client("confluent-kafka", "SASL_SSL", security)
    works(mixed, client, partitions=6)
    topic = mixed.topic(partitions=6)
    eventually(lambda: all_in_sync(mixed.admin, topic))
    # Each node alone tells of what the user may, whichever controller wrote it down.
    mixed.allow(user, "topic", topic, "describe")
    addresses = mixed.servers.bootstrap("SASL_SSL").split(",")
    for address in addresses:
        eventually(partial(mixed.sees, address, security, topic))
    mixed.forget(user)
    for address in addresses:
        eventually(partial(mixed.misses, address, security, topic))
    mixed.done_with(client)
    _tokens_of_a_mixed_cluster(mixed, tmp_path)


def _tokens_of_a_mixed_cluster(mixed: World, directory: Path) -> None:
    """Each node makes tokens for all, whichever controller writes them down, and refuses those that are gone."""
    alice = mixed.servers.plain("alice", "SASL_SSL")
    addresses = mixed.servers.bootstrap("SASL_SSL").split(",")
    for address in addresses:
        tokens = Tokens(mixed, directory, address)
        made = tokens.create(alice)
        held = holder(alice, made, "SCRAM-SHA-256")
        for other in addresses:
            eventually(partial(logs_in_with, other, held))
        refused = tokens.run(held, "--create", "--max-life-time-period", "-1")
        assert refused.exit == 1 and "Delegation Token requests are not allowed" in refused.out + refused.err
        assert tokens.run(alice, "--expire", "--expiry-time-period", "-1", "--hmac", made[1]).exit == 0
        for other in addresses:
            eventually(partial(_refuses, other, held))
        tokens.close()


def _refuses(address: str, token: Security) -> bool:
    return not logs_in_with(address, token)


def test_files_of_one_are_opened_by_the_other(alone: World, tmp_path: Path) -> None:
    """Users, passwords, rights, quotas, tokens and records stay what they are, there and back."""
    first = alone.servers.kinds[0]
    other = {"apache": "kbroker", "kbroker": "apache"}[first]
    topic = alone.topic()
    known = {}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        user, password = alone.user("moved", mechanism)
        known[user] = alone.servers.sasl("SASL_SSL", mechanism, user, password)
    allowed, denied = known
    alone.allow(allowed, "topic", topic[:-2], "read", "write", prefixed=True)
    alone.allow(denied, "topic", topic, "read")
    alone.deny(denied, "topic", "*", "all")
    alone.limit(allowed, producer_byte_rate=1_000_000.0, controller_mutation_rate=7.0)
    alone.limit(denied, request_percentage=12.5)
    alice = alone.servers.plain("alice", "SASL_SSL")
    tokens = Tokens(alone, tmp_path)
    made = [tokens.create(alice, "--renewer-principal", "User:bob")]
    for kind in (other, first):
        alone.servers.exchange(0, kind)
        address = alone.servers.bootstrap("SASL_SSL")
        for security in known.values():
            eventually(partial(logs_in, address, security))
        for token in made:
            eventually(partial(logs_in_with, address, holder(alice, token, "SCRAM-SHA-512")))
        assert sorted(tokens.shown(alice, "bob")) == sorted(made)
        made.append(tokens.create(alice, "--renewer-principal", "User:bob"))
        eventually(partial(_refreshed, tokens, alice, made))
        eventually(partial(alone.sees, address, known[allowed], topic))
        assert alone.misses(address, known[denied], topic)
        assert alone.limits(allowed) == {"producer_byte_rate": 1_000_000.0, "controller_mutation_rate": 7.0}
        assert alone.limits(denied) == ({"request_percentage": 12.5} if kind == other else {})
        alone.limit(denied, request_percentage=None)
        client = alone.client("confluent-kafka", "SASL_SSL", known[allowed])
        client.produce(topic, [Record(kind.encode())])
        alone.done_with(client)
    tokens.close()
    read = alone.peer.read(topic, count=2)
    assert [record.value for record in read] == [other.encode(), first.encode()]
    # What the one has made the other takes away.
    assert alone.forget(allowed) == 2
    assert alone.forget(denied) == 2
