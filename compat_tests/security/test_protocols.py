"""All that a client does, through each security protocol and mechanism."""

from __future__ import annotations

import pytest

from compat_tests.client import Record, Step
from compat_tests.client_security import Security
from compat_tests.security.conftest import FULL
from compat_tests.security.servers import SecureServers
from compat_tests.security.world import CLIENTS, World

WAYS = (
    ("SSL", ""),
    ("MTLS", ""),
    *(
        (protocol, mechanism)
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    ),
)
"""Listener and mechanism."""

# Without FULL each way is gone by two clients or three, and each client goes three of them.
_PAIRS = [
    pytest.param(listener, mechanism, name, id=f"{name}-{listener}{'-' if mechanism else ''}{mechanism}")
    for row, (listener, mechanism) in enumerate(WAYS)
    for column, name in enumerate(CLIENTS)
    if FULL or (column + 3 * (row // 2) + row) % 6 in (0, 2)
]


def security_of(world: World, servers: SecureServers, listener: str, mechanism: str) -> Security:
    """Someone who is let in at `listener`."""
    if listener == "SSL":
        return servers.tls()
    if listener == "MTLS":
        return servers.tls(servers.alice)
    if mechanism == "PLAIN":
        return servers.plain("alice", listener)
    user, password = world.user("through", mechanism)
    return servers.sasl(listener, mechanism, user, password)


@pytest.mark.parametrize(("listener", "mechanism", "name"), _PAIRS)
def test_everything_works_through_it(world: World, listener: str, mechanism: str, name: str) -> None:
    client = world.client(name, listener, security_of(world, world.servers, listener, mechanism))
    _work(world, client)


@pytest.mark.parametrize("name", ("confluent-kafka", "java", "aiokafka"))
def test_everything_works_on_three_nodes(three: World, name: str) -> None:
    ways = {"confluent-kafka": "SCRAM-SHA-512", "java": "SCRAM-SHA-256", "aiokafka": "PLAIN"}
    security = security_of(three, three.servers, "SASL_SSL", ways[name])
    _work(three, three.client(name, "SASL_SSL", security), partitions=6)


def _work(world: World, client, partitions: int = 1) -> None:  # type: ignore[no-untyped-def]
    topic, group = world.open_name(), world.open_name("group")
    if "create_topic" in client.features:
        client.create_topic(topic, partitions, {}, world.servers.count)
    else:
        world.topic(topic, partitions)
    try:
        records = [Record(f"{number}".encode(), partition=number % partitions) for number in range(12)]
        client.produce(topic, records, compression="gzip", idempotent=True)
        if "transactions" in client.features:
            steps = [Step(topic, [Record(b"in a transaction", key=b"key")], "commit")]
            client.produce_steps(steps, transactional_id=world.open_name("transaction"))
        read = client.consume(topic, group, 13, isolation="read_committed")
        assert sorted(record.value for record in read if record.value) == sorted(
            [*(record.value for record in records if record.value), b"in a transaction"]
        )
        assert topic in client.list_topics()
        # What was committed is there for the next member.
        client.produce(topic, [Record(b"more")])
        assert [record.value for record in client.consume(topic, group, 1)] == [b"more"]
    finally:
        if name_is_python(client):
            client.close()


def name_is_python(client) -> bool:  # type: ignore[no-untyped-def]
    """Whether the client is not one of many in one process."""
    return client.name not in ("java", "kafkajs")
