"""An authorizer of one's own in front of the `StandardAuthorizer`.

Super users may do everything and are not asked about: a mistake in a rule does not lock out nodes and administrators.
For anything else the rule decides, or leaves it to ACLs by ``NOT_MINE``. One that fails denies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kbroker.node.rules.answer_cache import MAX_KEPT_NAME, AnswerCache
from kbroker.node.rules.complaints import Complaints
from kbroker.node.rules.timed_calls import Busy, CallTimedOut, Raised, WaitedCalls
from kbroker.rules.decision import Decision
from kbroker.rules.loading import call_of, described
from kbroker.rules.records import Action
from kbroker.security.authorizer.audit import write_audit
from kbroker.security.authorizer.standard import StandardAuthorizer
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.principal import KafkaPrincipal
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext

_DENIED = "what it was asked for is denied"


class OwnAuthorizer:
    """Decides by a rule (:class:`~kbroker.security.authorizer.types.Authorizer`)."""

    def __init__(
        self, rule: Any, name: str, standard: StandardAuthorizer, now: Callable[[], float], calls: WaitedCalls
    ) -> None:
        """``name`` is the rule's in the node's file; ``now`` gives seconds; the rule is asked by ``calls``."""
        self.standard = standard
        self.name = name
        self.rule = rule
        self._calls = calls
        self._complaints = Complaints(name)
        self._authorize = call_of(rule, "authorize")
        self._authorize_any = getattr(rule, "authorize_any", None)
        self._kept: AnswerCache[Decision] = AnswerCache(rule, now)

    @property
    def version(self) -> int:
        """See `Authorizer.version`."""
        return self._kept.version + self.standard.version

    def invalidate(self) -> None:
        """Forget what the rule has decided. May be called in any thread."""
        self._kept.invalidate()

    def of_request(self, ctx: RequestContext) -> _OfRequest:
        """The authorizer as one request asks it: the rule is told of listener, client id and API."""
        return _OfRequest(self, ctx)

    def decide(self, action: Action) -> tuple[bool, bool]:
        """Whether something is allowed, and whether the rule has said so. ``AuthorizerNotReady`` as from ACLs."""
        if self.standard.is_super_user(action.principal):
            return True, False
        answer = self._answer(self._authorize, action)
        if answer is Decision.NOT_MINE:
            allowed = self.standard.authorize(
                action.principal, action.host, action.operation, action.resource_type, action.name
            )
            return allowed, False
        return answer is Decision.ALLOWED, True

    def decide_any(self, action: Action) -> bool:
        """Whether there may be a resource of the type that this is allowed on."""
        if self.standard.is_super_user(action.principal):
            return True
        answer = Decision.ALLOWED if self._authorize_any is None else self._answer(self._authorize_any, action)
        if answer is Decision.NOT_MINE:
            return self.standard.authorize_by_resource_type(
                action.principal, action.host, action.operation, action.resource_type
            )
        return answer is Decision.ALLOWED

    def _answer(self, function: Callable[[Action], Any], action: Action) -> Decision:
        # Principals are equal with a delegation token and without one, and a rule may tell them apart.
        question = (function is self._authorize, action.principal.token_authenticated, action)
        kept = self._kept.get(question)
        if kept is not None:
            return kept
        changes = self._kept.changes
        try:
            answer = self._calls.call(function, action)
        except Raised as raised:
            self._complaints.failed(described(raised.error), _DENIED)
        except CallTimedOut:
            self._complaints.late(self._calls.timeout, _DENIED)
        except Busy:
            self._complaints.busy(_DENIED)
        else:
            if type(answer) is bool:
                answer = Decision.ALLOWED if answer else Decision.DENIED
            if isinstance(answer, Decision):
                if len(action.name) <= MAX_KEPT_NAME and len(action.client_id) <= MAX_KEPT_NAME:
                    self._kept.put(question, answer, changes)
                return answer
            self._complaints.nonsense(f"a value of type {type(answer).__name__}", _DENIED)
        return Decision.DENIED

    # --- without a request

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """See `Authorizer.authorize`."""
        return self.decide(Action(principal, host, operation, resource_type, name))[0]

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """See `Authorizer.authorize_by_resource_type`."""
        return self.decide_any(Action(principal, host, operation, resource_type, ""))

    def audit(
        self,
        allowed: bool,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        api: str,
    ) -> None:
        """See `Authorizer.audit`; for a decision of the rule."""
        write_audit(*(allowed, principal, host, operation, resource_type, name, api), lambda: f"decided by {self.name}")


class _OfRequest:
    """The authorizer of one request."""

    __slots__ = ("_api", "_by_rule", "_client_id", "_listener", "_own")

    def __init__(self, own: OwnAuthorizer, ctx: RequestContext) -> None:
        self._own = own
        self._listener = ctx.connection.listener_name
        self._client_id = ctx.header.client_id or ""
        self._api = API_KEYS[ctx.header.api_key].name
        self._by_rule = True

    @property
    def version(self) -> int:
        return self._own.version

    def _action(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Action:
        return Action(principal, host, operation, resource_type, name, self._listener, self._client_id, self._api)

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        allowed, self._by_rule = self._own.decide(self._action(principal, host, operation, resource_type, name))
        return allowed

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return self._own.decide_any(self._action(principal, host, operation, resource_type, ""))

    def audit(
        self,
        allowed: bool,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        api: str,
    ) -> None:
        by = self._own if self._by_rule else self._own.standard
        by.audit(allowed, principal, host, operation, resource_type, name, api)
