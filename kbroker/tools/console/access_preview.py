"""The consequence of a rule that is added or removed: who gains or loses which operation on what. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kbroker.client.acls import OPERATIONS
from kbroker.security.authorizer.acls import Acl
from kbroker.security.authorizer.standard import StandardAuthorizer
from kbroker.security.authorizer.types import WILDCARD, AclOperation, PatternType
from kbroker.security.principal import KafkaPrincipal

_ANYBODY: Final = KafkaPrincipal("User", "\0")
"""A user whom no rule names."""

_ANYWHERE: Final = "192.0.2.1"
"""An address that no rule names: it is kept for documentation (RFC 5737)."""

_OTHER: Final = "\0"
"""The end of a name that nothing has, for what a pattern holds for beside the names that are known."""

MAX_NAMES: Final = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """An operation that a principal may do from now on (``gains``) or no more, on resources of these names."""

    principal: str
    operation: AclOperation
    gains: bool
    names: tuple[str, ...]


def consequences(
    before: Sequence[Acl],
    after: Sequence[Acl],
    changed: Acl,
    known: Iterable[str],
    *,
    host: str = "",
    allow_everyone: bool,
) -> list[Outcome]:
    """The decisions that are others with the rules ``after``, on the names that ``changed`` is about.

    ``known``: names of resources of its type that there are. Asked from ``host``, else from the host of the rule, or
    from an address that no rule names. ``allow_everyone``: what no rule is about everybody may do
    (``allow.everyone.if.no.acl.found``).
    """
    rules = [StandardAuthorizer(each, allow_everyone=allow_everyone) for each in (before, after)]
    who = {acl.kafka_principal() for acl in (*before, changed)}
    named = sorted((each for each in who if each.name != WILDCARD), key=str)
    host = host or (changed.host if changed.host != WILDCARD and "/" not in changed.host else _ANYWHERE)
    found: list[Outcome] = []
    for principal in (*named, _ANYBODY):
        for operation in OPERATIONS[changed.resource_type]:
            names: dict[bool, list[str]] = {True: [], False: []}
            for name in _names(changed, known):
                was, will = (each.authorize(principal, host, operation, changed.resource_type, name) for each in rules)
                if was is not will:
                    names[will].append(_told_name(name, changed))
            told = "everybody else" if principal is _ANYBODY else str(principal)
            found += [Outcome(told, operation, gains, tuple(each)) for gains, each in names.items() if each]
    return found


def _names(changed: Acl, known: Iterable[str]) -> list[str]:
    if changed.pattern_type is PatternType.LITERAL and changed.resource_name != WILDCARD:
        return [changed.resource_name]
    prefix = changed.resource_name if changed.pattern_type is PatternType.PREFIXED else ""
    return [*sorted(name for name in known if name.startswith(prefix))[:MAX_NAMES], prefix + _OTHER]


def _told_name(name: str, changed: Acl) -> str:
    if not name.endswith(_OTHER):
        return name
    return (
        f"any other that begins with {changed.resource_name}"
        if changed.pattern_type is PatternType.PREFIXED
        else "any other"
    )
