"""An authorizer of one's own: what it is asked, for how long its answers hold, and what it cannot do."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.node.rules.answer_cache import MAX_KEPT
from kbroker.node.rules.authorizer import OwnAuthorizer
from kbroker.node.rules.timed_calls import WaitedCalls
from kbroker.rules import NOT_MINE, AclOperation, Action, Authorizer, Decision, KafkaPrincipal, ResourceType, settings
from kbroker.security.authorizer.acls import Acl
from kbroker.security.authorizer.standard import StandardAuthorizer
from kbroker.security.authorizer.types import AclPermission, AuthorizerNotReady, PatternType
from kbroker.security.principal import TokenPrincipal
from tests.patience import LONG

ALICE = KafkaPrincipal("User", "alice")
ROOT = KafkaPrincipal("User", "root")
READ = AclOperation.READ
ACL = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", READ, AclPermission.ALLOW)


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Asked(Authorizer):
    """Answers what it is told to, and counts."""

    def __init__(self, answer: Any = Decision.ALLOWED) -> None:
        self.answer = answer
        self.actions: list[Action] = []

    def authorize(self, action: Action) -> Any:
        self.actions.append(action)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


_made: list[WaitedCalls] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


def own(rule: Any, *, acls: list[Acl] | None = None, clock: Clock | None = None) -> OwnAuthorizer:
    standard = StandardAuthorizer([] if acls is None else acls, super_users=[ROOT])
    _made.append(WaitedCalls(clock or Clock(), LONG, math.inf, LONG))
    return OwnAuthorizer(rule, "python:m:rule", standard, clock or Clock(), _made[-1])


def may_read(authorizer: OwnAuthorizer, topic: str = "t", who: KafkaPrincipal = ALICE) -> bool:
    return authorizer.authorize(who, "10.0.0.1", READ, ResourceType.TOPIC, topic)


def test_an_answer_for_a_user_is_none_for_a_delegation_token_of_the_user() -> None:
    """The two principals are equal; a rule may tell them apart all the same, whoever has asked first."""
    token = TokenPrincipal("User", "alice")
    for first, second in ((ALICE, token), (token, ALICE)):
        authorizer = own(lambda action: not action.principal.token_authenticated)
        assert [may_read(authorizer, who=who) for who in (first, second, first)] == [
            not who.token_authenticated for who in (first, second, first)
        ]


@pytest.mark.parametrize(
    ("answer", "expected"), [(Decision.ALLOWED, True), (Decision.DENIED, False), (True, True), (False, False)]
)
def test_the_rule_decides(answer: Any, expected: bool) -> None:
    rule = Asked(answer)
    authorizer = own(rule, acls=[ACL])
    assert may_read(authorizer) is expected
    assert rule.actions == [Action(ALICE, "10.0.0.1", READ, ResourceType.TOPIC, "t")]


def test_acls_decide_over_what_is_not_the_rules() -> None:
    authorizer = own(Asked(NOT_MINE), acls=[ACL])
    assert may_read(authorizer, "t") and not may_read(authorizer, "u")
    early = own(Asked(NOT_MINE))
    early.standard = StandardAuthorizer()
    with pytest.raises(AuthorizerNotReady):
        may_read(early)


def test_super_users_are_not_asked_about() -> None:
    rule = Asked(Decision.DENIED)
    authorizer = own(rule)
    assert may_read(authorizer, who=ROOT) and rule.actions == []
    assert authorizer.authorize_by_resource_type(ROOT, "10.0.0.1", READ, ResourceType.TOPIC)


@pytest.mark.parametrize("answer", [None, "ALLOWED", 1, 0, object(), ValueError("x"), SystemExit(0), [True]])
def test_failures_and_nonsense_deny_and_are_told_once(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    rule = Asked(answer)
    authorizer = own(rule, acls=[ACL])
    assert [may_read(authorizer), may_read(authorizer)] == [False, False]
    assert len(rule.actions) == 2  # a failure is not kept: the next request asks again
    (line,) = caplog.messages
    assert line.startswith("python:m:rule ") and "what it was asked for is denied" in line


def test_one_that_hangs_denies(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    authorizer = own(lambda action: gate.wait())
    _made[-1].timeout = 0.01
    assert [may_read(authorizer) for _ in range(3)] == [False, False, False]
    gate.set()
    assert [line.split(", and")[0] for line in caplog.messages] == [
        "python:m:rule has not answered within 0.01 s",
        "python:m:rule is not asked for a while after late or slow answers",
    ]


def test_an_action_cannot_be_changed() -> None:
    def mutate(action: Any) -> bool:
        action.name = "mine"
        return True

    authorizer = own(mutate)
    assert not may_read(authorizer)


def test_an_answer_holds_for_a_second_and_not_beyond_an_invalidation() -> None:
    clock, rule = Clock(), Asked()
    authorizer = own(rule, clock=clock)
    before = authorizer.version
    assert may_read(authorizer) and may_read(authorizer) and len(rule.actions) == 1
    assert authorizer.version == before
    rule.answer = Decision.DENIED
    rule.invalidate()
    assert authorizer.version > before and not may_read(authorizer) and len(rule.actions) == 2
    rule.answer = Decision.ALLOWED
    clock.seconds += 0.9
    assert not may_read(authorizer)
    before = authorizer.version
    clock.seconds += 0.2
    assert authorizer.version > before and may_read(authorizer)


def test_an_answer_that_an_invalidation_overtakes_is_not_kept() -> None:
    rule = Asked()
    real = rule.authorize

    def authorize(action: Action) -> Any:
        rule.invalidate()
        return real(action)

    rule.authorize = authorize  # type: ignore[method-assign]
    authorizer = own(rule)
    assert may_read(authorizer)
    rule.authorize = real  # type: ignore[method-assign]
    assert may_read(authorizer) and len(rule.actions) == 2


@pytest.mark.parametrize(("seconds", "asked"), [(0, 3), (math.inf, 1), (60, 1)])
def test_a_rule_says_for_how_long_its_answers_hold(seconds: float, asked: int) -> None:
    count = []

    @settings(keep_seconds=seconds)
    def rule(action: Action) -> bool:
        count.append(1)
        return True

    clock = Clock()
    authorizer = own(rule, clock=clock)
    versions = set()
    for _ in range(3):
        clock.seconds += 10
        versions.add(authorizer.version)
        assert may_read(authorizer)
    assert len(count) == asked and len(versions) == (3 if asked == 3 else 1)  # shortcuts look at the version


def test_acls_that_change_are_a_change() -> None:
    authorizer = own(Asked(NOT_MINE))
    before = authorizer.version
    assert not may_read(authorizer)
    authorizer.standard.change([], [ACL])
    assert authorizer.version > before and may_read(authorizer)


def test_ever_new_names_do_not_fill_the_memory() -> None:
    rule = Asked()
    authorizer = own(rule)
    kept = authorizer._kept._answers
    for number in range(MAX_KEPT):
        authorizer._kept.put(number, Decision.ALLOWED, authorizer._kept.changes)
    assert len(kept) == MAX_KEPT
    assert may_read(authorizer) and len(kept) == 1
    assert may_read(authorizer, "x" * 256) and len(kept) == 1


def test_an_answer_is_not_kept_with_a_long_client_id() -> None:
    """A client may name itself anew with each request, in 32 KiB."""
    rule = Asked()
    authorizer = own(rule)
    for client_id, asked in (("x" * 255, 1), ("x" * 256, 3)):
        for _ in range(2):
            authorizer.decide(Action(ALICE, "10.0.0.1", READ, ResourceType.TOPIC, "t", client_id=client_id))
        assert len(rule.actions) == asked


def test_any_resource_may_be_there_unless_the_rule_says_otherwise() -> None:
    def of(rule: Any) -> bool:
        return own(rule, acls=[]).authorize_by_resource_type(ALICE, "10.0.0.1", READ, ResourceType.TOPIC)

    class Strict(Asked):
        def authorize_any(self, action: Action) -> Decision:
            assert action.name == ""
            return Decision.DENIED

    class Acls(Asked):
        def authorize_any(self, action: Action) -> Decision:
            return NOT_MINE

    assert of(lambda action: False) and of(Asked()) and not of(Strict()) and not of(Acls())
