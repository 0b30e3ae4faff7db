"""``ssl.principal.mapping.rules``: principals' names from the names in certificates (KIP-371).

Rules are separated by commas. ``DEFAULT`` takes the name as it is. ``RULE:pattern/replacement/`` is for names that the
pattern, a regular expression of Java's, matches in whole: each match of it in the name is replaced; ``L`` or ``U`` at
the end make the result lower or upper case. The first rule that fits wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from kbroker.config.definition import InvalidConfig
from kbroker.security.java_patterns import compile_java, java_replacement

NAME = "ssl.principal.mapping.rules"

_PARTS = r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
_RULE = re.compile(_PARTS)
_SEPARATED = re.compile(rf"\s*((?:{_PARTS}).*?|.*?)\s*(?:,\s*|$)", re.DOTALL)


class NoMatchingRule(ValueError):
    """No rule fits a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str]
    case: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        return self.case(self.pattern.sub(self.replacement, name))


class MappingRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """:class:`InvalidConfig` if they are not rules."""
        self._rules: list[_Rule | None] = []  # None stands for DEFAULT
        for found in _SEPARATED.finditer(text.strip()):
            if found[1]:
                self._rules.append(_parse(found[1]))

    def name(self, distinguished_name: str) -> str:
        """The principal's name for a name as in RFC 2253; :class:`NoMatchingRule`."""
        for rule in self._rules:
            result = distinguished_name if rule is None else rule.apply(distinguished_name)
            if result is not None:
                return result
        raise NoMatchingRule(f"no rule of {NAME} fits {distinguished_name}")


def _parse(text: str) -> _Rule | None:
    found = _RULE.match(text)
    if found is None or found.end() != len(text):
        raise InvalidConfig(f"{NAME}: {text!r} is neither DEFAULT nor of the form RULE:pattern/replacement/[LU]")
    if found["default"]:
        return None
    pattern = found["pattern"]
    try:
        compiled = compile_java(pattern)
        replacement = java_replacement(found["replacement"], compiled)
    except ValueError as error:
        raise InvalidConfig(f"{NAME}: {error}") from None
    case = {"L": str.lower, "U": str.upper}.get(found["case"], str)
    return _Rule(compiled, replacement, case)
