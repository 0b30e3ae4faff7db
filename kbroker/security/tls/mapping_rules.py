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
from kbroker.config.java_regex import is_java_regex

NAME = "ssl.principal.mapping.rules"

_PARTS = r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
_RULE = re.compile(_PARTS)
_SEPARATED = re.compile(rf"\s*((?:{_PARTS}).*?|.*?)\s*(?:,\s*|$)", re.DOTALL)
_NAMED_GROUP = re.compile(r"((?:^|[^\\])(?:\\\\)*)\(\?<(?=[A-Za-z])")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_REFERENCE = re.compile(r"\\(?P<literal>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}", re.DOTALL)


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
    if not is_java_regex(pattern):
        raise InvalidConfig(f"{NAME}: {pattern!r} is no regular expression of Java's")
    try:
        compiled = re.compile(_NAMED_GROUP.sub(r"\1(?P<", _QUOTED.sub(lambda quoted: re.escape(quoted[1]), pattern)))
    except (re.error, OverflowError) as error:
        raise InvalidConfig(
            f"{NAME}: {pattern!r} is a regular expression that kbroker cannot follow: {error}"
        ) from None
    case = {"L": str.lower, "U": str.upper}.get(found["case"], str)
    return _Rule(compiled, _replacement(found["replacement"], compiled), case)


def _replacement(text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """The replacement of a match: ``$1`` and ``${name}`` stand for groups, a backslash makes any letter one of text.

    A number may have as many digits as there are groups for. That of a group that is not there is text, unless there
    are no groups at all, which nobody means.
    """
    parts: list[str | int] = []
    at = 0
    for found in _REFERENCE.finditer(text):
        parts.append(text[at : found.start()])
        at = found.end()
        if found["literal"] is not None:
            parts.append(found["literal"])
        elif found["name"] is not None:
            group = pattern.groupindex.get(found["name"])
            if group is None:
                raise InvalidConfig(f"{NAME}: there is no group {found['name']!r} in {pattern.pattern!r}")
            parts.append(group)
        else:
            digits = found["number"]
            if not pattern.groups and digits.strip("0"):
                raise InvalidConfig(f"{NAME}: there is no group {digits} in {pattern.pattern!r}")
            while len(digits) > 1 and int(digits) > pattern.groups:
                digits = digits[:-1]
            if int(digits) > pattern.groups:
                parts.append("$")
                at = found.start() + 1
            else:
                parts.append(int(digits))
                at = found.start() + 1 + len(digits)
    parts.append(text[at:])

    def replaced(match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in parts)

    return replaced
