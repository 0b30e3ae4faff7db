"""A client's principal reaches the active controller whichever broker it asks; only nodes may say who a client is.

Nodes know one another as ANONYMOUS here, a super user, as in a cluster of PLAINTEXT listeners.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.services.requester import principal_bytes
from kbroker.node.security.security import NodeSecurity
from kbroker.node.serving.admission import Admission, Admitted
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, ResourceType
from kbroker.security.principal import ANONYMOUS, KafkaPrincipal
from kbroker.wire.conversation import Conversation
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.node.node_harness import Client, judge_by
from tests.node.quorum_harness import LISTENER, Quorum, three_nodes

ALICE = KafkaPrincipal("User", "alice")
NODE = ANONYMOUS
CLUSTER_ACTION = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
LOOPBACK = b"\x7f\0\0\1"

Question = tuple[AclOperation, ResourceType, str]


class Rules:
    """The authorizer of all nodes: nodes may do everything, alice what ``allowed`` says."""

    version = 0

    def __init__(self) -> None:
        self.super_users = {NODE}
        self.allowed: set[Question] = set()
        self.asked: list[tuple[KafkaPrincipal, str, Question]] = []

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        question = (operation, resource_type, name)
        self.asked.append((principal, host, question))
        return principal in self.super_users or question in self.allowed

    def authorize_by_resource_type(self, *_: object) -> bool:
        return False

    def audit(self, *_: object) -> None:
        pass

    def asked_of(self, principal: KafkaPrincipal) -> set[Question]:
        """The questions about a principal."""
        return {question for who, _, question in self.asked if who == principal}


class Cluster:
    """Three nodes with one authorizer, and connections to them by anyone."""

    def __init__(self, quorum: Quorum, rules: Rules, principals: dict[int, KafkaPrincipal]) -> None:
        self.quorum = quorum
        self.rules = rules
        self._principals = principals

    async def connect(self, node_id: int, principal: KafkaPrincipal, listener: str = "PLAINTEXT") -> Client:
        """A connection that belongs to a principal."""
        sock = trio.socket.socket()
        await sock.bind(("127.0.0.1", 0))
        self._principals[sock.getsockname()[1]] = principal
        await sock.connect(self.quorum.nodes[node_id].ports[listener])
        return Client(trio.SocketStream(sock))

    def topics(self) -> set[str]:
        """Those that the active controller knows."""
        return set(self.quorum.newest_image().topics.by_name)


@asynccontextmanager
async def cluster(path: Path, **options: Any) -> AsyncIterator[Cluster]:
    """Three nodes whose listeners give a connection the principal that the test has chosen; nodes are ANONYMOUS."""
    principals: dict[int, KafkaPrincipal] = {}

    class Chosen:
        async def admit(self, client: Admitted) -> None:
            client.principal = principals.get(client.stream.peer[1], NODE)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeSecurity, "admission", lambda self, listener, services: Admission([Chosen()]))
        async with three_nodes(path, **options) as quorum:
            rules = Rules()
            for node in quorum.nodes.values():
                judge_by(node.services, rules)
            yield Cluster(quorum, rules, principals)


def creation(name: str) -> CreateTopicsRequest:
    """A request for a topic."""
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=5000
    )


async def test_the_controller_judges_the_client_whichever_node_it_asks(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        leader = await nodes.quorum.await_leader()
        for number in (1, 2, 3):
            name = f"t{number}"
            client = await nodes.connect(number, ALICE)
            topic = (await client.ask(creation(name))).topics[0]
            assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, (number, leader)
            assert name not in nodes.topics()
            nodes.rules.allowed.add((AclOperation.CREATE, ResourceType.TOPIC, name))
            topic = (await client.ask(creation(name))).topics[0]
            assert topic.error_code == ErrorCode.NONE and name in nodes.topics()
            # Nobody may describe its configuration; for that Apache Kafka has an error of its own.
            assert topic.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert (topic.num_partitions, topic.replication_factor, topic.configs) == (-1, -1, [])
        assert {host for who, host, _ in nodes.rules.asked if who == ALICE} == {"127.0.0.1"}
        assert nodes.rules.asked_of(NODE) == {CLUSTER_ACTION}
        # A broker that has no authorizer passes nobody off as itself.
        other = leader % 3 + 1
        judge_by(nodes.quorum.nodes[other].services, None)
        client = await nodes.connect(other, ALICE)
        topic = (await client.ask(creation("t4"))).topics[0]
        assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and "t4" not in nodes.topics()


async def test_configs_are_changed_by_who_may_and_the_broker_itself_asks_about_its_loggers(tmp_path: Path) -> None:
    def change(kind: int, name: str, key: str, value: str) -> IncrementalAlterConfigsResource:
        config = IncrementalAlterableConfig(name=key, config_operation=0, value=value)
        return IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])

    async with cluster(tmp_path) as nodes:
        await (await nodes.connect(1, NODE)).ask(creation("t"))
        leader = await nodes.quorum.await_leader()
        client = await nodes.connect(leader % 3 + 1, ALICE)
        request = IncrementalAlterConfigsRequest(
            resources=[
                change(2, "t", "retention.ms", "4711"),
                change(4, "", "log.cleaner.threads", "2"),
                change(8, str(leader % 3 + 1), "kbroker", "INFO"),
            ]
        )
        codes = [each.error_code for each in (await client.ask(request)).responses]
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, denied, denied]
        nodes.rules.allowed.add((AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, "t"))
        codes = [each.error_code for each in (await client.ask(request)).responses]
        assert codes == [ErrorCode.NONE, denied, denied]
        assert nodes.quorum.newest_image().configs.for_topic("t")["retention.ms"] == "4711"


async def test_a_topic_that_metadata_creates_is_the_clients(tmp_path: Path) -> None:
    """The controller asks about the client again, as Apache Kafka's does since 2.8; the broker is not in question."""
    async with cluster(tmp_path) as nodes:
        nodes.rules.allowed |= {
            (operation, ResourceType.TOPIC, f"auto{number}")
            for operation in (AclOperation.CREATE, AclOperation.DESCRIBE)
            for number in (1, 2, 3)
        }
        for number in (1, 2, 3):
            nodes.rules.asked.clear()
            client = await nodes.connect(number, ALICE)
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=f"auto{number}")], allow_auto_topic_creation=True)
            await client.ask(asked)
            await nodes.quorum.topics_everywhere([f"auto{number}"])
            create = (AclOperation.CREATE, ResourceType.TOPIC, f"auto{number}")
            assert create in nodes.rules.asked_of(ALICE)
            assert nodes.rules.asked_of(NODE) <= {CLUSTER_ACTION}


