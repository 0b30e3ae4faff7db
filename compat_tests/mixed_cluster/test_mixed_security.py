"""Apache Kafka and kbroker in one cluster over SASL_SSL with an authorizer: each follows the other's quorum."""

from __future__ import annotations

import functools
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compat_tests.mixed_cluster.nodes import JvmNode, KbrokerNode, Node, remove
from kbroker.errors import ErrorCode
from kbroker.security.tls.authority import Authority
from kbroker.wire.conversation import Conversation
from kbroker.wire.framing import FrameReader
from kbroker.wire.messages.acls import AclCreation, CreateAclsRequest
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kbroker.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.patience import LONG, eventually

PASSWORDS = {"node": "n0de-pw", "admin": "adm1n-pw", "alice": "al1ce-pw"}
USERS = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="node" password="{PASSWORDS["node"]}" {USERS};'
)


class Client:
    """A connection over TLS to one node, as one user."""

    def __init__(self, node: Node, user: str, trust: ssl.SSLContext) -> None:
        self._socket = trust.wrap_socket(
            socket.create_connection(("127.0.0.1", node.port), LONG), server_hostname="127.0.0.1"
        )
        self._talk = Conversation("mixed")
        self._reader = FrameReader(api_keys=None)
        assert not self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
        token = b"\0".join((b"", user.encode(), PASSWORDS[user].encode()))
        assert not self.ask(SaslAuthenticateRequest(auth_bytes=token), 1).error_code

    def ask(self, request: Any, version: int) -> Any:
        """The answer to a request."""
        self._socket.sendall(b"".join(self._talk.send(request, version)))
        while (frame := self._reader.next_frame()) is None:
            data = self._socket.recv(1 << 16)
            assert data, "the node has closed"
            self._reader.receive(data)
        return self._talk.receive(frame)


@dataclass
class SecureCluster:
    """Node 1 is broker and the only voter, node 2 a broker of the other kind."""

    nodes: tuple[Node, Node]
    trust: ssl.SSLContext

    def client(self, number: int, user: str) -> Client:
        """A connection to a node."""
        return Client(self.nodes[number - 1], user, self.trust)

    def isr(self, topic: str) -> list[int]:
        """The replicas in sync of a topic's one partition, as node 1 has it."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        found = self.client(1, "admin").ask(asked, 12).topics[0]
        return sorted(found.partitions[0].isr_nodes) if not found.error_code else []

    def await_both(self) -> None:
        """Wait until both are unfenced."""

        def brokers(number: int) -> list[int]:
            answer = self.client(number, "admin").ask(MetadataRequest(topics=[]), 12)
            return sorted(broker.node_id for broker in answer.brokers)

        eventually(lambda: all(brokers(number) == [1, 2] for number in (1, 2)), "both brokers to be unfenced")


@pytest.fixture(scope="module", params=["jvm-quorum", "kbroker-quorum"])
def secure(
    startable: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureCluster]:
    """A cluster of both kinds whose listeners are SASL_SSL, and whose authorizer knows nodes and admin."""
    path: Path = tmp_path_factory.mktemp(str(request.param))
    authority = Authority.create()
    (path / "node.pem").write_text(authority.issue(hosts=["127.0.0.1", "localhost"]).pem())
    (path / "ca.pem").write_text(authority.certificate_pem)
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(path / "ca.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
        "listener.name.controller.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:admin",
    }
    voter: Node
    follower: Node
    if request.param == "jvm-quorum":
        voter = JvmNode(1, path / "jvm", properties=properties)
        follower = KbrokerNode(2, path / "kbroker", voter, properties=properties)
    else:
        voter = KbrokerNode(1, path / "kbroker", properties=properties)
        follower = JvmNode(2, path / "jvm", voter, properties=properties)
    try:
        voter.start()
        follower.start()
        cluster = SecureCluster((voter, follower), ssl.create_default_context(cadata=authority.certificate_pem))
        cluster.await_both()
        yield cluster
    finally:
        remove(follower)
        remove(voter)


def creation(name: str) -> CreateTopicsRequest:
    """A request for a topic with a replica on each node."""
    replicas = CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 1])
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[replicas])
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


def created(secure: SecureCluster, number: int) -> Any:
    """The answer to alice for a topic that she creates by way of a node; None if she may not."""
    topic = secure.client(number, "alice").ask(creation(f"mine-{number}"), 7).topics[0]
    return None if topic.error_code else topic


def await_in_sync(secure: SecureCluster, topic: str) -> None:
    """Wait until both replicas of a topic are."""
    eventually(lambda: secure.isr(topic) == [1, 2], "both replicas in sync")


def test_a_client_is_judged_by_its_own_name_by_way_of_each(secure: SecureCluster) -> None:
    """Denied, then allowed by an ACL that the other kind has taken; what it made is on both."""
    for number in (1, 2):
        topic = secure.client(number, "alice").ask(creation(f"mine-{number}"), 7).topics[0]
        assert (topic.error_code, topic.error_message) == (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "Authorization failed.",
        )
        acl = AclCreation(
            resource_type=2,
            resource_name=f"mine-{number}",
            resource_pattern_type=3,
            principal="User:alice",
            host="127.0.0.1",
            operation=5,
            permission_type=3,
        )
        answer = secure.client(3 - number, "alice").ask(CreateAclsRequest(creations=[acl]), 3)
        assert answer.results[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        answer = secure.client(3 - number, "admin").ask(CreateAclsRequest(creations=[acl]), 3)
        assert answer.results[0].error_code == ErrorCode.NONE
        topic = eventually(functools.partial(created, secure, number), "the ACL")
        # Without DescribeConfigs it is not told what it has made.
        assert topic.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not topic.configs
        await_in_sync(secure, f"mine-{number}")


def test_configs_are_changed_by_admin_alone(secure: SecureCluster) -> None:
    assert not secure.client(1, "admin").ask(creation("configured"), 7).topics[0].error_code
    for number in (1, 2):
        config = IncrementalAlterableConfig(name="retention.ms", config_operation=0, value=str(1000 + number))
        topic = IncrementalAlterConfigsResource(resource_type=2, resource_name="configured", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[topic])
        for user, code in (("alice", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("admin", ErrorCode.NONE)):
            assert secure.client(number, user).ask(request, 1).responses[0].error_code == code


def test_a_node_that_comes_back_is_taken_in(secure: SecureCluster) -> None:
    """It registers with the other kind, follows it, and is in sync again."""
    assert not secure.client(1, "admin").ask(creation("kept"), 7).topics[0].error_code
    await_in_sync(secure, "kept")
    secure.nodes[1].stop()
    eventually(lambda: secure.isr("kept") == [1], "the stopped node to be out of sync")
    secure.nodes[1].start()
    secure.await_both()
    await_in_sync(secure, "kept")


def test_no_password_is_in_a_log(secure: SecureCluster) -> None:
    kbroker = next(node for node in secure.nodes if isinstance(node, KbrokerNode))
    assert "kbroker" in kbroker.log()
    assert not any(password in kbroker.log() for password in PASSWORDS.values())
