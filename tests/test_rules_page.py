"""Each block of docs/security/python.md is run: a callable under the property that the page names it for."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from kbroker.config.properties_file import parse_properties
from kbroker.node.rules.authorizer import OwnAuthorizer
from kbroker.node.rules.timed_calls import WaitedCalls
from kbroker.rules import (
    Acl,
    AclChange,
    AclFilter,
    AclOperation,
    AclPermission,
    AclRemoval,
    Action,
    ConnectingClient,
    Decision,
    KafkaPrincipal,
    Login,
    Password,
    PatternType,
    Quota,
    QuotaClient,
    QuotaKind,
    ResourceType,
    ScramCredential,
    ScramLogin,
    ScramMechanism,
    Token,
)
from kbroker.rules.loading import load
from kbroker.security.authorizer.standard import StandardAuthorizer
from tests.node.node_harness import configuration
from tests.page_node import page
from tests.patience import LONG

_, BLOCKS = page("security/python.md")
PYTHON = [text for language, text in BLOCKS if language == "python"]
PROPERTIES = [parse_properties(text) for language, text in BLOCKS if language == "properties"]
ALICE = KafkaPrincipal("User", "alice")


def rule(name: str, path: Path) -> Any:
    """The definitions of a block, loaded as a node does it."""
    (text,) = (
        text for text in PYTHON if re.search(rf"^(def|class) {name}\b", text, re.MULTILINE) and "running" not in text
    )
    file = path / "my_rules.py"
    file.write_text(text)
    return load("a.property", f"python:{file}:{name}", "authorize")


def action(topic: str, kind: ResourceType = ResourceType.TOPIC) -> Action:
    return Action(ALICE, "10.0.0.1", AclOperation.READ, kind, topic)


def test_the_properties_are_those_of_a_node(tmp_path: Path) -> None:
    assert len(PROPERTIES) == 6
    for properties in PROPERTIES:
        assert configuration(tmp_path).with_properties(properties).unknown == ()
        assert any(value.startswith("python:my_rules:") for value in properties.values())


def test_the_authorizer(tmp_path: Path) -> None:
    authorize = rule("authorize", tmp_path)
    assert authorize(action("alice-1")) is Decision.ALLOWED and authorize(action("bob-1")) is Decision.DENIED
    assert authorize(action("g", ResourceType.GROUP)) is Decision.NOT_MINE


def test_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    policy = rule("Policy", tmp_path)
    calls = WaitedCalls(lambda: 0.0, LONG, start=LONG)
    own = OwnAuthorizer(policy, "python:my_rules:Policy", StandardAuthorizer([]), lambda: 0.0, calls)
    assert not own.authorize(*action("orders")[:5])
    (tmp_path / "policy.json").write_text(json.dumps({"alice": ["orders", "payments"]}))
    policy.refresh()
    policy.invalidate()
    assert own.authorize(*action("orders")[:5]) and not own.authorize(*action("secret")[:5])
    calls.close()


def test_the_acls(tmp_path: Path) -> None:
    keeper = rule("Kept", tmp_path)
    own = Acl(ResourceType.TOPIC, "or", PatternType.PREFIXED, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
    assert keeper.authorize(action("orders")) is Decision.DENIED
    assert keeper.create_acls(AclChange(ALICE, "10.0.0.1", (own, own._replace(host="10.0.0.9")))) == [
        None,
        "hosts are not looked at here",
    ]
    assert keeper.acls(AclFilter()) == [own]
    assert keeper.authorize(action("orders")) is Decision.ALLOWED and keeper.authorize(action("x")) is Decision.DENIED
    assert keeper.delete_acls(AclRemoval(ALICE, "10.0.0.1", (AclFilter(resource_name="x"), AclFilter()))) == [[], [own]]
    assert keeper.acls(AclFilter()) == []


def test_the_acls_may_change_while_they_are_looked_at(tmp_path: Path) -> None:
    """`authorize` and the changes have threads of their own."""
    keeper, other = rule("Kept", tmp_path), rule("Kept", tmp_path)
    words = "User:alice", "*", AclOperation.READ, AclPermission.ALLOW
    one, two = (Acl(ResourceType.TOPIC, name, PatternType.LITERAL, *words) for name in ("a", "b"))
    keeper.create_acls(AclChange(ALICE, "10.0.0.1", (one, two)))
    assert other.kept == frozenset()
    looked_at = iter(keeper.kept)
    next(looked_at)
    keeper.delete_acls(AclRemoval(ALICE, "10.0.0.1", (AclFilter(),)))
    keeper.create_acls(AclChange(ALICE, "10.0.0.1", (one,)))
    assert len(list(looked_at)) == 1 and keeper.kept == {one}


def test_the_check_of_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.headers["Authorization"] == "Basic YWxpY2U6Z2VoZWlt" else 401)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    check = rule("check", tmp_path)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setitem(check.__globals__, "URL", f"http://127.0.0.1:{server.server_port}/login")
        assert check(Login("SASL_SSL", "10.0.0.1", "alice", Password("geheim"))) == "alice"
        assert check(Login("SASL_SSL", "10.0.0.1", "alice", Password("wrong"))) is None
        server.shutdown()
        thread.join()
    assert (check.timeout_seconds, check.threads) == (3, 4)


def test_the_validator(tmp_path: Path) -> None:
    validate = rule("validate", tmp_path)
    assert validate(Token("SASL_SSL", "10.0.0.1", Password("a-long-secret"))).name == "alice"
    assert validate(Token("SASL_SSL", "10.0.0.1", Password("another"))) is None


def test_the_principal_builder(tmp_path: Path) -> None:
    build = rule("build", tmp_path)
    peer = ConnectingClient("SSL", "SSL", "10.0.0.1", ALICE, "", None, None)
    assert build(peer) is Decision.NOT_MINE
    assert build(peer._replace(subject="CN=a,OU=blue,O=x")) == KafkaPrincipal("Team", "blue")
    assert build(peer._replace(subject="CN=a")) is None


def test_the_quota(tmp_path: Path) -> None:
    quota = rule("quota", tmp_path)
    client = QuotaClient(QuotaKind.PRODUCE, ALICE, "batch-7", None)
    assert quota(client) == Quota(1_000_000, "batch")
    assert quota(client._replace(client_id="web")) is Decision.NOT_MINE
    assert quota(client._replace(kind=QuotaKind.FETCH)) is Decision.NOT_MINE


class _Cluster:
    """Broker 2 leads one of three partitions that have a leader."""

    node_id = 2

    def brokers(self) -> list[int]:
        return [1, 2]

    def topics(self) -> list[str]:
        return ["orders", "payments"]

    def leaders(self, topic: str) -> list[int | None]:
        led: dict[str, list[int | None]] = {"orders": [1, 2, None], "payments": [1]}
        return led[topic]


def test_the_quota_by_leaders(tmp_path: Path) -> None:
    client = QuotaClient(QuotaKind.FETCH, ALICE, "web", None, _Cluster())
    of_the_cluster = rule("of_the_cluster", tmp_path)
    assert of_the_cluster(client) == Quota(10_000_000, "alice")
    assert of_the_cluster(QuotaClient(*client[:4])) == Quota(0, "alice"), "a client made without a cluster"


def test_the_credentials(tmp_path: Path) -> None:
    credential = rule("credential", tmp_path)
    login = ScramLogin("SASL_SSL", "10.0.0.1", "alice", ScramMechanism.SCRAM_SHA_512)
    kept = credential(login)
    made = ScramCredential.from_password(login.mechanism, "alice-secret", salt=kept.salt, iterations=8192)
    assert kept == made
    assert credential(login._replace(username="bob")) is None
    assert credential(login._replace(mechanism=ScramMechanism.SCRAM_SHA_256)) is None


def test_the_broker_of_a_test(capsys: pytest.CaptureFixture[str]) -> None:
    exec(PYTHON[-1], {})
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", capsys.readouterr().out)