def sealed(
    request: CreateTopicsRequest, principal: bytes | None, address: bytes = LOOPBACK
) -> tuple[EnvelopeRequest, Conversation]:
    """An Envelope, and what reads the answer inside."""
    inside = Conversation("c")
    framed = b"".join(inside.send(request, 7))
    return EnvelopeRequest(request_data=framed[4:], request_principal=principal, client_host_address=address), inside


async def test_a_client_cannot_say_that_it_is_somebody_else(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        leader = await nodes.quorum.await_leader()
        client = await nodes.connect(leader, ALICE, LISTENER)
        envelope, _ = sealed(creation("stolen"), principal_bytes(NODE))
        answer = await client.ask(envelope)
        assert (answer.error_code, answer.response_data) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        assert nodes.rules.asked_of(NODE) <= {CLUSTER_ACTION} and "stolen" not in nodes.topics()
        # With CLUSTER_ACTION it is taken for a node, whose word counts.
        nodes.rules.allowed.add(CLUSTER_ACTION)
        envelope, inside = sealed(creation("given"), principal_bytes(NODE))
        answer = await client.ask(envelope)
        assert inside.receive(answer.response_data).topics[0].error_code == ErrorCode.NONE
        # Who says nothing of its client is refused, with the codes of Apache Kafka 4.3.
        client = await nodes.connect(leader, NODE, LISTENER)
        good = principal_bytes(ALICE)
        unreadable = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
        for principal in (None, b"", b"\0", good[:-2], b"\0\7" + good[2:]):
            envelope, _ = sealed(creation("t"), principal)
            assert (await client.ask(envelope)).error_code == unreadable, principal
        for address in (b"", bytes(5)):
            envelope, _ = sealed(creation("t"), good, address)
            assert (await client.ask(envelope)).error_code == ErrorCode.INVALID_REQUEST, address
        for not_forwarded in (ApiVersionsRequest(client_software_name="a", client_software_version="1"), envelope):
            inside = Conversation("c")
            version = 3 if isinstance(not_forwarded, ApiVersionsRequest) else 0
            data = b"".join(inside.send(not_forwarded, version))[4:]
            outer = EnvelopeRequest(request_data=data, request_principal=good, client_host_address=LOOPBACK)
            assert (await client.ask(outer)).error_code == ErrorCode.INVALID_REQUEST
        assert nodes.topics() == {"given"}


async def test_a_broker_that_the_controller_does_not_believe_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client is told nothing of it; the broker's own life is not touched."""
    async with cluster(tmp_path, broker_session_timeout_ms="60000") as nodes:
        leader = await nodes.quorum.await_leader()
        other = leader % 3 + 1
        client = await nodes.connect(other, ALICE)
        judge_by(nodes.quorum.nodes[leader].services, Nobody())
        with caplog.at_level(logging.ERROR, "kbroker.node.controller.controller_client"):
            for _ in range(2):
                topic = (await client.ask(creation("t"))).topics[0]
                assert topic.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        said = [record for record in caplog.records if record.name == "kbroker.node.controller.controller_client"]
        assert len(said) == 1 and "CLUSTER_AUTHORIZATION_FAILED" in said[0].getMessage()
        assert "t" not in nodes.topics()

        # What the controller cannot read is of another version: the client is to connect again, and ask for them.
        async def unread(request: object) -> EnvelopeResponse:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

        nodes.quorum.nodes[other].metadata.client.channels.forward = unread  # type: ignore[method-assign,assignment]
        await client.send(creation("t"))
        assert await client.closed()


class Nobody(Rules):
    """Allows nothing to anybody."""

    def authorize(self, *_: object) -> bool:
        return False
