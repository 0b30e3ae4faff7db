"""An authorizer in Python that keeps ACLs of its own, as clients meet it."""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.client import Client
from kbroker.client.acls import create_acls, delete_acls, describe_acls
from kbroker.client.errors import ResponseError
from kbroker.client.topics import NewTopic, create_topics
from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.node.rules.authorizer import OwnAuthorizer
from kbroker.node.rules.own_acls import OwnAcls, own_acls
from kbroker.node.rules.timed_calls import WaitedCalls
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
from kbroker.security.authorizer.standard import StandardAuthorizer
from kbroker.testing import running_broker
from tests.node.rules_harness import Delivered, exits, fails
from tests.patience import LONG, SHORT, eventually


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
        eventually(lambda: send("orders") is None, "it holds at once")
        assert delete_acls(client, [AclFilter(resource_name="orders")]) == [may_write("orders")]
        eventually(lambda: send("orders") == "TOPIC_AUTHORIZATION_FAILED", "the removal holds")
        assert describe_acls(client, AclFilter()) == []


def raises_later(question: object) -> Any:
    """A lazy answer, or one with lazy parts, that ends in an error."""

    def lazy() -> Iterator[Acl]:
        yield may_write("orders")
        raise RuntimeError("broken")

    return [lazy()] if isinstance(question, AclRemoval) else lazy()


def exits_later(question: object) -> Any:
    """Like `raises_later`, by an error that would end the node."""
    found = (fails_to_be(each) for each in (1,))
    return [found] if isinstance(question, AclRemoval) else found


def fails_to_be(_: object) -> Acl:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "answer",
    [*(fails, exits, raises_later, exits_later), *(lambda question: 5, lambda question: "x", lambda question: [1, 2])],
)
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


# --- Hostile ones, without a broker ---------------------------------------------------------------------------------

REQUESTER: Any = SimpleNamespace(principal=KafkaPrincipal("User", "alice"), host="10.0.0.1")


def kept_by(changed: Any = lambda: None, **methods: Any) -> OwnAcls:
    given: dict[str, Any] = {name: lambda _: [] for name in ("acls", "create_acls", "delete_acls")}
    found = own_acls(SimpleNamespace(**{**given, **methods}), "python:m:rule", changed)
    assert found is not None
    return found


async def is_error(work: Awaitable[object]) -> bool:
    """Whether a call ends in UNKNOWN_SERVER_ERROR."""
    try:
        await work
    except ApiError as error:
        return error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    return False


def is_late(work: Awaitable[object], begun: threading.Event) -> bool:
    """Whether a call ends in an error when its time is over in the midst of it."""
    clock = trio.testing.MockClock()

    async def end_time() -> None:
        assert await trio.to_thread.run_sync(begun.wait, 60)
        clock.jump(6)

    async def main() -> bool:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_time)
            return await is_error(work)

    return bool(trio.run(main, clock=clock))


async def test_a_lazy_answer_runs_in_the_rules_thread() -> None:
    threads = []

    def lazy(_: object) -> Iterator[Acl]:
        threads.append(threading.get_ident())
        yield may_write("orders")

    async def lazy_later(wanted: AclFilter) -> Iterable[Acl]:
        return lazy(wanted)

    assert await kept_by(acls=lazy).find(AclFilter()) == [may_write("orders")]
    assert await kept_by(acls=lazy_later).find(AclFilter()) == [may_write("orders")]
    removed = kept_by(delete_acls=lambda removal: [lazy(each) for each in removal.filters])
    assert await removed.delete([AclFilter()], REQUESTER) == [[may_write("orders")]]
    assert len(threads) == 3 and threading.get_ident() not in threads


def test_a_lazy_answer_that_hangs_is_late(caplog: pytest.LogCaptureFixture) -> None:
    gate, begun = threading.Event(), threading.Event()

    def lazy(_: object) -> Iterator[Acl]:
        begun.set()
        gate.wait(SHORT)
        yield may_write("orders")

    keeper = kept_by(acls=lazy, delete_acls=lambda removal: [lazy(removal)])
    try:
        assert is_late(keeper.find(AclFilter()), begun)
        begun.clear()
        assert is_late(keeper.delete([AclFilter()], REQUESTER), begun)
    finally:
        gate.set()
    line = "python:m:rule has not answered within 5 s, and the client is told UNKNOWN_SERVER_ERROR"
    assert caplog.messages == [line, line]


