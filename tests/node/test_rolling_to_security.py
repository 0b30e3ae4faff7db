"""A cluster of PLAINTEXT listeners is moved to SASL_SSL and an authorizer by rolling restarts, while a client produces.

The steps and their properties are those of docs/security/between-nodes.md.
"""

from __future__ import annotations

import re
import ssl
from functools import partial
from pathlib import Path

import trio

from kbroker.config import parse_properties
from kbroker.errors import ErrorCode
from kbroker.security.tls.authority import Authority
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.wire.errors import WireError
from kbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kbroker.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.node.node_harness import Client, Node, batch, produce_request, run
from tests.node.quorum_harness import Quorum, quorum

SECURE = "SECURE"
SECURE_CONTROLLER = "SECURE_CONTROLLER"
PLAIN = "PLAINTEXT"
ADMIN = b"\0admin\0adm1n"
PAGE = Path(__file__).parents[2] / "docs" / "security" / "between-nodes.md"


class Page:
    """The properties of each step for each node, with ports and files of the test's own."""

    def __init__(self, cluster: Quorum, path: Path) -> None:
        self._cluster = cluster
        self._secure_ports = free_ports(3)
        authority = Authority.create()
        self._files = {"/etc/kafka/node.pem": path / "node.pem", "/etc/kafka/ca.pem": path / "ca.pem"}
        for file, text in zip(
            self._files.values(), (authority.issue(hosts=["127.0.0.1"]).pem(), authority.certificate_pem), strict=True
        ):
            file.write_text(text)
        self.trust = ssl.create_default_context(cadata=authority.certificate_pem)
        blocks = re.findall(r"```properties\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
        authorizer, *steps = [parse_properties(block) for block in blocks]
        self._steps = [*steps, authorizer]
        assert len(self._steps) == 4

    def properties(self, step: int, number: int) -> dict[str, str]:
        """1: secure listeners are there; 2: nodes use them; 3: only they are there; 4: an authorizer."""
        found: dict[str, str] = {}
        for properties in self._steps[:step]:
            found |= properties
        ports = {
            9092: 0,
            9093: self._cluster.ports[number - 1],
            9094: 0,
            9095: self._secure_ports[number - 1],
        }
        found["listeners"] = re.sub(r"//:(\d+)", lambda m: f"//127.0.0.1:{ports[int(m[1])]}", found["listeners"])
        for name in ("ssl.keystore.location", "ssl.truststore.location"):
            found[name] = str(self._files[found[name]])
        quorum_ports = self._cluster.ports if step < 2 else self._secure_ports
        servers = (f"127.0.0.1:{port}" for port in quorum_ports)
        found["controller.quorum.bootstrap.servers"] = ",".join(servers)
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


async def produce_all_the_time(cluster: Quorum, page: Page, acknowledged: list[int]) -> None:
    """Note the offset of each batch that a majority of the nodes has; try again after errors."""
    client: Client | None = None
    asked = -1
    while True:
        leader = cluster.newest_image().topics.by_name["load"].partitions[0].leader if cluster.nodes else -1
        try:
            if client is None or asked != leader:
                asked, client = leader, await page.connect(cluster.node(leader))
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


def test_a_cluster_is_moved_to_sasl_ssl_while_a_client_produces(tmp_path: Path) -> None:
    async def main() -> None:
        of_nodes: dict[int, dict[str, str]] = {1: {}}
        async with quorum(tmp_path, dynamic=True, properties_of=of_nodes) as cluster:
            page = Page(cluster, tmp_path)
            await cluster.start(1, 2, 3)
            await cluster.await_leader()
            client = await page.connect(cluster.node(1))
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

            def goes_on(number: int, before: int) -> bool:
                return is_whole(number) and len(acknowledged) > before

            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce_all_the_time, cluster, page, acknowledged)
                for step in (1, 2, 3, 4):
                    for number in (1, 2, 3):
                        of_nodes[number] = page.properties(step, number)
                        await cluster.stop(number)
                        await cluster.start(number)
                        await cluster.until(partial(goes_on, number, len(acknowledged)))
                    await cluster.until(lambda: knows_secure_voters(3))
                nursery.cancel_scope.cancel()
            # An acknowledged batch that is lost would have its offset given to another one.
            assert len(set(acknowledged)) == len(acknowledged) >= 12
            leader = cluster.nodes[cluster.newest_image().topics.by_name["load"].partitions[0].leader]
            assert leader.replica_manager.get_partition("load", 0).high_watermark > max(acknowledged)
            assert all(set(node.ports) == {SECURE, SECURE_CONTROLLER} for node in cluster.nodes.values())

    run(main)
