"""An authorizer in Python that keeps ACLs of its own, as clients meet it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.acls import create_acls, delete_acls, describe_acls
from kbroker.client.errors import ResponseError
from kbroker.client.topics import NewTopic, create_topics
from kbroker.errors import ErrorCode, FatalError
from kbroker.rules import (
    Acl,
    AclChange,
    AclFilter,
    AclKeeper,
    AclOperation,
    AclPermission,
    AclRemoval,
    Action,
    Decision,
    KafkaPrincipal,
    PatternType,
    ResourceType,
)
from kbroker.testing import running_broker
from tests.node.rules_harness import Delivered, exits, fails, until


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
