"""The rules by which ACLs decide: Kafka's ``StandardAuthorizerData``, and ``Authorizer.authorizeByResourceType``.

An operation is denied if an ACL denies it, allowed if one allows it and none denies it. If there is no ACL for the
resource at all, `StandardAuthorizer` has a default. Super users may do everything.

One thing is otherwise than in Kafka: rules for ``*`` hold for all resources. Kafka forgets them for groups and ids
whose names begin with a star, so that even a denial for all of them does not hold.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from kbroker.config import BrokerConfig
from kbroker.config.security.authorization import SUPER_USERS, allows_everyone
from kbroker.errors import FatalError
from kbroker.security.authorizer.acls import Acl
from kbroker.security.authorizer.audit import write_audit
from kbroker.security.authorizer.hosts import host_matches, java_text
from kbroker.security.authorizer.types import (
    WILDCARD,
    AclOperation,
    AclPermission,
    AuthorizerNotReady,
    PatternType,
    ResourceType,
)
from kbroker.security.principal import USER_TYPE, KafkaPrincipal, parse_principal
from kbroker.security.shown import shown

logger = logging.getLogger(__name__)


EVERYBODY: Final = KafkaPrincipal(USER_TYPE, WILDCARD)
"""The principal of ACLs that hold for all principals."""

_IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS}),
}
"""The operations whose permission implies the operation's. Denials imply nothing."""

_SAMPLE_NAME: Final = "hardcode"
"""`StandardAuthorizer.authorize_by_resource_type` asks for a resource of this name first, as Kafka does."""

MAX_REMEMBERED: Final = 20_000
"""Decisions that are remembered. Then all are forgotten: asking for ever new names must not fill the memory."""

MAX_REMEMBERED_NAME: Final = 255
_Rules = dict[KafkaPrincipal, list[Acl]]


