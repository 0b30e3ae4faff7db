"""Three nodes that know one another by SCRAM over TLS and, as controllers, by certificates on both sides."""

from __future__ import annotations

from functools import partial

import pytest

from compat_tests.client import Record
from compat_tests.security.test_protocols import security_of, works
from compat_tests.security.world import World, all_in_sync, logs_in
from tests.patience import LONG, eventually

_WAYS = {"confluent-kafka": "SCRAM-SHA-512", "java": "SCRAM-SHA-256", "aiokafka": "PLAIN"}


@pytest.mark.parametrize("name", _WAYS)
def test_everything_works_on_three_nodes(three: World, name: str) -> None:
    security = security_of(three, three.servers, "SASL_SSL", _WAYS[name])
    works(three, three.client(name, "SASL_SSL", security), partitions=6)


def test_node_comes_back(three: World) -> None:
    """It logs in to the others anew, takes what it missed, and knows the users and rights that came meanwhile."""
    topic = three.topic(partitions=3)
    eventually(lambda: all_in_sync(three.admin, topic))
    # librdkafka's admin client waits for the node that it takes for the controller, so that is not the one that dies.
    asked = three.admin.list_topics(timeout=LONG).controller_id - 1
    dead = (asked + 1) % 3
    three.servers.kill(dead)
    address = three.servers.bootstrap("SASL_PLAINTEXT").split(",")
    try:
        user = three.name("user")
        three.put_password(user, "came-meanwhile")
        three.allow(user, "topic", topic, "read", "write")
        security = three.servers.sasl("SASL_PLAINTEXT", "SCRAM-SHA-256", user, "came-meanwhile")
        eventually(lambda: logs_in(address[asked], security))
        three.peer.produce(topic, [Record(b"meanwhile", partition=each) for each in range(3)])
    finally:
        three.servers.revive(dead)
    eventually(lambda: all_in_sync(three.admin, topic))
    for each in address:
        eventually(partial(three.sees, each, security, topic))
    client = three.client("kafka-python", "SASL_PLAINTEXT", security)
    read = [client.read(topic, partition, count=1)[0].value for partition in range(3)]
    assert read == [b"meanwhile"] * 3
    three.done_with(client)
