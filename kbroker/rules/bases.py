"""Base classes of rules, and the settings that a rule may have.

A rule is a function, or an object of a class. Nothing has to be derived from these; they are for rules that change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from kbroker.rules.decision import Decision
from kbroker.rules.records import AclChange, AclRemoval, Action, Quota, QuotaClient
from kbroker.security.authorizer.acls import Acl, AclFilter

KEEP_SECONDS: Final = 1.0
"""Seconds for which a decision holds, unless the rule says otherwise."""

R = TypeVar("R")

_Problems = Sequence[str | None] | None
_Removed = Sequence[Iterable[Acl]]


class Changing:
    """A rule whose answers change with time."""

    keep_seconds: float = KEEP_SECONDS
    """Seconds for which an answer may be kept: 0 to be asked each time."""
    refresh_seconds: float = 0.0
    """Seconds between two calls of `refresh`, the first of which is made when the node starts; 0 for none."""
    changes: int = 0
    """Grows with each `invalidate`."""

    def invalidate(self) -> None:
        """Forget all answers that are kept: the rules have changed. May be called from any thread."""
        self.changes += 1

    def refresh(self) -> None:
        """Bring the rules up to date, in a thread; all answers are forgotten afterwards. May be an ``async def``."""


class Authorizer(Changing):
    """Decides who may do what. Derive from it, and define ``authorize``."""

    def authorize(self, action: Action) -> Decision:
        """Whether this may be done. It has a tenth of a second, as the node waits: decide by what is in memory."""
        raise NotImplementedError

    def authorize_any(self, action: Action) -> Decision:
        """Whether there may be any resource of this type that the principal may do this to; ``action.name`` is empty.

        A node asks before it gives a producer the id of an idempotent one, which lets nobody write: `authorize` is
        asked for each topic. So it is allowed, unless a class says otherwise.
        """
        return Decision.ALLOWED


class AclKeeper(Authorizer):
    """An authorizer that keeps ACLs of its own (KIP-504). Derive, and define these beside ``authorize``.

    Each is called in a thread and has five seconds, or is an ``async def``.
    """

    def acls(self, wanted: AclFilter) -> Iterable[Acl] | Awaitable[Iterable[Acl]]:
        """The ACLs that a filter finds; any node may be asked."""
        raise NotImplementedError

    def create_acls(self, change: AclChange) -> _Problems | Awaitable[_Problems]:
        """Add ACLs, on the active controller: None if all are there now, or for each None or why it is refused."""
        raise NotImplementedError

    def delete_acls(self, removal: AclRemoval) -> _Removed | Awaitable[_Removed]:
        """Remove ACLs, on the active controller: for each filter those that are gone."""
        raise NotImplementedError


class QuotaCallback(Changing):
    """Sets the limits of clients (Kafka's ``ClientQuotaCallback``, KIP-257). Derive, and define ``quota``."""

    def quota(self, client: QuotaClient) -> Quota | Decision:
        """The client's limit, or ``NOT_MINE`` for what the quotas of the cluster say."""
        raise NotImplementedError


def settings(**values: float) -> Callable[[R], R]:
    """Decorator: give a function the settings that a class has as attributes.

    ``keep_seconds`` (authorizers, quotas, replica selectors); ``timeout_seconds`` (logins, principal builders, replica
    selectors, assignors, policies); ``threads`` (logins and principal builders); ``iterations`` and ``salt_bytes``
    of the credentials of SCRAM, which users who do not exist seem to have as well.
    ``TypeError`` for another name, ``ValueError`` for a number that makes no sense.
    """
    for name, value in values.items():
        if name not in ("keep_seconds", "timeout_seconds", "threads", "iterations", "salt_bytes"):
            raise TypeError(f"there is no setting {name!r}")
        if not value >= 0 or (name != "keep_seconds" and value == 0):
            raise ValueError(f"{name}={value} makes no sense")

    def set_on(rule: R) -> R:
        for name, value in values.items():
            setattr(rule, name, value)
        return rule

    return set_on
