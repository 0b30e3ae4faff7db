"""Rules in Python, as stock clients meet them: on one node, and on three."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.configs import ConfigChange, Operation, alter_configs
from kbroker.client.configs import ResourceType as ConfigResourceType
from kbroker.client.errors import ConnectionFailed, ResponseError
from kbroker.client.quotas import alter_quotas
from kbroker.client.topics import NewTopic, create_topics
from kbroker.rules import (
    NOT_MINE,
    Action,
    Authorizer,
    ConnectingClient,
    Decision,
    KafkaPrincipal,
    Quota,
    QuotaCallback,
    QuotaClient,
    QuotaKind,
    ResourceType,
)
from kbroker.testing import RunningBroker, running_broker, running_cluster
from tests.node.rules_harness import Delivered, Seen, exits, fails, nonsense
from tests.patience import LONG, eventually


class Changing(Authorizer):
    """Topics whose names are in a set are everybody's; a waiting test hears of what was asked."""

    def __init__(self) -> None:
        self.topics = {"a"}
        self.actions: list[Action] = []

    def authorize(self, action: Action) -> Decision:
        self.actions.append(action)
        if action.resource_type is not ResourceType.TOPIC or action.name in self.topics:
            return Decision.ALLOWED
        return Decision.DENIED


def test_an_authorizer_is_asked_and_its_changes_hold_while_clients_are_connected() -> None:
    rules = Changing()
    rules.keep_seconds = 3600  # nothing but an invalidation makes a difference
    with running_broker(authorizer=rules) as broker:
        send = Delivered(broker)
        assert [send("a") for _ in range(100)] == [None] * 100  # short ways serve most of them
        asked = len(rules.actions)
        assert [send("a") for _ in range(20)] == [None] * 20
        assert len(rules.actions) - asked <= 1
        rules.topics = set()
        rules.invalidate()
        assert send("a") == "TOPIC_AUTHORIZATION_FAILED"
        written = [action for action in rules.actions if action.api == "Produce"]
        assert {(str(action.principal), action.listener, action.client_id) for action in written} == {
            ("User:ANONYMOUS", "PLAINTEXT", "rdkafka")
        }


def creation(broker: RunningBroker, topic: str) -> str | None:
    """Create a topic; the name of the error, None for none."""
    with Client(broker.bootstrap_servers) as client:
        result = create_topics(client, [NewTopic(topic, 1, 1)])[topic]
    return result.name if isinstance(result, ResponseError) else None


@pytest.mark.parametrize("rule", [fails, exits, nonsense])
def test_a_hostile_authorizer_denies_and_the_node_lives(rule: Any) -> None:
    with running_broker(authorizer=rule) as broker:
        for _ in range(2):
            assert creation(broker, "t") == "TOPIC_AUTHORIZATION_FAILED"
        told = [record for record in broker.logs if record.name == "kbroker.rules"]
        assert len(told) == 1 and told[0].levelno == logging.ERROR and told[0].exc_info is None
        assert not [record for record in broker.logs if record.exc_info]


def test_an_authorizer_that_hangs_denies_and_the_node_answers_others() -> None:
    gate = threading.Event()

    def hang(action: Action) -> bool:
        if action.name == "stuck":
            gate.wait()
        return action.resource_type is ResourceType.TOPIC

    try:
        with running_broker(authorizer=hang) as broker:
            assert creation(broker, "stuck") == "TOPIC_AUTHORIZATION_FAILED"
            with Client(broker.bootstrap_servers) as client:
                client.refresh(())  # asks nobody
            eventually(lambda: creation(broker, "t") is None, "the rule is asked again")
    finally:
        gate.set()


def test_rules_are_refreshed_before_the_node_serves_and_again() -> None:
    class Refreshed(Changing):
        refresh_seconds = 0.05
        keep_seconds = 3600
        refreshed = 0

        def refresh(self) -> None:
            self.refreshed += 1
            self.topics = {"a"} if self.refreshed < 3 or self.refreshed > 1000 else set()

    rules = Refreshed()
    with running_broker(authorizer=rules) as broker:
        send = Delivered(broker)
        assert rules.refreshed >= 1
        eventually(lambda: send("a") == "TOPIC_AUTHORIZATION_FAILED", "the third refresh")


# --- Principals -----------------------------------------------------------------------------------------------------


def build(peer: ConnectingClient) -> Any:
    """Teams by the unit of a certificate's subject, or by the name of a user."""
    if peer.subject == "CN=alice" and peer.certificate is not None:
        return KafkaPrincipal("Team", "blue")
    if peer.principal.name == "alice":
        return "Team:red"
    if peer.principal.name == "eve":
        return None
    return NOT_MINE


