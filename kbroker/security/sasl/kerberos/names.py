"""Names of users from those of Kerberos principals: ``sasl.kerberos.principal.to.local.rules`` (`KerberosShortNamer`).

A principal is ``first@REALM`` or ``first/second@REALM``. The first rule that applies gives the name:

- ``DEFAULT`` takes the first component of principals of the default realm.
- ``RULE:[n:form](match)s/pattern/replacement/g/L`` is for principals of ``n`` components. In the form, ``$0`` stands
  for the realm, ``$1`` and ``$2`` for the components. What is in parentheses must match the result in whole. The
  replacement is made once, or everywhere with ``g``. ``/L`` and ``/U`` at the end make it lower or upper case. All but
  the form may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kbroker.security.java_patterns import compile_java, java_replacement

_FORM = r"RULE:\[(?P<count>[0-9]*):(?P<form>[^\]]*)\]"
_CONDITION = r"(?:\((?P<match>[^)]*)\))?"
_CHANGE = r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<everywhere>g)?)?"
_RULE = re.compile(rf"DEFAULT|{_FORM}{_CONDITION}{_CHANGE}/?(?P<case>[LU])?")
_PLACE = re.compile(r"\$([0-9]*)")
_MOST_COMPONENTS = 2**31 - 1


class NoShortName(ValueError):
    """The rules give a principal no name, or it has not the form of one."""


class Principal(NamedTuple):
    """A Kerberos principal (``KerberosName``)."""

    first: str
    second: str | None
    realm: str | None

    @classmethod
    def parse(cls, text: str) -> Principal:
        """The principal of a name as Kerberos shows it. :class:`NoShortName` for a form that rules do not know.

        A component that holds ``/`` or ``@`` itself shows with a backslash before that. Kafka would cut it there, and
        take it for another principal; it is refused here.
        """
        if "\\" in text:
            raise NoShortName("a component of the principal's name has an escaped character")
        before, at, realm = text.partition("@")
        first, slash, second = before.partition("/")
        if not at:
            return cls(text, None, None)
        if "@" in realm or "/" in realm or "/" in second:
            raise NoShortName("the principal's name has not the form first/second@REALM")
        return cls(first, second if slash else None, realm)


class _Rule(NamedTuple):
    """A rule ``RULE:``; each function takes a name a step further."""

    text: str
    components: int
    form: str
    match: re.Pattern[str] | None
    change: Callable[[str], str]
    case: Callable[[str], str]

    def apply(self, places: Sequence[str]) -> str | None:
        """The name for the realm and the components of a principal; None if the rule is not for it."""
        if len(places) - 1 != self.components:
            return None
        base = _filled(self.form, places)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        return self.change(base)


class ShortNamer:
    """The rules of a listener."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """``ValueError`` if one of them is no rule. ``default_realm`` is empty where there is none."""
        self._rules = [None if rule == "DEFAULT" else _parse(rule) for rule in rules]  # None stands for DEFAULT
        self._default_realm = default_realm

    def short_name(self, principal: Principal) -> str:
        """The user's name; :class:`NoShortName`."""
        if principal.realm is None:
            return principal.first
        places = [principal.realm, principal.first]
        if principal.second is not None:
            places.append(principal.second)
        for rule in self._rules:
            if rule is None:
                result = principal.first if principal.realm == self._default_realm else None
            else:
                result = rule.apply(places)
            if result is None:
                continue
            if "/" in result or "@" in result:
                raise NoShortName(f"{'DEFAULT' if rule is None else rule.text} gives a name with / or @")
            return result if rule is None else rule.case(result)
        raise NoShortName("no rule of sasl.kerberos.principal.to.local.rules applies to the principal")


def _filled(form: str, places: Sequence[str]) -> str:
    """The form with the realm and components put in."""

    def place(found: re.Match[str]) -> str:
        digits = found[1]
        if not digits or len(digits) > 9 or int(digits) >= len(places):
            raise NoShortName(f"{form!r} has a place ${digits} that the principal does not fill")
        return places[int(digits)]

    return _PLACE.sub(place, form)


def _parse(text: str) -> _Rule:
    found = _RULE.match(text)
    if found is None or found.end() != len(text):
        raise ValueError(f"{text!r} is neither DEFAULT nor of the form RULE:[n:form](match)s/pattern/replacement/g/L")
    if not found["count"] or len(found["count"]) > 10 or int(found["count"]) > _MOST_COMPONENTS:
        raise ValueError(f"{text!r} does not say for how many components it is")
    try:
        match = None if found["match"] is None else compile_java(found["match"])
        change = _change(found["pattern"], found["replacement"], everywhere=found["everywhere"] is not None)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    case = {"L": str.lower, "U": str.upper}.get(found["case"], str)
    return _Rule(text, int(found["count"]), found["form"], match, change, case)


def _change(pattern: str | None, replacement: str, *, everywhere: bool) -> Callable[[str], str]:
    if pattern is None:
        return str
    compiled = compile_java(pattern)
    replaced = java_replacement(replacement, compiled)
    return lambda base: compiled.sub(replaced, base, count=0 if everywhere else 1)
