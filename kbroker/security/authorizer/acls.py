"""ACLs, and the filters that find them (Kafka's ``AclBinding`` and ``AclBindingFilter``)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

from kbroker.security.authorizer.types import WILDCARD, AclOperation, AclPermission, PatternType, ResourceType
from kbroker.security.principal import KafkaPrincipal

_Word = TypeVar("_Word", bound=IntEnum)


def word(kind: type[_Word], code: int) -> _Word:
    """The word of a code on the wire or in a record. A code of a later release is UNKNOWN (``fromCode``)."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


class Acl(NamedTuple):
    """One rule: a principal is allowed or denied an operation, from some hosts, on the resources of a pattern."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    """``Type:name``. ``User:*`` is everybody, whatever their type."""
    host: str
    """An address as Java prints it, a range of addresses (``10.0.0.0/8``), or ``*``."""
    operation: AclOperation
    permission: AclPermission

    def kafka_principal(self) -> KafkaPrincipal:
        """The principal in its two parts. Text without a colon becomes one that nobody has."""
        kind, colon, name = self.principal.partition(":")
        return KafkaPrincipal(kind, name) if colon else KafkaPrincipal("", self.principal)


class AclFilter(NamedTuple):
    """Finds ACLs. None matches any text, ANY any word."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether an ACL is one of those looked for.

        With the pattern type MATCH: whether it holds for the resource of the name (``ResourcePatternFilter``).
        """
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type is PatternType.LITERAL:
            return acl.resource_name in (name, WILDCARD)
        return name.startswith(acl.resource_name)