@pytest.mark.parametrize(("security", "expected"), [("ssl", "Team:blue"), ("sasl_plaintext", "Team:red")])
def test_principals_are_built_by_a_rule(security: Any, expected: str) -> None:
    if security == "ssl":
        pytest.importorskip("cryptography")
    seen = Seen()
    peers: list[ConnectingClient] = []

    def noted(peer: ConnectingClient) -> Any:
        peers.append(peer)
        return build(peer)

    with running_broker(security=security, principal_builder=noted, authorizer=seen) as broker:
        send = Delivered(broker, **broker.librdkafka_properties("alice"))
        assert send("t") is None
        names = broker.in_broker(lambda node: {each.name for each in node.listeners})
    assert seen.producers == {expected}
    assert {peer.listener for peer in peers} <= names and peers, "the rule knows by which listener they come (KIP-282)"


@pytest.mark.parametrize("rule", [fails, exits, lambda peer: 5, lambda peer: "alice", lambda peer: ("User", "a")])
def test_a_hostile_principal_builder_lets_nobody_in(rule: Any) -> None:
    with running_broker(principal_builder=rule) as broker:
        with Client(broker.bootstrap_servers, timeout=LONG) as client, pytest.raises(ConnectionFailed):
            client.refresh(())
        told = [record for record in broker.logs if record.name == "kbroker.rules"]
        assert len(told) == 1 and told[0].exc_info is None


# --- Quotas ---------------------------------------------------------------------------------------------------------


class Quotas(QuotaCallback):
    """A quota of ``limit`` bytes a second that all clients share."""

    keep_seconds = 3600
    limit = 1e9

    def __init__(self) -> None:
        self.asked: list[QuotaClient] = []

    def quota(self, client: QuotaClient) -> Quota | Decision:
        self.asked.append(client)
        if client.kind is not QuotaKind.PRODUCE:
            return NOT_MINE
        return Quota(self.limit, "everybody")


def test_a_quota_of_ones_own_throttles_and_is_shared_and_changes() -> None:
    rules = Quotas()
    with running_broker(quota_callback=rules) as broker:
        throttled: list[tuple[str, float]] = []

        def sender(name: str) -> Delivered:
            def on_throttle(event: Any) -> None:
                throttled.append((name, event.throttle_time))

            return Delivered(broker, **{"client.id": name, "throttle_cb": on_throttle})

        one, other = sender("one"), sender("other")
        assert one("t") is None and other("t") is None and throttled == []
        rules.limit = 10.0
        rules.invalidate()
        eventually(lambda: one("t") is None and throttled, "the first client is throttled")
        assert throttled[0][0] == "one" and throttled[0][1] > 0
        throttled.clear()
        assert other("t") is None

        def is_throttled() -> bool:
            other.poll()
            return bool(throttled)

        eventually(is_throttled, "the second client, which shares the limit, is throttled")
        assert throttled[0][0] == "other"
        assert {client.client_id for client in rules.asked} >= {"one", "other"}
        assert {client.kind for client in rules.asked} == set(QuotaKind)


def test_a_quota_callback_sees_the_cluster_as_it_is() -> None:
    seen: list[tuple[int, list[int], list[str], list[int | None], list[int | None]]] = []

    def quota(client: QuotaClient) -> Decision:
        cluster = client.cluster
        told = cluster.node_id, cluster.brokers(), cluster.topics()
        seen.append((*told, cluster.leaders("orders"), cluster.leaders("nowhere")))
        return NOT_MINE

    with running_broker(quota_callback=quota) as broker, Client(broker.bootstrap_servers) as client:
        client.refresh(())
        assert seen[0][:3] == (1, [1], []) and seen[0][3:] == ([], [])
        create_topics(client, [NewTopic("orders", 3)])
        # Answers are kept for a second.
        eventually(
            lambda: client.refresh(()) is not None and seen[-1] == (1, [1], ["orders"], [1, 1, 1], []), "it is seen"
        )


