"""Signing in with the cluster's own users; each session sees and may do what its user may."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.client import Client
from kbroker.client.acls import create_acls
from kbroker.client.groups import commit_offsets
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of
from kbroker.security.authorizer.acls import Acl
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.security.sasl.jaas import parse_jaas
from kbroker.testing import RunningBroker, running_broker
from kbroker.tools.console.api.session import user_properties
from kbroker.tools.console.sessions import IDLE_SECONDS, MAX_SESSIONS, Sessions
from kbroker.tools.console.state import BackOff
from kbroker.types import TopicPartition
from tests.console.console_process import ConsoleProcess, console_process
from tests.patience import LONG, eventually


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that asks for users, and whose rules let the admin do everything, and nobody else anything."""
    explorer = {"kbroker.explorer.listener": "http://127.0.0.1:0"}
    with running_broker(explorer, security="sasl_plaintext", super_users=["admin"]) as running:
        yield running


@pytest.fixture
def console(broker: RunningBroker, tmp_path: Path) -> Iterator[ConsoleProcess]:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n")
    explorer = f"127.0.0.1:{broker.in_broker(lambda node: node.explorer_port)}"
    words = ("-b", broker.bootstrap_servers, "--command-config", str(config), "--sign-in", "--writes")
    with console_process(*words, "--explorer", explorer) as running:
        yield running


def test_nothing_is_shown_before(console: ConsoleProcess) -> None:
    assert console.enter()["sign_in"] is True
    for path in (
        "overview",
        "topics",
        "topic?name=x",
        "groups",
        "records?topic=x",
        "records/tail?topic=x",
        "acls",
        "records?partitions=x",
    ):
        assert console.get(path).status == 401, path
    assert console.post("topic/create", {"name": "x"}).status == 401


def test_the_explorer_is_for_those_who_may_read_everything(console: ConsoleProcess) -> None:
    console.enter()
    for path in ("explorer/nodes", "explorer/events", "explorer/exchange?node=1&number=1", "explorer/saved.exchanges"):
        assert console.get(path).status == 401, path
    console.post("sign-in", {"user": "alice", "password": "alice-secret"})
    for path in ("explorer/nodes", "explorer/events", "explorer/exchange?node=1&number=1", "explorer/saved.exchanges"):
        answer = console.get(path)
        assert answer.status == 403 and "may CLUSTER_ACTION" in answer.error, path
    console.post("sign-out", {})
    console.post("sign-in", {"user": "admin", "password": "admin-secret"})
    assert console.get("explorer/nodes").status == 200
    with console.events("explorer/events") as events:
        next(told for name, told in events if name == "nodes" and not told["silent"])  # the node is followed
        console.post("topic/create", {"name": "seen"})
        made = next(told for name, told in events if name == "exchange" and told["api"] == "CreateTopics")
    assert made["principal"] == "User:admin"
    fields = console.get("explorer/exchange", node=made["node"], run=made["run"], number=made["exchange"]).json[
        "request_fields"
    ]
    assert any("seen" in row["text"] for row in fields["rows"])
    login = console.get("explorer/saved.exchanges").body
    assert b'"kbroker-exchanges"' in login and b"admin-secret" not in login


def test_each_user_is_the_clusters_own(console: ConsoleProcess) -> None:
    console.enter()
    before = console.cookie
    answer = console.post("sign-in", {"user": "admin", "password": "admin-secret"})
    assert answer.status == 200
    assert (answer.json["user"], answer.json["sign_in"]) == ("admin", False)
    assert console.cookie != before, "the session has another name, so that nobody can have prepared it"
    assert console.post("topic/create", {"name": "admins-own"}).status == 200
    told = console.get("acls/check", principal="User:alice", operation="WRITE", name="admins-own").json
    assert (told["allowed"], told["reason"]) == (False, "no ACL allows it")
    assert {user["user"] for user in console.get("users").json["users"]} >= {"admin", "alice"}
    assert console.post("sign-out", {}).json["sign_in"] is True
    assert console.get("topics").status == 401
    console.post("sign-in", {"user": "alice", "password": "alice-secret"})
    assert console.get("topics", filter="admins-own").json["total"] == 0, "alice may not see it"
    assert console.post("topic/create", {"name": "alices"}).status == 403

    def audit() -> list[tuple[str, str, str]]:
        return [(line["user"], line["action"], line["outcome"].split(":")[0]) for line in console.audit()]

    eventually(lambda: len(audit()) == 5, "each is audited")
    assert audit() == [
        ("admin", "sign-in", "done"),
        ("admin", "create-topic", "done"),
        ("admin", "sign-out", "done"),
        ("alice", "sign-in", "done"),
        ("alice", "create-topic", "failed"),
    ]
    assert "secret" not in "".join(console.log)