class StandardAuthorizer:
    """Decides by ACLs. Those of a resource are found by its name and its prefixes, then by principal."""

    def __init__(
        self,
        acls: Iterable[Acl] | None = None,
        *,
        super_users: Iterable[KafkaPrincipal] = (),
        allow_everyone: bool = False,
    ) -> None:
        """``allow_everyone`` is ``allow.everyone.if.no.acl.found``.

        Without ``acls`` they are not known yet: until `replace`, questions about others than super users raise
        `AuthorizerNotReady`.
        """
        self.version = 0
        """See `Authorizer.version`."""
        self.count = 0
        """The number of ACLs."""
        self.loaded = False
        """Whether the ACLs are known."""
        self.when_too_early: Callable[[str, str, AclOperation], None] | None = None
        """Hears of each question before the ACLs are known: who asks, from where (as the log shows it), for what."""
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._literal: dict[tuple[ResourceType, str], _Rules] = {}
        self._prefixed: dict[tuple[ResourceType, str], _Rules] = {}
        self._lengths: dict[ResourceType, dict[int, int]] = {}
        """The number of prefixes of each length."""
        self._by_principal: dict[ResourceType, _Rules] = {}
        self._decisions: dict[tuple[KafkaPrincipal, str, int, str], bool] = {}
        self._decisions_by_type: dict[tuple[KafkaPrincipal, str, int], bool] = {}
        if acls is not None:
            self.replace(acls)

    def replace(self, acls: Iterable[Acl]) -> None:
        """Decide by these ACLs, and no others, from now on."""
        self._literal.clear()
        self._prefixed.clear()
        self._lengths.clear()
        self._by_principal.clear()
        self.count = 0
        self.loaded = True
        self.change((), acls)

    def change(self, removed: Iterable[Acl], added: Iterable[Acl]) -> None:
        """Drop some ACLs and add others, in one step."""
        for acl in removed:
            self._remove(acl)
        for acl in added:
            self._add(acl)
        self._decisions.clear()
        self._decisions_by_type.clear()
        self.version += 1

    def _table(self, acl: Acl) -> dict[tuple[ResourceType, str], _Rules]:
        return self._literal if acl.pattern_type is PatternType.LITERAL else self._prefixed

    def _add(self, acl: Acl) -> None:
        self.count += 1
        if _is_void(acl):
            return
        table = self._table(acl)
        resource = (acl.resource_type, acl.resource_name)
        rules = table.get(resource)
        if rules is None:
            rules = table[resource] = {}
            if table is self._prefixed:
                lengths = self._lengths.setdefault(acl.resource_type, {})
                size = len(acl.resource_name)
                lengths[size] = lengths.get(size, 0) + 1
        principal = acl.kafka_principal()
        rules.setdefault(principal, []).append(acl)
        self._by_principal.setdefault(acl.resource_type, {}).setdefault(principal, []).append(acl)

    def _remove(self, acl: Acl) -> None:
        self.count -= 1
        if _is_void(acl):
            return
        table = self._table(acl)
        resource = (acl.resource_type, acl.resource_name)
        principal = acl.kafka_principal()
        _drop(self._by_principal, acl.resource_type, principal, acl)
        if not _drop(table, resource, principal, acl) and table is self._prefixed:
            lengths = self._lengths[acl.resource_type]
            size = len(acl.resource_name)
            lengths[size] -= 1
            if not lengths[size]:
                del lengths[size]

    def is_super_user(self, principal: KafkaPrincipal) -> bool:
        """Whether a principal may do everything."""
        return _base(principal) in self._super_users

    # --- Decisions --------------------------------------------------------------------------------------------------

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """See `Authorizer.authorize`."""
        key = (principal, host, operation * 256 + resource_type, name)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._decide(principal, host, operation, resource_type, name)[0]
            if len(name) <= MAX_REMEMBERED_NAME:
                if len(self._decisions) >= MAX_REMEMBERED:
                    self._decisions.clear()
                self._decisions[key] = allowed
        return allowed

    def explain(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> tuple[bool, str]:
        """The decision of `authorize`, and the rule that makes it, in words."""
        return self._decide(principal, host, operation, resource_type, name)

    def _decide(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> tuple[bool, str]:
        """Whether it is allowed, and why. `AuthorizerNotReady`."""
        who = _base(principal)
        if who in self._super_users:
            return True, "super user"
        if not self.loaded:
            if self.when_too_early is not None:
                self.when_too_early(shown(str(who)), java_text(host), operation)
            raise AuthorizerNotReady
        address = java_text(host)
        allowing: Acl | None = None
        has_acls = False
        for rules in self._sections(resource_type, name):
            has_acls = True
            for acl in _of(rules, who):
                if _applies(acl, address, operation):
                    if acl.permission is not AclPermission.ALLOW:
                        return False, f"denied by {_shown_acl(acl)}"
                    allowing = acl
        if allowing is not None:
            return True, f"allowed by {_shown_acl(allowing)}"
        if not has_acls and self._allow_everyone:
            return True, "the resource has no ACL"
        return False, "no ACL allows it"

    def _sections(self, resource_type: ResourceType, name: str) -> Iterator[_Rules]:
        """The ACLs that hold for a resource, by the names that they are under."""
        rules = self._literal.get((resource_type, name))
        if rules is not None:
            yield rules
        if name != WILDCARD:
            rules = self._literal.get((resource_type, WILDCARD))
            if rules is not None:
                yield rules
        size = len(name)
        for length in self._lengths.get(resource_type, ()):
            if length <= size:
                rules = self._prefixed.get((resource_type, name[:length]))
                if rules is not None:
                    yield rules

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """See `Authorizer.authorize_by_resource_type`. What other operations imply does not count here, as in Kafka."""
        key = (principal, host, operation * 256 + resource_type)
        allowed = self._decisions_by_type.get(key)
        if allowed is None:
            allowed = self._decide_by_type(principal, host, operation, resource_type)
            if len(self._decisions_by_type) >= MAX_REMEMBERED:
                self._decisions_by_type.clear()
            self._decisions_by_type[key] = allowed
        return allowed

    def _decide_by_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        # A super user, or somebody whom a default or a rule for all resources allows it.
        if self.authorize(principal, host, operation, resource_type, _SAMPLE_NAME):
            return True
        literal, prefixed = _Permissions(), _Permissions()
        address = java_text(host)
        for acl in _of(self._by_principal.get(resource_type, {}), _base(principal)):
            if acl.operation in (operation, AclOperation.ALL) and host_matches(acl.host, address):
                (literal if acl.pattern_type is PatternType.LITERAL else prefixed).add(acl)
        if WILDCARD in literal.denied:
            return False
        if WILDCARD in literal.allowed:
            return True
        return any(
            name not in literal.denied and not _has_prefix(name, prefixed.denied) for name in literal.allowed
        ) or any(not _has_prefix(name, prefixed.denied) for name in prefixed.allowed)

    # --- The audit log ----------------------------------------------------------------------------------------------

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
        """See `Authorizer.audit`."""
        write_audit(
            *(allowed, principal, host, operation, resource_type, name, api),
            lambda: self._decide(principal, host, operation, resource_type, name)[1],
        )


class _Permissions:
    """The names under which a principal is allowed an operation, and those under which it is denied."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed: set[str] = set()
        self.denied: set[str] = set()

    def add(self, acl: Acl) -> None:
        """Take in the name of an ACL."""
        (self.allowed if acl.permission is AclPermission.ALLOW else self.denied).add(acl.resource_name)


_Key = TypeVar("_Key")


def _drop(table: dict[_Key, _Rules], key: _Key, principal: KafkaPrincipal, acl: Acl) -> bool:
    """Take an ACL out of a table, with what is empty then; whether anything is left under the key."""
    rules = table[key]
    rules[principal].remove(acl)
    if not rules[principal]:
        del rules[principal]
    if not rules:
        del table[key]
    return bool(rules)


def _is_void(acl: Acl) -> bool:
    """Whether an ACL allows something to resources that are named in a way of a later release.

    Nobody knows which those are. One that denies it holds for the prefix, as too much is better than too little.
    """
    return acl.permission is AclPermission.ALLOW and acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED)


def _has_prefix(name: str, prefixes: set[str]) -> bool:
    """Whether one of the prefixes is one of the name, or all of it."""
    return bool(prefixes) and any(name[:length] in prefixes for length in range(1, len(name) + 1))


def _base(principal: KafkaPrincipal) -> KafkaPrincipal:
    """The principal without anything that a subclass adds: ACLs name a type and a name."""
    if type(principal) is KafkaPrincipal:
        return principal
    return KafkaPrincipal(principal.principal_type, principal.name)


def _of(rules: _Rules, who: KafkaPrincipal) -> Iterator[Acl]:
    """The ACLs of a principal, and those for everybody."""
    yield from rules.get(who, ())
    if who != EVERYBODY:
        yield from rules.get(EVERYBODY, ())


def _applies(acl: Acl, address: str, operation: AclOperation) -> bool:
    """Whether an ACL, which is for the resource and the principal, is for the operation and the host."""
    if acl.operation not in (operation, AclOperation.ALL) and not (
        acl.permission is AclPermission.ALLOW and acl.operation in _IMPLYING.get(operation, ())
    ):
        return False
    return host_matches(acl.host, address)


def _shown_acl(acl: Acl) -> str:
    return (
        f"the ACL {acl.permission.name} {acl.operation.name} for {shown(acl.principal)} from {shown(acl.host)} on "
        f"{acl.resource_type.name}:{acl.pattern_type.name}:{shown(acl.resource_name)}"
    )


def standard_authorizer(config: BrokerConfig) -> StandardAuthorizer:
    """An authorizer that knows no ACLs yet (``StandardAuthorizer.configure``). ``FatalError`` for a super user that is
    no principal."""
    return StandardAuthorizer(
        super_users=_super_users(config.raw.get(SUPER_USERS, "")), allow_everyone=allows_everyone(config)
    )


def _super_users(text: str) -> Iterator[KafkaPrincipal]:
    """``User:a;User:b``. Names may have commas, as those of certificates do."""
    for each in filter(None, map(str.strip, text.split(";"))):
        try:
            yield parse_principal(each)
        except ValueError as error:
            raise FatalError(f"{SUPER_USERS}: {error}") from None
        if re.search(r",\s*User:", each):
            logger.warning("super.users: %s is one name: several are separated by semicolons", each)
