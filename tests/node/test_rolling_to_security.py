"""A cluster of PLAINTEXT listeners is moved to SASL_SSL and an authorizer by rolling restarts, while a client produces.

The steps are those of docs/security/between-nodes.md.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trio
from node_harness import Client, Node, batch, produce_request, run
from quorum_harness import LISTENER, Quorum, quorum

from kbroker.cli.cluster_plan import free_ports
from kbroker.errors import ErrorCode
from kbroker.security.tls.authority import Authority
from kbroker.wire.errors import WireError
from kbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kbroker.wire.messages.sasl_handshake import SaslHandshakeRequest

SECURE = "SECURE"
SECURE_CONTROLLER = "SECURE_CONTROLLER"
PLAIN = "PLAINTEXT"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="node" password="n0de" user_node="n0de" user_admin="adm1n";'
)
ADMIN = b"\0admin\0adm1n"


class Stage:
    """The properties of each step, for each node."""

    def __init__(self, cluster: Quorum, path: Path, *, dynamic: bool) -> None:
        self._cluster = cluster
        self._dynamic = dynamic
        self._secure_ports = free_ports(3)
        authority = Authority.create()
        self._keys, self._trusted = path / "node.pem", path / "trusted.pem"
        self._keys.write_text(authority.issue(hosts=["127.0.0.1"]).pem())
        self._trusted.write_text(authority.certificate_pem)
        self.trust = ssl.create_default_context(cadata=authority.certificate_pem)

    def properties(self, step: int, number: int) -> dict[str, str]:
        """1: secure listeners are there; 2: nodes use them; 3: only they are there; 4: an authorizer."""
        plain = [f"{PLAIN}://127.0.0.1:0", f"{LISTENER}://127.0.0.1:{self._cluster.ports[number - 1]}"]
        secure = [f"{SECURE}://127.0.0.1:0", f"{SECURE_CONTROLLER}://127.0.0.1:{self._secure_ports[number - 1]}"]
        ports = self._cluster.ports if step < 2 else self._secure_ports
        found = {
            "listeners": ",".join(plain + secure if step < 3 else secure),
            "listener.security.protocol.map": (
                f"{PLAIN}:PLAINTEXT,{LISTENER}:PLAINTEXT,{SECURE}:SASL_SSL,{SECURE_CONTROLLER}:SASL_SSL"
            ),
            "inter.broker.listener.name": PLAIN if step < 2 else SECURE,
            "controller.listener.names": {
                1: f"{LISTENER},{SECURE_CONTROLLER}",
                2: f"{SECURE_CONTROLLER},{LISTENER}",
            }.get(step, SECURE_CONTROLLER),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keys),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trusted),
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            f"listener.name.{SECURE.lower()}.plain.sasl.jaas.config": JAAS,
            f"listener.name.{SECURE_CONTROLLER.lower()}.plain.sasl.jaas.config": JAAS,
        }
        if self._dynamic:
            found["controller.quorum.bootstrap.servers"] = ",".join(f"127.0.0.1:{port}" for port in ports)
        else:
            voters = (f"{index}@127.0.0.1:{port}" for index, port in enumerate(ports, 1))
            found["controller.quorum.voters"] = ",".join(voters)
        if step == 4:
            found["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            found["super.users"] = "User:node;User:admin"
        return found

    async def connect(self, node: Node) -> Client:
        """A client of a node, over TLS as admin once it has no other listener."""
        if PLAIN in node.broker.ports:
            return await node.connect(PLAIN)
        tcp = await trio.open_tcp_stream(*node.broker.ports[SECURE][:2])
        client = Client(trio.SSLStream(tcp, self.trust, server_hostname="127.0.0.1"))  # type: ignore[arg-type]
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert not (await client.ask(SaslAuthenticateRequest(auth_bytes=ADMIN), 1)).error_code
        return client


async def produce_all_the_time(cluster: Quorum, stage: Stage, acknowledged: list[int]) -> None:
    """Note the offset of each batch that a majority of the nodes has; try again after errors."""
    client: Client | None = None
    asked = -1
    while True:
        leader = cluster.newest_image().topics.by_name["load"].partitions[0].leader if cluster.nodes else -1
        try:
            if client is None or asked != leader:
                asked, client = leader, await stage.connect(cluster.node(leader))
            answer = await client.ask(produce_request("load", batch(b"value"), timeout_ms=5000), 9)
            partition = answer.responses[0].partition_responses[0]
            if partition.error_code == ErrorCode.NONE:
                acknowledged.append(partition.base_offset)
                await trio.sleep(0.001)  # the nodes share this one processor
            else:
                client = None
        except (OSError, EOFError, KeyError, WireError, trio.BrokenResourceError, trio.ClosedResourceError):
            client = None
            await trio.sleep(0.005)


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_cluster_is_moved_to_sasl_ssl_while_a_client_produces(tmp_path: Path, dynamic: bool) -> None:
    async def main() -> None:
        of_nodes: dict[int, dict[str, str]] = {1: {}}
        async with quorum(tmp_path, dynamic=dynamic, properties_of=of_nodes) as cluster:
            stage = Stage(cluster, tmp_path, dynamic=dynamic)
            await cluster.start(1, 2, 3)
            await cluster.await_leader()
            client = await stage.connect(cluster.node(1))
            config = CreatableTopicConfig(name="min.insync.replicas", value="2")
            topic = CreatableTopic(name="load", num_partitions=1, replication_factor=3, configs=[config])
            created = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
            assert created.topics[0].error_code == ErrorCode.NONE
            await cluster.topics_everywhere(["load"])
            acknowledged: list[int] = []

            def is_whole(number: int) -> bool:
                partition = cluster.newest_image().topics.by_name["load"].partitions[0]
                return len(partition.isr) == 3 and not cluster.newest_image().brokers[number].fenced

            def knows_secure_voters(number: int) -> bool:
                voters = cluster.nodes[number].metadata.voters.voters.values()
                return all(SECURE_CONTROLLER in voter.endpoints for voter in voters)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce_all_the_time, cluster, stage, acknowledged)
                for step in (1, 2, 3, 4):
                    for number in (1, 2, 3):
                        of_nodes[number] = stage.properties(step, number)
                        await cluster.stop(number)
                        await cluster.start(number)
                        before = len(acknowledged)
                        await cluster.until(lambda n=number, b=before: is_whole(n) and len(acknowledged) > b)
                    if dynamic:
                        await cluster.until(lambda: knows_secure_voters(3))
                nursery.cancel_scope.cancel()
            # An acknowledged batch that is lost would have its offset given to another one.
            assert len(set(acknowledged)) == len(acknowledged) >= 12
            leader = cluster.nodes[cluster.newest_image().topics.by_name["load"].partitions[0].leader]
            assert leader.replica_manager.get_partition("load", 0).high_watermark > max(acknowledged)
            assert all(set(node.ports) == {SECURE, SECURE_CONTROLLER} for node in cluster.nodes.values())

    run(main)
