"""ACLs that an authorizer of one's own keeps: asked for, added and removed there, and not in the cluster's metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import trio

from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.handlers.services.requester import Requester
from kbroker.node.rules.connection_calls import AwaitedCalls, NoAnswer, Nonsense
from kbroker.raft_metadata.controller.acls import validate_acl
from kbroker.rules.records import AclChange, AclRemoval
from kbroker.security.authorizer.acls import Acl, AclFilter

METHODS: Final = ("acls", "create_acls", "delete_acls")


class OwnAcls:
    """The ACLs of the node's rule (`kbroker.handlers.services.acls.KeptAcls`)."""

    def __init__(self, rule: Any, name: str, changed: Callable[[], None]) -> None:
        """``name`` is the rule's in the node's file; ``changed`` forgets what the rule has decided, in any thread.

        It is called whatever comes of a change, and when one that was late ends: ACLs may be other ones then.
        """

        def calls(method: str, shape: Callable[[Any, Any], Any], ended: Callable[[], None] | None) -> AwaitedCalls:
            consequence = "the client is told UNKNOWN_SERVER_ERROR"
            return AwaitedCalls(rule, method, name, consequence, tells_errors=True, shape=shape, ended=ended)

        self._find = calls("acls", lambda _, answer: _acls(answer), None)
        self._create = calls("create_acls", _texts, changed)
        self._delete = calls("delete_acls", _removed, changed)

    async def find(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that a filter finds. ``ApiError`` UNKNOWN_SERVER_ERROR if the rule does not tell."""
        found: list[Acl] = await _answer(self._find, wanted)
        return found

    async def create(self, acls: Sequence[Acl], requester: Requester) -> list[ApiError | None]:
        """Create ACLs through the rule; returns an error or None for each ACL. Invalid ACLs never reach the rule."""
        problems = [_problem(acl) for acl in acls]
        valid = tuple(acl for acl, problem in zip(acls, problems, strict=True) if problem is None)
        if not valid:
            return problems
        told = iter(await _answer(self._create, AclChange(requester.principal, requester.host, valid)))
        return [problem if problem is not None else _refusal(next(told)) for problem in problems]

    async def delete(self, filters: Sequence[AclFilter], requester: Requester) -> list[list[Acl] | ApiError]:
        """Remove ACLs; for each filter those that are gone."""
        gone: list[list[Acl] | ApiError] = await _answer(
            self._delete, AclRemoval(requester.principal, requester.host, tuple(filters))
        )
        return gone


def own_acls(rule: Any, name: str, changed: Callable[[], None]) -> OwnAcls | None:
    """The ACLs that a rule keeps; None if it keeps none. ``FatalError`` if it has a part of the methods alone.

    ``changed`` is that of :class:`OwnAcls`.
    """
    there = [method for method in METHODS if callable(getattr(rule, method, None))]
    if not there:
        return None
    if len(there) < len(METHODS):
        missing = [method for method in METHODS if method not in there]
        raise FatalError(f"authorizer.class.name={name}: it has {there[0]}, and not {' and '.join(missing)}")
    return OwnAcls(rule, name, changed)


async def _answer(calls: AwaitedCalls, question: object) -> Any:
    try:
        return await calls.call(question)
    except NoAnswer:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def _acls(answer: object) -> list[Acl]:
    """The ACLs of an answer, which may be lazy: it runs here, in the rule's thread."""
    if not isinstance(answer, Iterable) or isinstance(answer, str | bytes | Acl):
        raise Nonsense(answer)
    found = []
    for each in answer:
        trio.from_thread.check_cancelled()  # one without an end ends with its time
        if not isinstance(each, Acl):
            raise Nonsense(answer)
        found.append(each)
    return found


def _texts(change: AclChange, answer: object) -> list[str | None]:
    texts = [None] * len(change.acls) if answer is None else answer
    if not isinstance(texts, list | tuple) or len(texts) != len(change.acls) or not all(map(_is_text, texts)):
        raise Nonsense(answer)
    return list(texts)


def _removed(removal: AclRemoval, answer: object) -> list[list[Acl]]:
    if not isinstance(answer, list | tuple) or len(answer) != len(removal.filters):
        raise Nonsense(answer)
    return [_acls(each) for each in answer]


def _problem(acl: Acl) -> ApiError | None:
    try:
        validate_acl(acl, with_ranges=True)
    except ApiError as error:
        return error.without_traceback()
    return None


def _is_text(text: object) -> bool:
    return text is None or type(text) is str


def _refusal(text: str | None) -> ApiError | None:
    return None if text is None else ApiError(ErrorCode.INVALID_REQUEST, text)
