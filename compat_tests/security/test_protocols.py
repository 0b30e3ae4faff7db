"""All that a client does, through each security protocol and mechanism."""

from __future__ import annotations

import pytest

from compat_tests.client import Client, Record, Step
from compat_tests.client_security import OAUTHBEARER, Security
from compat_tests.security.conftest import FULL
from compat_tests.security.servers import SecureServers
from compat_tests.security.world import CLIENTS, SENDS_NONCE_TWICE, World, feature

WAYS = (
    ("SSL", ""),
    ("MTLS", ""),
    *(
        (protocol, mechanism)
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    ),
    ("TOKENS", OAUTHBEARER),
)
"""Listener and mechanism."""

_SHORT = {
    ("SSL", ""): ("kafka-python", "kcat", "kafkajs"),
    ("MTLS", ""): ("confluent-kafka", "aiokafka", "java", "kcat"),
    ("SASL_PLAINTEXT", "PLAIN"): ("confluent-kafka", "kafkajs"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"): ("aiokafka", "java"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"): ("kafka-python",),
    ("SASL_SSL", "PLAIN"): ("kafka-python", "kcat"),
    ("SASL_SSL", "SCRAM-SHA-256"): ("confluent-kafka", "kafkajs"),
    ("SASL_SSL", "SCRAM-SHA-512"): ("aiokafka", "java"),
    ("TOKENS", OAUTHBEARER): ("confluent-kafka", "java", "kafkajs", "kafka-python", "aiokafka"),
}
"""Without FULL: each way by some clients, and each client by three ways."""

ALL_CLIENTS = frozenset(_SHORT) - {("TOKENS", OAUTHBEARER)}
"""Ways that each client can go. kcat cannot ask a provider where its librdkafka is built without that."""


def _title(listener: str, mechanism: str) -> str:
    if not mechanism:
        return "TLS, and a certificate for a name"
    if mechanism == OAUTHBEARER:
        return "OAUTHBEARER, with tokens of a provider"
    return f"{'SCRAM' if mechanism.startswith('SCRAM') else mechanism}, with TLS and without"


_PAIRS = [
    pytest.param(*way, name, id="-".join(filter(None, (name, *way))), marks=feature(name, _title(*way)))
    for way in WAYS
    for name in (CLIENTS if FULL and way in ALL_CLIENTS else _SHORT[way])
]


def security_of(world: World, servers: SecureServers, listener: str, mechanism: str) -> Security:
    """Someone who is let in at `listener`."""
    if listener == "SSL":
        return servers.tls()
    if listener == "MTLS":
        return servers.tls(servers.alice)
    if mechanism == OAUTHBEARER:
        return servers.tokens("alice")
    if mechanism == "PLAIN":
        return servers.plain("alice", listener)
    user, password = world.user("through", mechanism)
    return servers.sasl(listener, mechanism, user, password)


@pytest.mark.parametrize(("listener", "mechanism", "name"), _PAIRS)
def test_everything_works_through_it(world: World, listener: str, mechanism: str, name: str) -> None:
    if mechanism.startswith("SCRAM") and name in SENDS_NONCE_TWICE:
        pytest.skip(SENDS_NONCE_TWICE[name])
    client = world.client(name, listener, security_of(world, world.servers, listener, mechanism))
    works(world, client)


def works(world: World, client: Client, partitions: int = 1) -> None:
    """Topics, records, a group and a transaction, by one client."""
    topic, group = world.open_name(), world.open_name("group")
    if "create_topic" in client.features:
        client.create_topic(topic, partitions, {}, world.servers.count)
        world.await_topic(topic)  # whichever node the client asks next
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
        world.done_with(client)
