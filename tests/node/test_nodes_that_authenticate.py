"""Three nodes that know one another by SASL, with Kafka's own properties: who is a node, and who is not."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.services.requester import principal_bytes
from kbroker.security.principal import KafkaPrincipal
from kbroker.wire.conversation import Conversation
from kbroker.wire.messages.envelope import EnvelopeRequest
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.node.node_harness import Client
from tests.node.quorum_harness import LISTENER, Quorum, quorum, three_nodes

PASSWORDS = {"node": "n0de", "admin": "adm1n", "alice": "al1ce"}
USERS = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = f'{MODULE} username="node" password="n0de" {USERS};'
PROPERTIES = {
    "listener.security.protocol.map": f"PLAINTEXT:SASL_PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "listener.name.controller.plain.sasl.jaas.config": JAAS,
    "inter.broker.listener.name": "PLAINTEXT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:admin",
}


async def connect(cluster: Quorum, node_id: int, user: str, listener: str = "PLAINTEXT") -> Client:
    """A connection that has authenticated."""
    client = await cluster.node(node_id).connect(listener)
    assert not (await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code
    token = b"\0".join((b"", user.encode(), PASSWORDS[user].encode()))
    assert not (await client.ask(SaslAuthenticateRequest(auth_bytes=token), 1)).error_code
    return client


@asynccontextmanager
async def nodes(path: Path) -> AsyncIterator[Quorum]:
    """Three nodes that have started, with the properties above."""
    async with three_nodes(path, properties=PROPERTIES) as cluster:
        yield cluster


def creation(name: str) -> CreateTopicsRequest:
    """A request for a topic with a replica on each node."""
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=3)], timeout_ms=5000
    )


async def test_no_client_passes_for_a_node(tmp_path: Path) -> None:
    """A client that has a password for the controllers' listener may still not speak for others there."""
    async with nodes(tmp_path) as cluster:
        leader = await cluster.await_leader()
        client = await connect(cluster, leader, "alice", LISTENER)
        inside = Conversation("c")
        data = b"".join(inside.send(creation("stolen"), 7))[4:]
        principal = principal_bytes(KafkaPrincipal("User", "admin"))
        envelope = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=b"\x7f\0\0\1")
        assert (await client.ask(envelope)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        direct = (await client.ask(creation("stolen"))).topics[0]
        assert direct.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "stolen" not in cluster.newest_image().topics.by_name


async def test_a_node_whose_name_is_no_super_users_is_kept_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says why, and goes on asking; the others do not mind."""
    alice = JAAS.replace('username="node" password="n0de"', 'username="alice" password="al1ce"')
    caplog.set_level(logging.ERROR, "kbroker.node.controller.raft_peers")
    properties = {name.replace(".", "_"): value for name, value in PROPERTIES.items()}
    other = {3: {"listener.name.controller.plain.sasl.jaas.config": alice}}
    async with quorum(tmp_path, properties_of=other, properties=properties) as cluster:
        await cluster.start(1, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start, 3)
            await cluster.until(lambda: any("CLUSTER_ACTION" in each.message for each in caplog.records))
            assert 3 not in cluster.newest_image().brokers
            nursery.cancel_scope.cancel()
    assert not any(password in caplog.text for password in PASSWORDS.values())