@pytest.mark.parametrize("rule", [fails, lambda client: None, lambda client: Quota(-1.0), lambda client: Quota(True)])
def test_a_hostile_quota_callback_leaves_the_quotas_that_are_set(rule: Any) -> None:
    with running_broker(quota_callback=rule) as broker:
        with Client(broker.bootstrap_servers) as client:
            alter_quotas(client, {"client-id": "p"}, {"producer_byte_rate": 10.0})
        throttled: list[Any] = []
        send = Delivered(broker, **{"client.id": "p", "throttle_cb": throttled.append})
        eventually(lambda: send("t") is None and throttled, "the client is throttled")
        told = [record for record in broker.logs if record.name == "kbroker.rules"]
        assert len(told) == 1 and "the quotas that are set hold" in told[0].getMessage()


# --- Never over the wire --------------------------------------------------------------------------------------------

NAMES = [
    "alter.config.policy.class.name",
    "authorizer.class.name",
    "create.topic.policy.class.name",
    "group.consumer.assignors",
    "group.share.assignors",
    "group.streams.assignors",
    "group.streams.topology.description.plugin.class",
    "listener.name.plaintext.create.topic.policy.class.name",
    "client.quota.callback.class",
    "principal.builder.class",
    "listener.name.plaintext.principal.builder.class",
    "sasl.server.callback.handler.class",
    "listener.name.plaintext.plain.sasl.server.callback.handler.class",
    "listener.name.plaintext.oauthbearer.sasl.server.callback.handler.class",
    "metric.reporters",
]


@pytest.fixture(scope="module")
def plain_broker() -> Iterator[RunningBroker]:
    """A broker without rules."""
    with running_broker() as broker:
        yield broker


@pytest.mark.parametrize("node", ["1", ""])
@pytest.mark.parametrize("name", NAMES)
def test_no_rule_is_named_over_the_wire(plain_broker: RunningBroker, name: str, node: str) -> None:
    for value in ("python:os:system", "python:/tmp/x.py:f", "file:/tmp/x"):
        change = ConfigChange(name, Operation.SET, value)
        with Client(plain_broker.bootstrap_servers) as client, pytest.raises(ResponseError) as caught:
            alter_configs(client, ConfigResourceType.BROKER, node, [change])
        assert caught.value.name == "INVALID_REQUEST"
        assert name.removeprefix("listener.name.plaintext.") in str(caught.value)  # Kafka leaves it out


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
@pytest.mark.parametrize("name", NAMES)
def test_no_rule_is_named_by_the_older_request(plain_broker: RunningBroker, name: str) -> None:
    admin = pytest.importorskip("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": plain_broker.bootstrap_servers})
    resource = admin.ConfigResource("broker", "1", set_config={name: "python:os:system"})
    (future,) = client.alter_configs([resource]).values()
    with pytest.raises(Exception, match="INVALID_REQUEST"):
        future.result(LONG)


# --- Three nodes ----------------------------------------------------------------------------------------------------

OF_THREE = """
from kbroker.rules import Decision, NOT_MINE, ResourceType

def build(peer):
    return "Team:blue" if peer.principal.name == "client" else NOT_MINE

def authorize(action):
    if str(action.principal) != "Team:blue":
        return Decision.DENIED
    if action.resource_type is ResourceType.CLUSTER:
        return Decision.DENIED  # who may CREATE there may create any topic
    return action.resource_type is not ResourceType.TOPIC or action.name.startswith("blue-")
"""


@pytest.mark.slow
def test_a_built_principal_is_judged_by_each_of_three_nodes(tmp_path: Path) -> None:
    """The controller judges requests that other nodes pass on: it is told the principal that they have built."""
    ck = pytest.importorskip("confluent_kafka")
    pytest.importorskip("cryptography")
    file = tmp_path / "rules_of_three.py"
    file.write_text(OF_THREE)
    properties = {
        "authorizer.class.name": f"python:{file}:authorize",
        "principal.builder.class": f"python:{file}:build",
    }
    with running_cluster(3, properties, secure=True) as cluster:
        given = cluster.librdkafka_properties("client")
        for node in cluster.nodes:  # whichever the controller is
            client = ck.admin.AdminClient({**given, "bootstrap.servers": node.bootstrap_servers})
            name = f"blue-{node.id}"
            client.create_topics([ck.admin.NewTopic(name, 3, 3)])[name].result(LONG)
            with pytest.raises(ck.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                client.create_topics([ck.admin.NewTopic("red", 3, 3)])["red"].result(LONG)
        errors: list[Any] = []
        producer = ck.Producer({**given, "bootstrap.servers": cluster.bootstrap_servers})
        for number in range(30):
            producer.produce(
                f"blue-{number % 3 + 1}", b"v", partition=number % 3, on_delivery=lambda e, _: errors.append(e)
            )
        assert producer.flush(LONG) == 0 and errors == [None] * 30