def test_a_lazy_answer_without_an_end_ends_with_its_time() -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(_: object) -> Iterator[Acl]:
        begun.set()
        yield from itertools.repeat(may_write("orders"))

    def changed() -> None:
        if begun.is_set() and threading.current_thread() is not threading.main_thread():
            ended.set()

    keeper = kept_by(changed, delete_acls=lambda removal: [endless(removal)])
    assert is_late(keeper.delete([AclFilter()], REQUESTER), begun)
    assert ended.wait(SHORT), "its thread has not ended"


async def test_a_plain_function_may_give_what_is_to_be_awaited() -> None:
    async def later(wanted: AclFilter) -> list[Acl]:
        await trio.sleep(0)
        return [may_write("orders")]

    assert await kept_by(acls=lambda wanted: later(wanted)).find(AclFilter()) == [may_write("orders")]


@pytest.mark.parametrize("answer", [fails, exits, raises_later, lambda question: 5, lambda question: None])
async def test_decisions_are_forgotten_whatever_comes_of_a_change(answer: Any) -> None:
    told: list[str] = []
    keeper = kept_by(lambda: told.append("changed"), acls=answer, create_acls=answer, delete_acls=answer)
    await is_error(keeper.find(AclFilter()))
    assert told == []
    await is_error(keeper.create([may_write("orders")], REQUESTER))
    assert told
    told.clear()
    await is_error(keeper.delete([AclFilter()], REQUESTER))
    assert told


@pytest.mark.parametrize("lazily", [False, True])
def test_decisions_are_forgotten_again_when_a_change_ends_that_was_late(lazily: bool) -> None:
    gate, begun, ended = threading.Event(), threading.Event(), threading.Event()
    acls = {"orders"}

    class Slow:
        def authorize(self, action: Action) -> bool:
            return action.name in acls

        keep_seconds = math.inf

    def delete(_: object) -> Any:
        def work() -> Iterator[Acl]:
            begun.set()
            gate.wait(SHORT)
            acls.clear()
            yield may_write("orders")

        return [work() if lazily else list(work())]

    calls = WaitedCalls(lambda: 0.0, LONG, start=LONG)
    authorizer = OwnAuthorizer(Slow(), "python:m:rule", StandardAuthorizer([]), lambda: 0.0, calls)
    question = KafkaPrincipal("User", "alice"), "h", AclOperation.WRITE, ResourceType.TOPIC, "orders"

    def changed() -> None:
        authorizer.invalidate()
        if not acls:
            ended.set()

    assert authorizer.authorize(*question)
    before = authorizer.version
    try:
        assert is_late(kept_by(changed, delete_acls=delete).delete([AclFilter()], REQUESTER), begun)
        assert authorizer.version > before and authorizer.authorize(*question), "nothing has been removed yet"
    finally:
        gate.set()
    assert ended.wait(SHORT)
    assert not authorizer.authorize(*question)
    calls.close()


class Unchangeable(Kept):
    """Has no attribute that can be set but its own."""

    def __init__(self) -> None:
        super().__init__()
        self.is_made = True

    def __setattr__(self, name: str, value: object) -> None:
        if name not in ("kept", "changes_seen", "is_made"):
            raise AttributeError(f"cannot assign to field {name!r}")
        super().__setattr__(name, value)


def test_a_rule_that_takes_no_attributes_may_keep_acls() -> None:
    rules = Unchangeable()
    calls = WaitedCalls(lambda: 0.0, LONG, start=LONG)
    rules_of_node = OwnAuthorizer(rules, "python:m:rule", StandardAuthorizer([]), lambda: 0.0, calls)
    keeper = own_acls(rules, "python:m:rule", rules_of_node.invalidate)
    assert keeper is not None
    question = KafkaPrincipal("User", "ANONYMOUS"), "h", AclOperation.WRITE, ResourceType.TOPIC, "orders"
    assert not rules_of_node.authorize(*question)
    assert trio.run(keeper.create, [may_write("orders")], REQUESTER) == [None]
    assert rules_of_node.authorize(*question)
    calls.close()


def test_a_rule_with_refresh_must_take_its_attribute() -> None:
    rules = Unchangeable()
    rules.__dict__["refresh_seconds"] = 5
    with pytest.raises(FatalError, match="it has refresh, so its attribute changes must be one that can be set: Attr"):
        running_broker(authorizer=rules).__enter__()


@pytest.mark.parametrize(("more", "warned"), [({"keep_seconds": math.inf}, 1), ({"keep_seconds": 60}, 0)])
def test_answers_that_are_kept_for_ever_are_warned_of(more: dict[str, Any], warned: int) -> None:
    rules = Kept()
    rules.__dict__.update(more)
    with running_broker(authorizer=rules) as broker:
        told = [record for record in broker.logs if "keep_seconds is infinite" in record.getMessage()]
        assert [record.levelno for record in told] == warned * [logging.WARNING]
