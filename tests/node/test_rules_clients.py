"""Rules in Python, as stock clients meet them: on one node, and on three."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.acls import create_acls, delete_acls, describe_acls
from kbroker.client.configs import ConfigChange, Operation, alter_configs
from kbroker.client.configs import ResourceType as ConfigResourceType
from kbroker.client.errors import AuthenticationFailed, ConnectionFailed, ResponseError
from kbroker.client.properties import ClientProperties
from kbroker.client.quotas import alter_quotas
from kbroker.client.security import security_of
from kbroker.client.topics import NewTopic, create_topics
from kbroker.errors import ErrorCode, FatalError
from kbroker.rules import (
    NOT_MINE,
    Acl,
    AclChange,
    AclFilter,
    AclKeeper,
    AclOperation,
    AclPermission,
    AclRemoval,
    Action,
    Authorizer,
    Decision,
    KafkaPrincipal,
    Login,
    Password,
    PatternType,
    Peer,
    Quota,
    QuotaCallback,
    QuotaClient,
    QuotaKind,
    ResourceType,
    ScramCredential,
    ScramLogin,
    ScramMechanism,
    Token,
    TokenUser,
)
from kbroker.testing import RunningBroker, running_broker, running_cluster

SECONDS = 180


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that comes soon."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {SECONDS} s"
        time.sleep(0.02)


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


class Delivered:
    """Sends one record after the other by confluent-kafka, and gives each one's error."""

    def __init__(self, broker: RunningBroker, **more: Any) -> None:
        ck = pytest.importorskip("confluent_kafka")
        given = broker.librdkafka_properties() if broker._security else {"bootstrap.servers": broker.bootstrap_servers}
        self._producer = ck.Producer({**given, "linger.ms": 0, **more})

    def __call__(self, topic: str) -> str | None:
        """The name of the error of a record, None for none."""
        errors: list[Any] = []
        try:
            self._producer.produce(topic, b"v" * 100, on_delivery=lambda error, _: errors.append(error))
        except Exception as error:  # librdkafka knows already
            errors.append(error.args[0])
        assert self._producer.flush(SECONDS) == 0
        self.poll()
        return errors[0].name() if errors[0] is not None else None

    def poll(self) -> None:
        """Hear of what has happened."""
        self._producer.poll(0)


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


def test_kafka_python_reads_and_writes_what_it_may() -> None:
    kafka = pytest.importorskip("kafka")
    rules = Changing()
    with running_broker(authorizer=rules) as broker:
        assert Delivered(broker)("a") is None

        allowed = kafka.KafkaConsumer(
            "a",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=SECONDS * 1000,
        )
        assert next(allowed).value == b"v" * 100
        allowed.close()
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            producer.send("b", b"v").get(SECONDS)
        producer.close(timeout=0)


def creation(broker: RunningBroker, topic: str) -> str | None:
    """Create a topic; the name of the error, None for none."""
    with Client(broker.bootstrap_servers) as client:
        result = create_topics(client, [NewTopic(topic, 1, 1)])[topic]
    return result.name if isinstance(result, ResponseError) else None


def fails(_: object) -> Any:
    raise RuntimeError("broken")


def exits(_: object) -> Any:
    raise SystemExit


def nonsense(_: object) -> Any:
    return "yes"


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
            until(lambda: creation(broker, "t") is None, "the rule is asked again")
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
        until(lambda: send("a") == "TOPIC_AUTHORIZATION_FAILED", "the third refresh")


# --- Logins ---------------------------------------------------------------------------------------------------------


def logged_in(broker: RunningBroker, user: str, password: str) -> bool:
    """Whether a user comes in with a password."""
    return gets_in(broker, "PLAIN", user, password, "Invalid username or password")


def gets_in(broker: RunningBroker, mechanism: str, user: str, password: str, refusal: str) -> bool:
    given = broker.client_properties("alice", mechanism=mechanism)
    line = given["sasl.jaas.config"].replace('"alice"', f'"{user}"').replace("alice-secret", password)
    properties = ClientProperties({**given, "sasl.jaas.config": line})
    with Client(properties["bootstrap.servers"], security=security_of(properties), timeout=60) as client:
        try:
            client.refresh(())
        except AuthenticationFailed as error:
            assert refusal in str(error)
            return False
    return True


def check(login: Login) -> str | None:
    """Passwords are names backwards; ``bob`` is another in the cluster."""
    if login.password != login.username[::-1]:
        return None
    return {"bob": "robert"}.get(login.username, login.username)


async def check_later(login: Login) -> str | None:
    """The same rule as ``check``, as a coroutine."""
    return check(login)


