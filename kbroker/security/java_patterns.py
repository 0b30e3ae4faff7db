"""Java's regular expressions and replacements (``java.util.regex``), followed with Python's."""

from __future__ import annotations

import re
from collections.abc import Callable

_NAMED_GROUP = re.compile(r"((?:^|[^\\])(?:\\\\)*)\(\?<(?=[A-Za-z])")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_REFERENCE = re.compile(r"\\(?P<literal>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}", re.DOTALL)


def compile_java(pattern: str) -> re.Pattern[str]:
    """Python's expression for one of Java's. ``ValueError`` says why there is none.

    A few are taken that Java refuses, such as ``(?P<name>a)``.
    """
    try:
        # As in Java, classes and (?i) know the letters and digits of ASCII alone: no other letter is taken for one.
        text = _NAMED_GROUP.sub(r"\1(?P<", _QUOTED.sub(lambda quoted: re.escape(quoted[1]), pattern))
        return re.compile(text, re.ASCII)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is a regular expression that kbroker cannot follow: {error}") from None


def java_replacement(text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """The replacement of a match: ``$1`` and ``${name}`` stand for groups, a backslash makes any letter one of text.

    A number may have as many digits as there are groups for. That of a group that is not there is text, unless there
    are no groups at all, which nobody means: ``ValueError`` then, and for names of groups that are not there.
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
                raise ValueError(f"there is no group {found['name']!r} in {pattern.pattern!r}")
            parts.append(group)
        else:
            digits = found["number"]
            if not pattern.groups and digits.strip("0"):
                raise ValueError(f"there is no group {digits} in {pattern.pattern!r}")
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
