"""Three nodes that log in to one another by SCRAM, with credentials from their first start on."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.raft_metadata.controller.scram import credential_record
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.runtime.env import RealEnv
from kbroker.security.sasl.add_scram import parse_add_scram
from kbroker.security.sasl.client import client_mechanism
from kbroker.types import TopicPartition
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kbroker.wire.messages.scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from kbroker.wire.records.metadata import UserScramCredentialRecord
from tests.node.node_harness import CLUSTER_ID, Client, Node, batch, produce_request, run
from tests.node.quorum_harness import LISTENER, Quorum, quorum, three_nodes
from tests.patience import LONG

MECHANISM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRETS = ("broker-secret", "alice-secret")


def line(user: str, password: str) -> str:
    return f'{MODULE} required username="{user}" password="{password}";'


PROPERTIES = {
    "listener.security.protocol.map": f"PLAINTEXT:SASL_PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": MECHANISM,
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "sasl.mechanism.controller.protocol": MECHANISM,
    f"listener.name.plaintext.{MECHANISM.lower()}.sasl.jaas.config": line("broker", "broker-secret"),
    f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}.sasl.jaas.config": line("broker", "broker-secret"),
    "connection.failed.authentication.delay.ms": "1",
}


def format_nodes(path: Path) -> None:
    """Format each of three nodes with SCRAM credentials, as ``kbroker format --add-scram`` does."""
    for node_id in (1, 2, 3):
        directory = str(path / f"node{node_id}")
        format_log_dirs(
            RealEnv().disk,
            [directory],
            directory,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            rng=random.Random(node_id),
            now_ms=1_700_000_000_000,
            scram_records=[
                credential_record(*parse_add_scram(f"{MECHANISM}=[name={user},password={user}-secret]"))
                for user in ("broker", "alice")
            ],
        )


async def logged_in(node: Node, user: str = "alice", listener: str = "PLAINTEXT") -> Client:
    client = await node.connect(listener)
    side = client_mechanism(MECHANISM, line(user, f"{user}-secret"), {}).make("localhost")
    await client.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
    response = await client.ask(SaslAuthenticateRequest(auth_bytes=side.first()))
    response = await client.ask(SaslAuthenticateRequest(auth_bytes=side.respond(bytes(response.auth_bytes))))
    assert response.error_code == 0, response
    return client


async def produce(cluster: Quorum, topic: str, count: int) -> None:
    """Append to a partition with acks=all, which the others must fetch."""
    partition = await leader_of(cluster, topic)
    client = await logged_in(cluster.node(partition))
    for _ in range(count):
        response = await client.ask(produce_request(topic, batch(b"x"), acks=-1), 12)
        assert response.responses[0].partition_responses[0].error_code == 0
    await client.stream.aclose()


async def leader_of(cluster: Quorum, topic: str) -> int:
    """The node that leads the topic's partition by the newest metadata, once it has heard of that."""

    def leader() -> int:
        found = cluster.newest_image().topics.by_name.get(topic)
        return -1 if found is None else found.partitions[0].leader

    def leads() -> bool:
        node = cluster.nodes.get(leader())
        partition = None if node is None else node.replica_manager.partitions.get(TopicPartition(topic, 0))
        return partition is not None and partition.state.is_leader

    await cluster.until(leads)
    return leader()


def test_nodes_log_in_to_one_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown: list[str] = []
    look_up = MetadataPlane.scram_credential

    def watched(metadata: MetadataPlane, user: str, mechanism: int) -> UserScramCredentialRecord | None:
        found = look_up(metadata, user, mechanism)
        if found is None:
            unknown.append(user)
        return found

    async def test() -> None:
        monkeypatch.setattr(MetadataPlane, "scram_credential", watched)
        format_nodes(tmp_path)
        options: dict[str, Any] = {**PROPERTIES, "connections.max.reauth.ms": "300"}
        async with three_nodes(tmp_path, **options) as cluster:
            admin = await logged_in(cluster.node(1))
            created = await admin.ask(
                CreateTopicsRequest(
                    topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=3)], timeout_ms=60_000
                )
            )
            assert created.topics[0].error_code == 0
            await cluster.topics_everywhere(["t"])
            deadline = trio.current_time() + 0.7  # twice a session: all connections between nodes are made anew
            await produce(cluster, "t", 5)
            while trio.current_time() < deadline:
                await produce(cluster, "t", 1)
                await trio.sleep(0.05)

            # A password that was changed since the nodes were formatted is theirs after a restart of all of them.
            changed = parse_add_scram(f"{MECHANISM}=[name=broker,password=broker-secret,salt=bmV3]")
            salted = changed.mechanism.salted_password("broker-secret", b"new", 4096)
            upsertion = ScramCredentialUpsertion(
                name="broker", mechanism=2, iterations=4096, salt=b"new", salted_password=salted
            )
            admin = await logged_in(cluster.node(2))
            response = await admin.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]))
            assert response.results[0].error_code == 0
            await cluster.until(
                lambda: all(
                    node.metadata.scram_credential("broker", 2) == credential_record(*changed)
                    for node in cluster.nodes.values()
                )
            )
            await cluster.stop(1, 2, 3)
            await cluster.start(1, 2, 3)
            await cluster.await_leader()
            await produce(cluster, "t", 1)
            await logged_in(cluster.node(1), "broker", LISTENER)

    with caplog.at_level(logging.DEBUG, "kbroker"):
        run(test)
    assert not any(secret in caplog.text for secret in SECRETS)
    assert "internal error" not in caplog.text and "Authentication failed" not in caplog.text
    assert not unknown, "not even before the first records of a new cluster are there"