@pytest.mark.parametrize("rule", [check, check_later])
def test_logins_are_checked_by_a_rule(rule: Any) -> None:
    asked: list[Action] = []

    def authorize(action: Action) -> bool:
        asked.append(action)
        return True

    with running_broker(security="sasl_plaintext", authenticator=rule, authorizer=authorize) as broker:
        assert logged_in(broker, "alice", "ecila") and logged_in(broker, "bob", "bob")
        assert not logged_in(broker, "alice", "alice-secret") and not logged_in(broker, "eve", "x")
        properties = broker.librdkafka_properties("alice", mechanism="PLAIN")
        send = Delivered(broker, **{**properties, "sasl.username": "bob", "sasl.password": "bob"})
        assert send("t") is None
        assert {str(action.principal) for action in asked if action.api == "Produce"} == {"User:robert"}
        assert not [record for record in broker.logs if "ecila" in record.getMessage()]


@pytest.mark.parametrize("rule", [fails, exits, lambda login: 5, lambda login: "", lambda login: "a\nb"])
def test_a_hostile_authenticator_lets_nobody_in(rule: Any) -> None:
    with running_broker(security="sasl_plaintext", authenticator=rule) as broker:
        assert not logged_in(broker, "alice", "alice-secret")
        told = [record.getMessage() for record in broker.logs if record.name == "kbroker.rules"]
        assert len(told) == 1 and "alice-secret" not in told[0]
        assert not [record for record in broker.logs if record.exc_info]


def test_an_authenticator_that_hangs_holds_up_nobody_else() -> None:
    gate = threading.Event()

    def hang(login: Login) -> bool:
        if login.username == "stuck":
            gate.wait()
        return True

    hang.timeout_seconds = 2.0  # type: ignore[attr-defined]
    try:
        with running_broker(security="sasl_plaintext", authenticator=hang) as broker:
            assert not logged_in(broker, "stuck", "x") and logged_in(broker, "alice", "x")
    finally:
        gate.set()


# --- ACLs of its own ------------------------------------------------------------------------------------------------


class Kept(AclKeeper):
    """Keeps ACLs in memory; topics are read and written by them, and all else is allowed."""

    def __init__(self) -> None:
        self.kept: list[Acl] = []
        self.changes_seen: list[AclChange | AclRemoval] = []

    def authorize(self, action: Action) -> Decision:
        if action.resource_type is not ResourceType.TOPIC or action.operation is AclOperation.DESCRIBE:
            return Decision.ALLOWED
        wanted = AclFilter(ResourceType.TOPIC, action.name, PatternType.MATCH, str(action.principal))
        allowed = any(wanted.matches(acl) and acl.operation is action.operation for acl in self.kept)
        return Decision.ALLOWED if allowed else Decision.DENIED

    def acls(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self.kept if wanted.matches(acl)]

    async def create_acls(self, change: AclChange) -> list[str | None]:
        self.changes_seen.append(change)
        self.kept += [acl for acl in change.acls if acl.resource_name != "secret"]
        return ["nobody may" if acl.resource_name == "secret" else None for acl in change.acls]

    def delete_acls(self, removal: AclRemoval) -> list[list[Acl]]:
        self.changes_seen.append(removal)
        gone = [self.acls(wanted) for wanted in removal.filters]
        self.kept = [acl for acl in self.kept if not any(acl in found for found in gone)]
        return gone


def may_write(topic: str, principal: str = "User:ANONYMOUS") -> Acl:
    words = AclOperation.WRITE, AclPermission.ALLOW
    return Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, principal, "*", *words)


def test_an_authorizer_keeps_acls_of_its_own() -> None:
    rules = Kept()
    with running_broker(authorizer=rules) as broker, Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic("orders")])
        send = Delivered(broker)
        assert send("orders") == "TOPIC_AUTHORIZATION_FAILED"
        wanted = [may_write("secret"), may_write("orders"), may_write("other", "nobody")]
        refused = dict(create_acls(client, wanted))
        assert list(refused) == [wanted[0], wanted[2]] and "nobody may" in str(refused[wanted[0]])
        assert "Could not parse principal" in str(refused[wanted[2]])
        anonymous = KafkaPrincipal("User", "ANONYMOUS")
        assert rules.changes_seen == [AclChange(anonymous, "127.0.0.1", (wanted[0], wanted[1]))]
        assert describe_acls(client, AclFilter()) == [may_write("orders")]
        assert describe_acls(client, AclFilter(resource_name="x")) == []
        assert broker.in_broker(lambda node: len(node.services.metadata.image.principals.acls)) == 0
        until(lambda: send("orders") is None, "it holds at once")
        assert delete_acls(client, [AclFilter(resource_name="orders")]) == [may_write("orders")]
        until(lambda: send("orders") == "TOPIC_AUTHORIZATION_FAILED", "the removal holds")
        assert describe_acls(client, AclFilter()) == []


