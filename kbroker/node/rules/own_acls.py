"""ACLs that an authorizer of one's own keeps: asked for, added and removed there, and not in the cluster's metadata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.handlers.requester import Requester
from kbroker.node.rules.awaited import AwaitedCalls, NoAnswer
from kbroker.raft_metadata.controller.acls import validate_acl
from kbroker.rules.records import AclChange, AclRemoval
from kbroker.security.authorizer.acls import Acl, AclFilter

METHODS: Final = ("acls", "create_acls", "delete_acls")


class OwnAcls:
    """The ACLs of the node's rule (`kbroker.handlers.services.acls.KeptAcls`)."""

    def __init__(self, rule: Any, name: str) -> None:
        """``name`` is the rule's in the node's file."""
        self._rule = rule
        self._find, self._create, self._delete = (
            AwaitedCalls(rule, method, name, "the client is told UNKNOWN_SERVER_ERROR", tells_errors=True)
            for method in METHODS
        )

    async def find(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that a filter finds. ``ApiError`` UNKNOWN_SERVER_ERROR if the rule does not tell."""
        return _acls(self._find, await _answer(self._find, wanted))

    async def create(self, acls: Sequence[Acl], requester: Requester) -> list[ApiError | None]:
        """Add ACLs; the error of each. Those that cannot be are not shown to the rule."""
        problems = [_problem(acl) for acl in acls]
        valid = tuple(acl for acl, problem in zip(acls, problems, strict=True) if problem is None)
        if not valid:
            return problems
        answer = await _answer(self._create, AclChange(requester.principal, requester.host, valid))
        texts = [None] * len(valid) if answer is None else answer
        if not isinstance(texts, list | tuple) or len(texts) != len(valid) or not all(map(_is_text, texts)):
            raise _failed(self._create, texts)
        self._changed()
        told = iter(texts)
        return [problem if problem is not None else _refusal(next(told)) for problem in problems]

    async def delete(self, filters: Sequence[AclFilter], requester: Requester) -> list[list[Acl] | ApiError]:
        """Remove ACLs; for each filter those that are gone."""
        answer = await _answer(self._delete, AclRemoval(requester.principal, requester.host, tuple(filters)))
        if not isinstance(answer, list | tuple) or len(answer) != len(filters):
            raise _failed(self._delete, answer)
        self._changed()
        return [_acls(self._delete, each) for each in answer]

    def _changed(self) -> None:
        """Forget what the rule has decided."""
        self._rule.changes = getattr(self._rule, "changes", 0) + 1


def own_acls(rule: Any, name: str) -> OwnAcls | None:
    """The ACLs that a rule keeps; None if it keeps none. ``FatalError`` if it has a part of the methods alone."""
    there = [method for method in METHODS if callable(getattr(rule, method, None))]
    if not there:
        return None
    if len(there) < len(METHODS):
        missing = [method for method in METHODS if method not in there]
        raise FatalError(f"authorizer.class.name={name}: it has {there[0]}, and not {' and '.join(missing)}")
    return OwnAcls(rule, name)


async def _answer(calls: AwaitedCalls, question: object) -> Any:
    try:
        return await calls.call(question)
    except NoAnswer:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def _acls(calls: AwaitedCalls, answer: object) -> list[Acl]:
    if isinstance(answer, Iterable) and not isinstance(answer, str | bytes | Acl):
        found = list(answer)
        if all(isinstance(each, Acl) for each in found):
            return found
    raise _failed(calls, answer)


def _failed(calls: AwaitedCalls, answer: object) -> ApiError:
    calls.nonsense(answer)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)


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