def test_a_node_with_a_wrong_password_is_not_let_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        format_nodes(tmp_path)
        wrong = {name: value.replace("broker-secret", "stolen") for name, value in PROPERTIES.items()}
        async with quorum(tmp_path, properties_of={3: wrong}, properties=PROPERTIES) as cluster:
            await cluster.start(1, 2)
            await cluster.await_leader()
            with trio.fail_after(LONG):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cluster.start, 3)
                    await cluster.until(lambda: "refuses the login" in caplog.text)
                    nursery.cancel_scope.cancel()
            assert 3 not in cluster.nodes
            assert 3 not in cluster.newest_image().brokers

    with caplog.at_level(logging.INFO, "kbroker"):
        run(test)
    assert "127.0.0.1" in caplog.text
    assert not any(secret in caplog.text for secret in (*SECRETS, "stolen"))


PLAIN_LINE = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="broker-secret"'
    ' user_broker="broker-secret" user_alice="alice-secret";'
)


async def test_nodes_change_the_mechanism_by_which_they_log_in_to_one_another(tmp_path: Path) -> None:
    """Broker after broker, at run time, each by itself; in the end none takes the mechanism of their files any more."""
    own = "listener.name.plaintext"

    async def alter(client: Client, node_id: int, **changes: str) -> None:
        configs = [
            IncrementalAlterableConfig(name=name, config_operation=0, value=value) for name, value in changes.items()
        ]
        resource = IncrementalAlterConfigsResource(resource_type=4, resource_name=str(node_id), configs=configs)
        [answer] = (await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))).responses
        assert answer.error_code == 0, answer.error_message

    format_nodes(tmp_path)
    async with three_nodes(tmp_path, properties=PROPERTIES) as cluster:
        admins = {node_id: await logged_in(cluster.node(node_id)) for node_id in cluster.nodes}
        steps: list[dict[str, str]] = [
            {f"{own}.plain.sasl.jaas.config": PLAIN_LINE, f"{own}.sasl.enabled.mechanisms": f"{MECHANISM},PLAIN"},
            {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
            {f"{own}.sasl.enabled.mechanisms": "PLAIN"},
        ]
        for step in steps:
            for node_id, admin in admins.items():
                await alter(admin, node_id, **step)
        await cluster.stop(3)
        await cluster.start(3)
        client = await cluster.node(3).connect()
        refused = await client.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        assert refused.mechanisms == ["PLAIN"]
        wish = CreatableTopic(name="t", num_partitions=3, replication_factor=3)
        created = await admins[1].ask(CreateTopicsRequest(topics=[wish], timeout_ms=60_000))
        assert created.topics[0].error_code == 0
        await cluster.topics_everywhere(["t"])
        for partition in range(3):
            led = {p.leader for p in cluster.newest_image().topics.by_name["t"].partitions.values()}
            assert led == {1, 2, 3}
            leader = cluster.newest_image().topics.by_name["t"].partitions[partition].leader
            client = await cluster.node(leader).connect()
            await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            answer = await client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"))
            assert answer.error_code == 0
            produced = await client.ask(produce_request("t", batch(b"x"), acks=-1, partition=partition), 12)
            assert produced.responses[0].partition_responses[0].error_code == 0
        isr = [set(p.isr) for p in cluster.newest_image().topics.by_name["t"].partitions.values()]
        assert isr == [{1, 2, 3}] * 3, "all of them fetch"