@pytest.mark.parametrize("answer", [fails, exits, lambda question: 5, lambda question: "x", lambda question: [1, 2]])
def test_a_hostile_keeper_of_acls_is_an_error_for_the_client(answer: Any) -> None:
    rules = SimpleNamespace(authorize=lambda action: True, acls=answer, create_acls=answer, delete_acls=answer)
    with running_broker(authorizer=rules) as broker, Client(broker.bootstrap_servers) as client:
        for ask in (
            lambda: describe_acls(client, AclFilter()),
            lambda: raise_first(create_acls(client, [may_write("orders")])),
            lambda: delete_acls(client, [AclFilter()]),
        ):
            with pytest.raises(ResponseError) as caught:
                ask()
            assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
        told = [record.getMessage() for record in broker.logs if record.name == "kbroker.rules"]
        assert len(told) == 3 and all("the client is told UNKNOWN_SERVER_ERROR" in text for text in told)


def raise_first(refused: Sequence[tuple[Acl, ResponseError]]) -> None:
    for _, error in refused:
        raise error


def test_a_keeper_has_all_methods_or_none() -> None:
    rules = SimpleNamespace(authorize=lambda action: True, acls=lambda wanted: [])
    with pytest.raises(FatalError, match="it has acls, and not create_acls and delete_acls"):
        running_broker(authorizer=rules).__enter__()


# --- Credentials of SCRAM -------------------------------------------------------------------------------------------

SCRAM_USERS = {
    mechanism: {"robert": ScramCredential.from_password(mechanism, "bob", iterations=8192)}
    for mechanism in ScramMechanism
}


def credential(login: ScramLogin) -> ScramCredential | None:
    return SCRAM_USERS[login.mechanism].get(login.username)


async def credential_later(login: ScramLogin) -> ScramCredential | None:
    return credential(login)


def weak(login: ScramLogin) -> ScramCredential:
    return replace(SCRAM_USERS[login.mechanism]["robert"], iterations=1)


def of_another_hash(login: ScramLogin) -> ScramCredential:
    [other] = [each for each in ScramMechanism if each is not login.mechanism]
    return SCRAM_USERS[other]["robert"]


def scram_logged_in(broker: RunningBroker, mechanism: ScramMechanism, user: str, password: str) -> bool:
    """Whether a user gets in by SCRAM."""
    return gets_in(broker, mechanism.mechanism_name, user, password, "invalid credentials")


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("rule", [credential, credential_later])
def test_users_of_scram_are_those_that_a_rule_knows(rule: Any, mechanism: ScramMechanism) -> None:
    asked: list[Action] = []

    def authorize(action: Action) -> bool:
        asked.append(action)
        return True

    with running_broker(security="sasl_plaintext", scram_credentials=rule, authorizer=authorize) as broker:
        assert scram_logged_in(broker, mechanism, "robert", "bob")
        properties = broker.librdkafka_properties("alice", mechanism=mechanism.mechanism_name)
        send = Delivered(broker, **{**properties, "sasl.username": "robert", "sasl.password": "bob"})
        assert send("t") is None
        assert {str(action.principal) for action in asked if action.api == "Produce"} == {"User:robert"}
        # Alice is a user of the cluster, and the rule does not know her.
        assert not scram_logged_in(broker, mechanism, "alice", "alice-secret")
        assert not scram_logged_in(broker, mechanism, "robert", "alice-secret")


@pytest.mark.parametrize("rule", [fails, exits, lambda login: True, lambda login: "bob", weak, of_another_hash])
def test_hostile_credentials_let_nobody_in(rule: Any) -> None:
    with running_broker(security="sasl_plaintext", scram_credentials=rule) as broker:
        assert not scram_logged_in(broker, ScramMechanism.SCRAM_SHA_256, "robert", "bob")
        told = [record.getMessage() for record in broker.logs if record.name == "kbroker.rules"]
        assert len(told) == 1 and "the client is not let in" in told[0]
        assert not [record for record in broker.logs if record.exc_info]


# --- Principals -----------------------------------------------------------------------------------------------------


def build(peer: Peer) -> Any:
    """Teams by the unit of a certificate's subject, or by the name of a user."""
    if peer.subject == "CN=alice" and peer.certificate is not None:
        return KafkaPrincipal("Team", "blue")
    if peer.principal.name == "alice":
        return "Team:red"
    if peer.principal.name == "eve":
        return None
    return NOT_MINE


class Seen:
    """Allows everything, and keeps the principals of Produce."""

    def __init__(self) -> None:
        self.producers: set[str] = set()

    def authorize(self, action: Action) -> bool:
        if action.api == "Produce":
            self.producers.add(str(action.principal))
        return True