def test_a_group_is_described_to_who_may_not_read_its_topic(broker: RunningBroker, console: ConsoleProcess) -> None:
    """For how long its next record has waited is not told then."""
    described = ((ResourceType.TOPIC, "hidden"), (ResourceType.GROUP, "readers"))
    acls = [
        Acl(kind, name, PatternType.LITERAL, "User:alice", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
        for kind, name in described
    ]
    console.enter()
    console.post("sign-in", {"user": "admin", "password": "admin-secret"})
    console.post("topic/create", {"name": "hidden", "partitions": 1})
    assert console.post("records/produce", {"topic": "hidden", "value": "x"}).status == 200
    security = security_of(ClientProperties(broker.client_properties("admin")))
    with Client(broker.bootstrap_servers, security=security) as admin:
        assert create_acls(admin, acls) == []
        commit_offsets(admin, "readers", {TopicPartition("hidden", 0): 0})
    [seen] = console.get("group", group="readers").json["partitions"]
    assert (seen["lag"], seen["waiting_since"] is None) == (1, False)
    console.post("sign-out", {})
    console.post("sign-in", {"user": "alice", "password": "alice-secret"})
    told = console.get("group", group="readers").json
    [seen] = told["partitions"]
    assert (seen["lag"], seen["waiting_since"]) == (1, None)
    assert told["reasons"][0]["text"] == "Nobody is in the group, and 1 record waits for it."
    waiting: list[int] = []

    def is_told() -> bool:
        """Whether the broker was not passed over for being slow to answer."""
        waiting[:] = [row["waiting"] for row in console.get("groups/lags").json["rows"]]
        return bool(waiting)

    eventually(is_told, "the lag")
    assert waiting == [1]


def test_a_live_tail_ends_with_its_session(console: ConsoleProcess) -> None:
    console.enter()
    console.post("sign-in", {"user": "admin", "password": "admin-secret"})
    console.post("topic/create", {"name": "followed"})
    connection = http.client.HTTPConnection(console.host, timeout=LONG)
    connection.request("GET", "/api/records/tail?topic=followed", headers={"Cookie": console.cookie})
    response = connection.getresponse()
    assert response.readline() == b"retry: 1000\n"
    console.post("sign-out", {})
    assert response.read() is not None, "the answer comes to its end"
    connection.close()


def test_a_wrong_password_is_refused_and_audited(console: ConsoleProcess) -> None:
    console.enter()
    for user, password in (("admin", "wrong"), ("nobody", "x"), ('a" password="', 'b"; x')):
        answer = console.post("sign-in", {"user": user, "password": password})
        assert answer.status == 401
        assert answer.error == "the cluster does not know this user, or the password is another"
    assert [line["outcome"] for line in console.audit()] == ["refused"] * 3
    assert console.get("topics").status == 401


WORDS = ["plain", 'with "quotes"', "back\\slash\\", "line\nend\r", 'x"; required username="admin', "ü€"]


@pytest.mark.parametrize("text", WORDS)
def test_any_name_and_password_stays_one_word(text: str) -> None:
    base = ClientProperties({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    entry = parse_jaas(user_properties(base, text, text)["sasl.jaas.config"].value)
    assert dict(entry.options) == {"username": text, "password": text}


def test_sessions_end_when_they_are_not_used() -> None:
    now = 0.0
    sessions = Sessions(clock=lambda: now)
    session = sessions.begin(None)
    now = IDLE_SECONDS
    assert sessions.find(session.id) is session
    now = 2 * IDLE_SECONDS + 1
    assert sessions.find(session.id) is None
    assert sessions.find(None) is None
    used = sessions.begin(None)
    began = now
    for hour in range(13):
        now = began + 3600 * hour
        assert sessions.find(used.id) is used
    now += 1
    assert sessions.find(used.id) is None, "twelve hours are the most"
    first = sessions.begin(None)
    for _ in range(MAX_SESSIONS):
        now += 1
        sessions.begin(None)
    assert sessions.find(first.id) is None


def test_failures_make_wait_longer_and_longer() -> None:
    now = 0.0
    back_off = BackOff(clock=lambda: now)
    waits: list[float] = []
    for _ in range(14):
        back_off.failed("10.0.0.1", "alice")
        waits.append(back_off.wait("10.0.0.1", "alice"))
    assert waits == [0, 0, 0, 5, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300]
    assert back_off.wait("10.0.0.2", "alice") == 0, "nobody keeps her out from elsewhere"
    now = 300
    assert back_off.wait("10.0.0.1", "alice") == 0
    back_off.succeeded("10.0.0.1", "alice")
    back_off.failed("10.0.0.1", "alice")
    assert back_off.wait("10.0.0.1", "alice") == 0


def test_who_fails_too_often_is_not_judged(console: ConsoleProcess) -> None:
    console.enter()

    def is_kept_out() -> bool:
        """Whether she comes with the right password before the five seconds are over that four failures cost her."""
        tries = [console.post("sign-in", {"user": "alice", "password": "wrong"}).status for _ in range(4)]
        assert tries == [401] * 4
        answer = console.post("sign-in", {"user": "alice", "password": "alice-secret"})
        if answer.status == 200:
            return False
        assert (answer.status, answer.error.startswith("too many failed sign-ins")) == (429, True)
        return True

    eventually(is_kept_out, "she has to wait")
    assert console.post("sign-in", {"user": "admin", "password": "admin-secret"}).status == 200