@pytest.mark.parametrize(("security", "expected"), [("ssl", "Team:blue"), ("sasl_plaintext", "Team:red")])
def test_principals_are_built_by_a_rule(security: Any, expected: str) -> None:
    if security == "ssl":
        pytest.importorskip("cryptography")
    seen = Seen()
    peers: list[Peer] = []

    def noted(peer: Peer) -> Any:
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
        with Client(broker.bootstrap_servers, timeout=1) as client, pytest.raises(ConnectionFailed):
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
        until(lambda: one("t") is None and throttled, "the first client is throttled")
        assert throttled[0][0] == "one" and throttled[0][1] > 0
        throttled.clear()
        assert other("t") is None

        def is_throttled() -> bool:
            other.poll()
            return bool(throttled)

        until(is_throttled, "the second client, which shares the limit, is throttled")
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
        until(lambda: client.refresh(()) is not None and seen[-1] == (1, [1], ["orders"], [1, 1, 1], []), "it is seen")


@pytest.mark.parametrize("rule", [fails, lambda client: None, lambda client: Quota(-1.0), lambda client: Quota(True)])
def test_a_hostile_quota_callback_leaves_the_quotas_that_are_set(rule: Any) -> None:
    with running_broker(quota_callback=rule) as broker:
        with Client(broker.bootstrap_servers) as client:
            alter_quotas(client, {"client-id": "p"}, {"producer_byte_rate": 10.0})
        throttled: list[Any] = []
        send = Delivered(broker, **{"client.id": "p", "throttle_cb": throttled.append})
        until(lambda: send("t") is None and throttled, "the client is throttled")
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
        assert caught.value.name == "INVALID_REQUEST" and name in str(caught.value)


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
@pytest.mark.parametrize("name", NAMES)
def test_no_rule_is_named_by_the_older_request(plain_broker: RunningBroker, name: str) -> None:
    admin = pytest.importorskip("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": plain_broker.bootstrap_servers})
    resource = admin.ConfigResource("broker", "1", set_config={name: "python:os:system"})
    (future,) = client.alter_configs([resource]).values()
    with pytest.raises(Exception, match="INVALID_REQUEST"):
        future.result(SECONDS)


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
            client.create_topics([ck.admin.NewTopic(name, 3, 3)])[name].result(SECONDS)
            with pytest.raises(ck.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                client.create_topics([ck.admin.NewTopic("red", 3, 3)])["red"].result(SECONDS)
        errors: list[Any] = []
        producer = ck.Producer({**given, "bootstrap.servers": cluster.bootstrap_servers})
        for number in range(30):
            producer.produce(
                f"blue-{number % 3 + 1}", b"v", partition=number % 3, on_delivery=lambda e, _: errors.append(e)
            )
        assert producer.flush(SECONDS) == 0 and errors == [None] * 30


# --- Tokens ---------------------------------------------------------------------------------------------------------


def validate(token: Token) -> TokenUser | None:
    """Tokens of this test are good for a minute."""
    name, _, secret = token.value.reveal().partition("~")
    return TokenUser(name, time.time() + 60) if Password(secret) == "geheim" else None


def sent_with_token(broker: RunningBroker, token: str) -> str | None:
    """Send a record with a token; the name of the error."""
    ck = pytest.importorskip("confluent_kafka")
    failures: list[Any] = []
    properties = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 60),
        "error_cb": failures.append,
        "message.timeout.ms": SECONDS * 1000,
    }
    producer = ck.Producer(properties)
    delivered: list[Any] = []
    producer.produce("t", b"v", on_delivery=lambda error, _: delivered.append(error))
    until(lambda: producer.poll(0.05) or delivered or failures, "the client hears of its token")
    producer.purge()
    producer.poll(0)
    return None if delivered and delivered[0] is None else failures[0].name()


def test_tokens_are_judged_by_a_rule() -> None:
    seen = Seen()
    with running_broker(security="sasl_plaintext", token_validator=validate, authorizer=seen) as broker:
        assert sent_with_token(broker, "alice~geheim") is None and seen.producers == {"User:alice"}
        assert sent_with_token(broker, "alice~wrong") == "_AUTHENTICATION"


@pytest.mark.parametrize("rule", [fails, exits, lambda token: True, lambda token: TokenUser("a", float("inf"))])
def test_a_hostile_token_validator_lets_nobody_in(rule: Any) -> None:
    with running_broker(security="sasl_plaintext", token_validator=rule) as broker:
        assert sent_with_token(broker, "alice~geheim") == "_AUTHENTICATION"
        told = [record.getMessage() for record in broker.logs if record.name == "kbroker.rules"]
        assert len(told) == 1 and "geheim" not in told[0]
